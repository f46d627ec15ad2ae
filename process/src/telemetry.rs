//! Logs, metrics and traces. A log line is a sentence with fields. It never holds content, keys or
//! prompts, and neither do spans.

use std::io::IsTerminal as _;

use opentelemetry::trace::TracerProvider as _;
use serde::{Deserialize, Serialize};
use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, filter::dynamic_filter_fn, fmt, layer::SubscriberExt as _,
    registry::LookupSpan, reload, util::SubscriberInitExt as _,
};

use crate::{
    exporter::{ExporterError, MetricsExporter, MetricsSettings},
    trace_export::{self, TraceExport, TracingError, TracingSettings},
    trace_id_format::{WithTraceId, add_to_json, add_to_text},
};

/// The beginning of the targets whose spans are exported: our crates.
const TARGET_PREFIX: &str = "anneal_";

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
            // The driver warns of slow statements and of what PostgreSQL tells it when it stops. The
            // log of an outage says that once, with the host. `sqlx_postgres` keeps its warnings:
            // they are about the database's URL and the password file.
            filter: "info,sqlx=error,sqlx_postgres=warn".into(),
        }
    }
}

/// Why telemetry could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not of the form `level` or `target=level,…`.
    #[error("log.filter cannot be read")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// The settings for traces cannot work.
    #[error(transparent)]
    Tracing(#[from] TracingError),
    /// Logs of this process were started before.
    #[error("logs were started before")]
    Twice,
    /// Metrics could not be started.
    #[error("metrics could not be started")]
    Metrics(#[source] ExporterError),
    /// The filter in force cannot be replaced.
    #[error("the filter of the log cannot be replaced")]
    Replace(#[source] reload::Error),
}

/// The handles to the telemetry of a process that has started it.
pub struct Telemetry {
    /// Renders the metrics.
    pub metrics: MetricsExporter,
    /// The export of spans, to be shut down when the process ends.
    pub traces: TraceExport,
    /// The filter of the log.
    pub log_filter: LogFilter,
}

/// The filter of this process's log, which can be replaced while the process runs.
pub struct LogFilter(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl LogFilter {
    /// Puts the filter of these settings in force.
    pub fn replace(&self, settings: &LogSettings) -> Result<(), TelemetryError> {
        (self.0)(filter(settings)?).map_err(TelemetryError::Replace)
    }
}

/// Checks the settings as [`start`] does, and starts nothing.
pub fn check(log: &LogSettings, tracing: &TracingSettings) -> Result<(), TelemetryError> {
    filter(log)?;
    Ok(trace_export::check(tracing)?)
}

fn filter(settings: &LogSettings) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(&settings.filter).map_err(TelemetryError::Filter)
}

/// Starts logging to standard error, metrics, and the export of spans, if a collector is named.
/// Must be called once, within a Tokio runtime, before anything is logged.
pub fn start(
    log: &LogSettings,
    metrics: &MetricsSettings,
    tracing: &TracingSettings,
) -> Result<Telemetry, TelemetryError> {
    let filter = filter(log)?;
    let traces = trace_export::start(tracing)?;
    let log_filter = match traces.provider() {
        // The log's filter disables spans below its level, so that they cost nothing.
        None => {
            let (filter, handle) = reload::Layer::new(filter);
            tracing_subscriber::registry()
                .with(filter)
                .with(log_lines(log.format))
                .try_init()
                .map_err(|_| TelemetryError::Twice)?;
            LogFilter(Box::new(move |filter| handle.reload(filter)))
        }
        // Spans are exported whatever the log's filter is.
        Some(provider) => {
            let spans = tracing_opentelemetry::layer::<Registry>()
                .with_tracer(provider.tracer("anneal"))
                .with_location(false)
                .with_threads(false)
                .with_target(false)
                .with_tracked_inactivity(false)
                .with_filter(
                    dynamic_filter_fn(|metadata, _| is_exported(metadata))
                        .with_callsite_filter(|metadata| {
                            // Never `always`: the answers of two filters about a disabled event that
                            // was only asked for (`tracing::enabled!`, as sqlx does) would hide the
                            // next span of this thread.
                            if is_exported(metadata) {
                                Interest::sometimes()
                            } else {
                                Interest::never()
                            }
                        })
                        .with_max_level_hint(LevelFilter::DEBUG),
                );
            let (filter, handle) = reload::Layer::new(filter);
            tracing_subscriber::registry()
                .with(spans)
                .with(log_lines(log.format).with_filter(filter))
                .try_init()
                .map_err(|_| TelemetryError::Twice)?;
            LogFilter(Box::new(move |filter| handle.reload(filter)))
        }
    };
    let metrics = MetricsExporter::install(metrics).map_err(TelemetryError::Metrics)?;
    Ok(Telemetry {
        metrics,
        traces,
        log_filter,
    })
}

/// Whether spans with this metadata are exported.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && *metadata.level() <= Level::DEBUG
        && metadata.target().starts_with(TARGET_PREFIX)
}

/// Writes log lines to standard error.
fn log_lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let is_terminal = std::io::stderr().is_terminal();
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        // Otherwise a failed write to a closed standard error would be reported there too, and
        // panic.
        .log_internal_errors(false);
    match format {
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .map_event_format(|inner| WithTraceId {
                inner,
                add: add_to_json,
            })
            .boxed(),
        LogFormat::Text => lines
            .with_target(false)
            .map_event_format(|inner| WithTraceId {
                inner: inner.with_ansi(is_terminal),
                add: add_to_text,
            })
            .boxed(),
    }
}
