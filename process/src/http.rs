//! The HTTP port of every process: is it alive, can it work, what are its figures.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::State, http::StatusCode, routing::get, serve::ListenerExt as _};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

/// Failed checks in a row after which a process counts as not ready: one lost connection is not an outage.
const FAILURES_UNTIL_NOT_READY: u32 = 3;
/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Whether the process can work. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness {
    ready: Arc<AtomicBool>,
    failures: Arc<AtomicU32>,
}

impl Readiness {
    /// Whether it can work now.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Takes note of a check: one success makes ready, three failures in a row make not ready. True when that changed.
    pub fn note(&self, ok: bool) -> bool {
        let before = self.is_ready();
        if ok {
            self.failures.store(0, Ordering::Release);
            self.ready.store(true, Ordering::Release);
        } else if self.failures.fetch_add(1, Ordering::AcqRel) + 1 >= FAILURES_UNTIL_NOT_READY {
            self.ready.store(false, Ordering::Release);
        }
        before != self.is_ready()
    }

    /// Not ready from now on: the process is stopping.
    pub fn stop(&self) {
        self.ready.store(false, Ordering::Release);
        self.failures.store(FAILURES_UNTIL_NOT_READY, Ordering::Release);
    }

    /// Checks every two seconds until cancelled; `changed` hears of every change.
    pub async fn watch<F: Future<Output = bool>>(
        self,
        check: impl Fn() -> F,
        changed: impl Fn(bool),
        stop: CancellationToken,
    ) {
        loop {
            let ok = tokio::time::timeout(CHECK_EVERY, check()).await.unwrap_or(false);
            if stop.is_cancelled() {
                return;
            }
            if self.note(ok) {
                changed(self.is_ready());
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
        }
    }
}

#[derive(Clone)]
struct Shown {
    readiness: Readiness,
    metrics: PrometheusHandle,
}

/// `/healthz`: 200 while the process runs, without asking the database. `/readyz`: 200 when it can work, else 503.
/// `/metrics`: Prometheus text.
pub fn router(readiness: Readiness, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(|State(shown): State<Shown>| async move { shown.metrics.render() }))
        .with_state(Shown { readiness, metrics })
}

async fn readyz(State(shown): State<Shown>) -> (StatusCode, &'static str) {
    if shown.readiness.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

/// Opens the port. With port 0 the system picks one; the listener knows which.
pub async fn bind(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await
}

/// Serves until cancelled.
pub async fn serve(listener: tokio::net::TcpListener, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    // Without it the last part of an answer waits 40 ms for the acknowledgement of what came before.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_not_an_outage_and_one_success_ends_it() {
        let readiness = Readiness::default();
        assert!(readiness.note(true));
        assert!(!readiness.note(false));
        assert!(!readiness.note(false));
        assert!(readiness.note(false), "the third failure in a row");
        assert!(!readiness.is_ready());
        assert!(readiness.note(true));
    }
}
