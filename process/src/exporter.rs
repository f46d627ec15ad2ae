//! The metrics of this process as text for Prometheus.

use std::{
    fmt::Write as _,
    io,
    time::{Duration, SystemTime},
};

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};

use crate::{
    build,
    metric_table::{self, HISTOGRAM_BUCKETS_SECONDS},
    old_names, process_figures,
};

/// The operator's settings for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// Whether metrics are also exported under the names that they had before the prefix `anneal_`.
    pub old_names: bool,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { old_names: true }
    }
}

/// Why metrics could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// Metrics of this process were started before.
    #[error("metrics cannot be recorded")]
    Recorder(#[from] BuildError),
    /// The system has no resources for another thread.
    #[error("the thread that sums up histograms cannot be started")]
    Thread(#[from] io::Error),
}

/// Time between two rounds in which recorded values are added to their buckets. Until then each
/// value of a histogram takes memory, also if nobody reads the metrics.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Writes the metrics of this process. Cheap to clone.
#[derive(Clone)]
pub struct MetricsExporter {
    recorder: PrometheusHandle,
    /// Seconds since 1970-01-01 UTC.
    started_seconds: f64,
    writes_old_names: bool,
}

impl MetricsExporter {
    /// Starts to record the metrics of this process. Fails if that was done before.
    pub fn install(settings: &MetricsSettings) -> Result<Self, ExporterError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&HISTOGRAM_BUCKETS_SECONDS)?
            .install_recorder()?;
        metric_table::describe_all();
        metrics::gauge!("anneal_build_info", "version" => build::VERSION, "commit" => build::COMMIT)
            .set(1.0);
        std::thread::Builder::new()
            .name("metrics-upkeep".to_owned())
            .spawn({
                let recorder = recorder.clone();
                move || run_upkeep_loop(&recorder)
            })?;
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Self {
            recorder,
            started_seconds: started.unwrap_or_default().as_secs_f64(),
            writes_old_names: settings.old_names,
        })
    }

    /// All metrics as text for Prometheus.
    pub fn render(&self) -> String {
        let mut text = self.recorder.render();
        let started = ("process_start_time_seconds", self.started_seconds);
        // The recorder's counters are whole numbers, and processor time is not.
        for (name, value) in process_figures::read().into_iter().chain([started]) {
            if let Some(metric) = metric_table::find(name) {
                let (help, kind) = (metric.help, metric.kind.name());
                let _ = writeln!(
                    text,
                    "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
                );
            }
        }
        if self.writes_old_names {
            old_names::append(&mut text);
        }
        text
    }
}

/// Runs as long as the process.
fn run_upkeep_loop(recorder: &PrometheusHandle) {
    loop {
        std::thread::sleep(UPKEEP_INTERVAL);
        recorder.run_upkeep();
    }
}
