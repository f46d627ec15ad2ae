//! The metrics of the last hour, kept in memory: what the operator's page draws.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::MissedTickBehavior;

use crate::exporter::MetricsExporter;

/// Time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Samples that are kept: an hour.
pub const SAMPLES: usize = 360;
/// Most series that are kept. With [`SAMPLES`] of eight bytes each they take 184 KB.
const MAX_SERIES: usize = 64;

/// The metrics that are kept, and the label that is kept of each. Series that differ only in other
/// labels are added up.
const SAMPLED: [(&str, Option<&str>); 11] = [
    ("anneal_rpc_server_duration_seconds_count", Some("code")),
    ("anneal_rpc_server_duration_seconds_bucket", Some("le")),
    ("process_cpu_seconds_total", None),
    ("process_resident_memory_bytes", None),
    ("anneal_waiting_bytes", None),
    ("anneal_connections_open", None),
    ("anneal_watchers", None),
    ("anneal_db_pool_waiting", None),
    ("anneal_jobs_waiting", None),
    ("anneal_model_input_tokens_total", None),
    ("anneal_model_output_tokens_total", None),
];

/// Samples of metrics of this process. Cheap to clone.
#[derive(Clone)]
pub struct MetricHistory {
    exporter: MetricsExporter,
    samples: Arc<Mutex<Samples>>,
}

/// The samples of one metric, or of one value of its label.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The value of the label; empty: the metric is kept without a label.
    pub label: String,
    /// One value for each sample, the oldest first. None: there was no such series yet.
    pub values: Vec<Option<f64>>,
}

/// The kept series. All have the same length.
#[derive(Default)]
struct Samples {
    series: Vec<(&'static str, String, VecDeque<Option<f64>>)>,
    length: usize,
}

impl MetricHistory {
    /// A history without samples.
    pub fn new(exporter: MetricsExporter) -> Self {
        Self {
            exporter,
            samples: Arc::default(),
        }
    }

    /// Takes a sample every [`SAMPLE_INTERVAL`], without end.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            self.sample();
        }
    }

    /// Takes one sample.
    pub fn sample(&self) {
        let text = self.exporter.render();
        self.lock().add(&text);
    }

    /// The series of a metric, in the order in which they appeared. Empty: it is not kept, or was
    /// not recorded yet.
    pub fn series(&self, name: &str) -> Vec<Series> {
        let samples = self.lock();
        let named = samples.series.iter().filter(|(other, ..)| *other == name);
        let series = named.map(|(_, label, values)| Series {
            label: label.clone(),
            values: values.iter().copied().collect(),
        });
        series.collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Samples {
    /// Adds the metrics of this text for Prometheus as the newest sample.
    fn add(&mut self, text: &str) {
        for (_, _, values) in &mut self.series {
            values.push_back(None);
        }
        self.length += 1;
        for line in text.lines() {
            if let Some((name, label, value)) = parse(line) {
                self.add_value(name, label, value);
            }
        }
        if self.length > SAMPLES {
            self.length = SAMPLES;
            for (_, _, values) in &mut self.series {
                values.pop_front();
            }
        }
    }

    fn add_value(&mut self, name: &'static str, label: &str, value: f64) {
        let mut series = self.series.iter_mut();
        let found = series.find(|(other, of, _)| *other == name && of == label);
        if let Some((_, _, values)) = found {
            if let Some(newest) = values.back_mut() {
                *newest = Some(newest.unwrap_or_default() + value);
            }
        } else if self.series.len() < MAX_SERIES {
            let mut values: VecDeque<_> = vec![None; self.length].into();
            if let Some(newest) = values.back_mut() {
                *newest = Some(value);
            }
            self.series.push((name, label.to_owned(), values));
        }
    }
}

/// The name, the kept label and the value of a line. None: a comment, or a metric that is not kept.
fn parse(line: &str) -> Option<(&'static str, &str, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, label) = SAMPLED.iter().find(|(name, _)| *name == &line[..end])?;
    let (labels, value) = line[end..].rsplit_once(' ')?;
    let label = match label {
        None => "",
        Some(label) => {
            let pair = format!("{label}=\"");
            let start = labels.find(&pair)? + pair.len();
            labels[start..].split('"').next()?
        }
    };
    Some((name, label, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn values(samples: &Samples, name: &str, label: &str) -> Vec<Option<f64>> {
        let found = samples
            .series
            .iter()
            .find(|(other, of, _)| *other == name && of == label);
        found.map_or_else(Vec::new, |(_, _, values)| values.iter().copied().collect())
    }

    #[test]
    fn series_that_differ_in_other_labels_are_added_up() {
        let mut samples = Samples::default();
        samples.add("# TYPE anneal_watchers gauge\nanneal_watchers 2\nanneal_ready 1\n");
        samples.add(
            "anneal_rpc_server_duration_seconds_count{rpc=\"a\",code=\"OK\"} 3\n\
             anneal_rpc_server_duration_seconds_count{rpc=\"b\",code=\"OK\"} 4\n\
             anneal_rpc_server_duration_seconds_count{rpc=\"b\",code=\"ABORTED\"} 1\n\
             anneal_watchers 5\n",
        );
        let calls = "anneal_rpc_server_duration_seconds_count";
        assert_eq!(
            values(&samples, "anneal_watchers", ""),
            [Some(2.0), Some(5.0)]
        );
        assert_eq!(values(&samples, calls, "OK"), [None, Some(7.0)]);
        assert_eq!(values(&samples, calls, "ABORTED"), [None, Some(1.0)]);
        assert!(values(&samples, "anneal_ready", "").is_empty());
    }

    #[test]
    fn an_hour_is_kept_and_no_more_series_than_the_limit() {
        let mut samples = Samples::default();
        for number in 0..SAMPLES + 5 {
            samples.add(&format!("anneal_watchers {number}\n"));
        }
        let kept = values(&samples, "anneal_watchers", "");
        assert_eq!(kept.len(), SAMPLES);
        assert_eq!(kept[0], Some(5.0));
        let mut many = String::new();
        for code in 0..100 {
            let name = "anneal_rpc_server_duration_seconds_count";
            writeln!(many, "{name}{{code=\"{code}\"}} 1").expect("a string takes all");
        }
        samples.add(&many);
        assert_eq!(samples.series.len(), MAX_SERIES);
        assert!(
            samples
                .series
                .iter()
                .all(|(_, _, values)| values.len() == SAMPLES)
        );
    }
}
