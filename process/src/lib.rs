//! What every process of anneal needs: logs, metrics, health, shutdown. Knows nothing of conversations.

pub mod files;
pub mod http;
pub mod panics;
pub mod shutdown;
pub mod telemetry;

/// A name for this process among others: host, process id.
pub fn name() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .map_or_else(|| "host".into(), |host| host.trim().to_owned());
    format!("{host}:{}", std::process::id())
}
