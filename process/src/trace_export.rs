//! Exports the spans of this process over OTLP/gRPC, if the operator names a collector. A thread of
//! its own sends them in batches. Spans that the collector does not take in time are lost: the
//! export delays no call.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_trace::{NAME_ATTRIBUTE, ROLE_ATTRIBUTE, SpanRole};
use hyper::{
    Uri,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use opentelemetry::{Context, KeyValue, trace::SpanKind};
use opentelemetry_otlp::{
    WithExportConfig as _, WithTonicConfig as _,
    tonic_types::{metadata::MetadataMap, transport::ClientTlsConfig},
};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{
        BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
    },
};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, task, time::timeout};
use tracing::warn;

/// Standard variables that name a collector. The first one that is set counts, if
/// `tracing.endpoint` is empty.
const ENDPOINT_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// How long the export of one batch may take, with its repetitions.
const EXPORT_DEADLINE: Duration = Duration::from_secs(5);

/// How long a process that stops waits for its last spans to be exported.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);

/// Least time between two log lines about failed exports.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The operator's settings for traces.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracingSettings {
    /// URL of a collector that speaks OTLP over gRPC: `https://collector.example:4317`. Empty: that
    /// of the standard variables; without any, no traces are exported.
    pub endpoint: String,
    /// The share of traces that is exported, from 0 to 1. A caller's `traceparent` decides for its
    /// own trace.
    pub sample_ratio: f64,
    /// The attribute `service.name` of all spans.
    pub service_name: String,
    /// Headers of each export, with the credential of the collector.
    pub headers: BTreeMap<String, String>,
}

impl Default for TracingSettings {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            sample_ratio: 1.0,
            service_name: "anneal".into(),
            headers: BTreeMap::new(),
        }
    }
}

/// Leaves out the values of headers, which are secrets.
impl fmt::Debug for TracingSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TracingSettings")
            .field("endpoint", &self.endpoint)
            .field("sample_ratio", &self.sample_ratio)
            .field("service_name", &self.service_name)
            .finish_non_exhaustive()
    }
}

/// Why the settings for traces cannot work.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// The collector's address is no URL that can be called.
    #[error(
        "the address of the collector of traces ({0}) must be a URL like https://collector.example:4317"
    )]
    Endpoint(String),
    /// The share of traces is not from 0 to 1.
    #[error("tracing.sample_ratio is {0}; it must be from 0 to 1")]
    SampleRatio(f64),
    /// A header cannot be sent.
    #[error("tracing.headers: {0:?} has a name or a value that no header can have")]
    Header(String),
    /// The exporter refuses the settings.
    #[error("traces cannot be exported")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
}

/// The checked settings of an exporter.
struct ExporterSettings {
    endpoint: String,
    is_https: bool,
    headers: HeaderMap,
}

/// Checks the settings as [`start`] does, and starts nothing.
pub(crate) fn check(settings: &TracingSettings) -> Result<(), TracingError> {
    exporter_settings(settings).map(|_| ())
}

/// None: no collector is named.
fn exporter_settings(settings: &TracingSettings) -> Result<Option<ExporterSettings>, TracingError> {
    let ratio = settings.sample_ratio;
    if !(0.0..=1.0).contains(&ratio) {
        return Err(TracingError::SampleRatio(ratio));
    }
    let headers = headers(settings)?;
    let Some((source, endpoint)) = endpoint(settings) else {
        return Ok(None);
    };
    // The URL may hold a password, so the error names its source.
    let invalid = || TracingError::Endpoint(source.to_owned());
    let url: Uri = endpoint.parse().map_err(|_| invalid())?;
    let is_https = match url.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(invalid()),
    };
    Ok(Some(ExporterSettings {
        endpoint,
        is_https,
        headers,
    }))
}

/// The collector's URL, and the name of the setting or of the variable that it comes from.
fn endpoint(settings: &TracingSettings) -> Option<(&'static str, String)> {
    let from_settings = ("tracing.endpoint", settings.endpoint.clone());
    let from_variables = ENDPOINT_VARIABLES
        .into_iter()
        .filter_map(|name| Some((name, std::env::var(name).ok()?)));
    std::iter::once(from_settings)
        .chain(from_variables)
        .find(|(_, url)| !url.is_empty())
}

fn headers(settings: &TracingSettings) -> Result<HeaderMap, TracingError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let invalid = || TracingError::Header(name.clone());
        let header = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// The export of this process's spans, if there is one.
pub struct TraceExport {
    provider: Option<SdkTracerProvider>,
}

impl TraceExport {
    /// The provider of tracers; None: no traces are exported.
    pub(crate) const fn provider(&self) -> Option<&SdkTracerProvider> {
        self.provider.as_ref()
    }

    /// Exports the spans that have ended so far, and stops exporting. Takes at most three seconds.
    pub async fn shut_down(self) {
        let Some(provider) = self.provider else {
            return;
        };
        // The call blocks its thread until the batches are sent.
        let flush = task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_DEADLINE));
        if !matches!(flush.await, Ok(Ok(()))) {
            warn!(
                "the last spans could not be exported within {} s",
                FLUSH_DEADLINE.as_secs()
            );
        }
    }
}

/// Starts to export spans, if a collector is named. Connects with the first batch. Must be called
/// within a Tokio runtime.
pub(crate) fn start(settings: &TracingSettings) -> Result<TraceExport, TracingError> {
    let Some(checked) = exporter_settings(settings)? else {
        return Ok(TraceExport { provider: None });
    };
    let mut builder = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(checked.endpoint)
        .with_timeout(EXPORT_DEADLINE)
        .with_metadata(MetadataMap::from_headers(checked.headers));
    if checked.is_https {
        builder = builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots());
    }
    let exporter = BoundedExporter {
        inner: Arc::new(builder.build().map_err(TracingError::Exporter)?),
        runtime: Handle::current(),
        failures: Mutex::default(),
    };
    // Its queue has 2,048 spans, and a batch 512, unless the variables OTEL_BSP_… say otherwise.
    let batches = BatchSpanProcessor::builder(exporter).build();
    let resource = Resource::builder()
        .with_service_name(settings.service_name.clone())
        .with_attribute(KeyValue::new("service.instance.id", crate::name()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let sampler = Sampler::TraceIdRatioBased(settings.sample_ratio);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(NamedSpans(batches))
        .with_sampler(Sampler::ParentBased(Box::new(sampler)))
        .with_resource(resource)
        .build();
    anneal_trace::turn_on();
    Ok(TraceExport {
        provider: Some(provider),
    })
}

/// Gives spans the names and kinds that [`anneal_trace::describe_span`] has set, and passes them on.
#[derive(Debug)]
struct NamedSpans<P>(P);

impl<P: SpanProcessor> SpanProcessor for NamedSpans<P> {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, mut span: SpanData) {
        apply_description(&mut span);
        self.0.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(limit)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

fn apply_description(span: &mut SpanData) {
    let (mut name, mut role) = (None, None);
    span.attributes
        .retain(|attribute| match attribute.key.as_str() {
            NAME_ATTRIBUTE => {
                name = Some(attribute.value.as_str().into_owned());
                false
            }
            ROLE_ATTRIBUTE => {
                role = SpanRole::from_attribute(&attribute.value);
                false
            }
            _ => true,
        });
    if let Some(name) = name {
        span.name = name.into();
    }
    if let Some(role) = role {
        span.span_kind = match role {
            SpanRole::Server => SpanKind::Server,
            SpanRole::Client => SpanKind::Client,
            SpanRole::Consumer => SpanKind::Consumer,
        };
    }
}

/// An exporter whose calls end by [`EXPORT_DEADLINE`], and whose failures are logged once a minute
/// at most.
#[derive(Debug)]
struct BoundedExporter {
    inner: Arc<opentelemetry_otlp::SpanExporter>,
    /// Where the calls run: the thread that sends the batches has no timers.
    runtime: Handle,
    failures: Mutex<FailureLog>,
}

/// Failed exports since the last log line about them.
#[derive(Debug, Default)]
struct FailureLog {
    logged: Option<Instant>,
    /// Spans that were lost since then.
    lost_spans: usize,
}

impl FailureLog {
    /// Counts lost spans. Returns how many to report, if a line is due.
    fn add(&mut self, lost_spans: usize, now: Instant) -> Option<usize> {
        self.lost_spans += lost_spans;
        let is_due = self
            .logged
            .is_none_or(|logged| now.duration_since(logged) >= FAILURE_LOG_INTERVAL);
        is_due.then(|| {
            self.logged = Some(now);
            std::mem::take(&mut self.lost_spans)
        })
    }
}

impl SpanExporter for BoundedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let inner = Arc::clone(&self.inner);
        let export = self
            .runtime
            .spawn(async move { timeout(EXPORT_DEADLINE, inner.export(batch)).await });
        let outcome = match export.await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(OTelSdkError::Timeout(EXPORT_DEADLINE)),
            Err(_) => Err(OTelSdkError::InternalFailure(
                "the process stopped meanwhile".into(),
            )),
        };
        if let Err(error) = &outcome {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(lost_spans) = failures.add(spans, Instant::now()) {
                warn!(
                    lost_spans,
                    "could not export {lost_spans} spans to the collector of traces: {error}"
                );
            }
        }
        outcome
    }

    fn set_resource(&mut self, resource: &Resource) {
        // No export has begun yet, so nothing else holds the exporter.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.set_resource(resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_exports_are_reported_once_a_minute_with_all_lost_spans() {
        let (mut failures, start) = (FailureLog::default(), Instant::now());
        assert_eq!(failures.add(3, start), Some(3));
        assert_eq!(failures.add(2, start + Duration::from_secs(59)), None);
        assert_eq!(failures.add(1, start + Duration::from_mins(1)), Some(3));
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let with = |change: fn(&mut TracingSettings)| {
            let mut settings = TracingSettings::default();
            change(&mut settings);
            check(&settings)
        };
        with(|settings| settings.endpoint = "http://127.0.0.1:4317".into()).expect("is a URL");
        with(|settings| settings.endpoint = "127.0.0.1:4317".into()).expect_err("has no scheme");
        with(|settings| settings.sample_ratio = 1.5).expect_err("is more than all");
        with(|settings| settings.sample_ratio = f64::NAN).expect_err("is no number");
        with(|settings| {
            settings.headers.insert("a b".into(), "c".into());
        })
        .expect_err("is no header");
    }
}
