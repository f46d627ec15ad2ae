//! Checks that no call of a test's server blocks an async thread for more than the processor time
//! that the server's `poll_watchdog` allows.

use std::sync::OnceLock;

use anneal_process::exporter::{MetricsExporter, MetricsSettings};

/// The histogram in which a server records how long a call has blocked an async thread, if that
/// was too long.
const HELD: &str = "anneal_async_thread_held_seconds";

/// The metrics of all servers in this process. nextest runs each test in its own process.
pub(crate) fn metrics() -> MetricsExporter {
    static METRICS: OnceLock<MetricsExporter> = OnceLock::new();
    METRICS
        .get_or_init(|| {
            MetricsExporter::install(&MetricsSettings::default())
                .expect("no other recorder is installed")
        })
        .clone()
}

/// Asserts, by the text of a server's `/metrics`, that no call has blocked an async thread.
#[track_caller]
pub fn assert_no_blocked_thread(metrics: &str) {
    let held: Vec<&str> = metrics
        .lines()
        .filter(|line| line.starts_with(HELD))
        .collect();
    assert!(
        held.is_empty(),
        "a call has blocked an async thread for too long:\n{}",
        held.join("\n")
    );
}

/// On drop, asserts for the servers in this process that no call has blocked an async thread,
/// unless the test has already failed.
pub(crate) struct Watchdog;

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_no_blocked_thread(&metrics().render());
        }
    }
}
