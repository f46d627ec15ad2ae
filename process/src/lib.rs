//! Logs, metrics, traces, probes and shutdown, which every anneal process needs. Knows nothing of
//! conversations.
//!
//! - `telemetry`: starts logs, metrics and traces.
//! - `trace_export`: exports spans to a collector. `trace_id_format`: log lines with trace ids.
//! - `http`: the port for health checks and metrics.
//! - `exporter`: the metrics as text for Prometheus.
//! - `metric_history`: the metrics of the last hour, in memory.
//! - `metric_table`: name, kind, unit and help of every metric, and the buckets of histograms.
//! - `old_names`: the names that metrics had before the prefix `anneal_`.
//! - `process_figures`: memory, processor time and open files of the process.
//! - `build`: the version and the commit that were built.
//! - `shutdown`: SIGTERM and Ctrl-C.
//! - `panics`: reports of panics without content.
//! - `open_files`: raises the limit of open files, because each connection takes one.

pub mod build;
pub mod exporter;
pub mod http;
pub mod metric_history;
pub mod metric_table;
mod old_names;
pub mod open_files;
pub mod panics;
mod process_figures;
pub mod shutdown;
pub mod telemetry;
pub mod trace_export;
mod trace_id_format;

/// A name for this process: host and process id.
pub fn name() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map_or_else(|| "host".into(), |host| host.trim().to_owned());
    format!("{host}:{}", std::process::id())
}
