//! Logs, metrics, probes and shutdown, which every anneal process needs. Knows nothing of
//! conversations.
//!
//! - `telemetry`: logs and metrics.
//! - `http`: the port for health checks and metrics.
//! - `shutdown`: SIGTERM and Ctrl-C.
//! - `panics`: reports of panics without content.
//! - `open_files`: raises the limit of open files, because each connection takes one.

pub mod http;
pub mod open_files;
pub mod panics;
pub mod shutdown;
pub mod telemetry;

/// A name for this process: host and process id.
pub fn name() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map_or_else(|| "host".into(), |host| host.trim().to_owned());
    format!("{host}:{}", std::process::id())
}
