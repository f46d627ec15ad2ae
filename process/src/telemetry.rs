//! Logs and metrics. A log line is a sentence with fields; content, keys and prompts are never in it.

use std::io::IsTerminal as _;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, fmt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, with its spans: for machines.
    #[default]
    Json,
    /// A line for people.
    Text,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// `json` or `text`.
    pub format: LogFormat,
    /// Which lines: `info`, or per target as in `info,anneal_worker=debug`.
    pub filter: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Json, filter: "info,sqlx=warn".into() }
    }
}

/// Telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not of the form `level` or `target=level,…`.
    #[error("log.filter cannot be read")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// Something else in this process has started it.
    #[error("logs or metrics were started before")]
    Twice,
}

/// Starts logging to standard error, and metrics. Call once, first.
pub fn start(settings: &LogSettings) -> Result<PrometheusHandle, TelemetryError> {
    let filter = EnvFilter::try_new(&settings.filter).map_err(TelemetryError::Filter)?;
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that nobody reads any more would else be reported to the same standard error, by a panic.
        .log_internal_errors(false);
    match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).try_init(),
        LogFormat::Text => lines.with_target(false).try_init(),
    }
    .map_err(|_| TelemetryError::Twice)?;
    let buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
    let builder = PrometheusBuilder::new().set_buckets(&buckets).map_err(|_| TelemetryError::Twice)?;
    builder.install_recorder().map_err(|_| TelemetryError::Twice)
}
