//! Logs and metrics. A log line is a sentence with fields. It never holds content, keys or prompts.

use std::io::IsTerminal as _;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, fmt};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, with its spans.
    #[default]
    Json,
    /// Plain text.
    Text,
}

/// The operator's settings for the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// `json` or `text`.
    pub format: LogFormat,
    /// The least level that is logged: `info`, or per target as in `info,anneal_worker=debug`.
    pub filter: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            format: LogFormat::Json,
            filter: "info,sqlx=warn".into(),
        }
    }
}

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not of the form `level` or `target=level,…`.
    #[error("log.filter cannot be read")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// Logs or metrics of this process were started before.
    #[error("logs or metrics were started before")]
    Twice,
}

/// Checks the settings as [`start`] does, and starts nothing.
pub fn check(settings: &LogSettings) -> Result<(), TelemetryError> {
    filter(settings).map(|_| ())
}

fn filter(settings: &LogSettings) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(&settings.filter).map_err(TelemetryError::Filter)
}

/// Starts logging to standard error, and metrics. Must be called once, before anything is logged.
pub fn start(settings: &LogSettings) -> Result<PrometheusHandle, TelemetryError> {
    let filter = filter(settings)?;
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Otherwise a failed write to a closed standard error would be reported there too, and
        // panic.
        .log_internal_errors(false);
    match settings.format {
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .try_init(),
        LogFormat::Text => lines.with_target(false).try_init(),
    }
    .map_err(|_| TelemetryError::Twice)?;
    // The upper limits of the histograms' buckets, in seconds.
    let buckets = [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ];
    // `set_buckets` fails only for an empty list.
    let builder = PrometheusBuilder::new()
        .set_buckets(&buckets)
        .map_err(|_| TelemetryError::Twice)?;
    builder
        .install_recorder()
        .map_err(|_| TelemetryError::Twice)
}
