//! Logs and metrics. A log line is a sentence with fields. It never holds content, keys or prompts.

use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, fmt};

use crate::exporter::{ExporterError, MetricsExporter, MetricsSettings};

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
    /// Logs of this process were started before.
    #[error("logs were started before")]
    Twice,
    /// Metrics could not be started.
    #[error("metrics could not be started")]
    Metrics(#[source] ExporterError),
}

/// Checks the settings as [`start`] does, and starts nothing.
pub fn check(settings: &LogSettings) -> Result<(), TelemetryError> {
    filter(settings).map(|_| ())
}

fn filter(settings: &LogSettings) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(&settings.filter).map_err(TelemetryError::Filter)
}

/// Starts logging to standard error, and metrics. Must be called once, before anything is logged.
pub fn start(
    settings: &LogSettings,
    metrics: &MetricsSettings,
) -> Result<MetricsExporter, TelemetryError> {
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
    MetricsExporter::install(metrics).map_err(TelemetryError::Metrics)
}
