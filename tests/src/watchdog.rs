//! A watchdog over the servers of a test: no call keeps an async thread at work for more than 100 ms of its processor time.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// The figure in which a server counts what held a thread for too long: how often, by call.
const HELD: &str = "async_thread_held_seconds";

/// The figures of all servers in this process. nextest gives each test a process of its own.
pub(crate) fn figures() -> PrometheusHandle {
    static FIGURES: OnceLock<PrometheusHandle> = OnceLock::new();
    FIGURES.get_or_init(|| PrometheusBuilder::new().install_recorder().expect("nothing else records")).clone()
}

/// Asserts that nothing held a thread for too long, by a server's `/metrics`.
#[track_caller]
pub fn assert_no_thread_was_held(metrics: &str) {
    let held: Vec<&str> = metrics.lines().filter(|line| line.starts_with(HELD)).collect();
    assert!(held.is_empty(), "a call kept an async thread at work for more than 100 ms:\n{}", held.join("\n"));
}

/// Asserts it of the servers in this process when it is dropped, unless the test has failed already.
pub(crate) struct Watchdog;

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_no_thread_was_held(&figures().render());
        }
    }
}
