//! The HTTP port that every process has for liveness, readiness and metrics.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    middleware,
    response::Response,
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use crate::exporter::MetricsExporter;

/// Failed checks in a row after which a process is not ready: one lost connection is not an outage.
const FAILURES_UNTIL_NOT_READY: u32 = 3;
/// Time between two checks, and the time limit of one.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Whether the process can work. Cheap to clone.
#[derive(Clone, Default)]
pub struct Readiness {
    ready: Arc<AtomicBool>,
    failures: Arc<AtomicU32>,
}

impl Readiness {
    /// Whether the process can work now.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Records the result of a check. One success makes the process ready, three failures in a row
    /// make it not ready. Returns whether readiness has changed.
    pub fn record(&self, ok: bool) -> bool {
        let before = self.is_ready();
        if ok {
            self.failures.store(0, Ordering::Release);
            self.ready.store(true, Ordering::Release);
        } else if self.failures.fetch_add(1, Ordering::AcqRel) + 1 >= FAILURES_UNTIL_NOT_READY {
            self.ready.store(false, Ordering::Release);
        }
        before != self.is_ready()
    }

    /// Makes the process not ready, because it is stopping. It stays so if no check succeeds after
    /// this.
    pub fn stop(&self) {
        self.ready.store(false, Ordering::Release);
        self.failures
            .store(FAILURES_UNTIL_NOT_READY, Ordering::Release);
    }

    /// Runs `check` every two seconds until `stop` is cancelled. A check that takes longer than two
    /// seconds counts as failed. Calls `changed` with the new state whenever readiness changes.
    pub async fn watch<F: Future<Output = bool>>(
        self,
        check: impl Fn() -> F,
        changed: impl Fn(bool),
        stop: CancellationToken,
    ) {
        loop {
            let ok = tokio::time::timeout(CHECK_INTERVAL, check())
                .await
                .unwrap_or(false);
            if stop.is_cancelled() {
                return;
            }
            if self.record(ok) {
                changed(self.is_ready());
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }
}

#[derive(Clone)]
struct HttpState {
    readiness: Readiness,
    metrics: MetricsExporter,
}

/// The routes for probes and metrics:
///
/// - `/healthz`: 200 while the process runs; makes no database call.
/// - `/readyz`: 200 while the process is ready, else 503.
/// - `/metrics`: Prometheus text.
pub fn router(readiness: Readiness, metrics: MetricsExporter) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render_metrics))
        .layer(middleware::map_response(async |answer: Response| {
            forbid_sniffing(answer)
        }))
        .with_state(HttpState { readiness, metrics })
}

/// Adds the header that keeps browsers from guessing another content type.
pub fn forbid_sniffing(mut answer: Response) -> Response {
    answer.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

async fn readyz(State(state): State<HttpState>) -> (StatusCode, &'static str) {
    if state.readiness.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn render_metrics(State(state): State<HttpState>) -> String {
    metrics::gauge!("anneal_ready").set(f64::from(u8::from(state.readiness.is_ready())));
    state.metrics.render()
}

/// Connections that the kernel queues for a port until they are accepted. When the queue is full, a
/// further client waits a second before it tries again. tokio's default of 128 is reached within
/// 10 ms when many clients connect at once.
const BACKLOG: u32 = 1024;

/// Opens the port. For port 0 the system picks a free port, which the listener's `local_addr` says.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // So that a restarted process can take the port of the one that has just ended.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Most connections at once; a further one is accepted when another ends.
const MAX_CONNECTIONS: usize = 256;
/// Time limit for the head of a request, also for the next request on an open connection.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of a connection: a probe takes milliseconds and then connects again.
const CONNECTION_DEADLINE: Duration = Duration::from_mins(1);
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 100;
/// Pause after a failed accept: probably no file descriptor is free, and the next accept would fail
/// at once.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is cancelled, and then finishes the requests under way. Closes connections
/// whose client sends no complete request, or reads no answer, in time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepting = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let Some((permit, accepted)) = stop.run_until_cancelled(accepting).await else {
            break;
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            continue;
        };
        // With Nagle's algorithm the last part of an answer would wait 40 ms for the
        // acknowledgement of the parts before it.
        let _ = stream.set_nodelay(true);
        let serving = http.serve_connection(
            TokioIo::new(stream),
            TowerToHyperService::new(router.clone()),
        );
        let serving = graceful.watch(serving);
        tokio::spawn(async move {
            let _permit = permit;
            let _ = tokio::time::timeout(CONNECTION_DEADLINE, serving).await;
        });
    }
    graceful.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_end_readiness_and_one_success_restores_it() {
        let readiness = Readiness::default();
        assert!(
            readiness.record(true),
            "a process is not ready before the first check"
        );
        assert!(!readiness.record(false));
        assert!(!readiness.record(false));
        assert!(readiness.record(false), "the third failure in a row");
        assert!(!readiness.is_ready());
        assert!(readiness.record(true));
    }

    #[tokio::test]
    async fn a_connection_without_a_complete_request_is_closed_and_others_are_answered() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener =
            bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("the system picks a free port");
        let address = listener.local_addr().expect("the listener has an address");
        let router = Router::new().route("/healthz", get(|| async { "ok" }));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, router, stop.clone()));
        // Each client sends part of a request, or nothing, and then waits for the connection's end.
        let incomplete_requests = [
            "",
            "GET /healthz HT",
            "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        ]
        .map(|sent| async move {
            let mut stream = tokio::net::TcpStream::connect(address)
                .await
                .expect("the port accepts connections");
            stream
                .write_all(sent.as_bytes())
                .await
                .expect("the connection is open");
            let mut rest = Vec::new();
            let ended =
                tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
            assert!(
                ended.is_ok(),
                "the connection that sent {sent:?} stays open"
            );
        });
        let complete_request = async {
            let mut stream = tokio::net::TcpStream::connect(address)
                .await
                .expect("the port accepts connections");
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .expect("the connection is open");
            let mut answer = [0; 12];
            stream
                .read_exact(&mut answer)
                .await
                .expect("the server answers");
            assert_eq!(&answer, b"HTTP/1.1 200");
        };
        let [nothing, half, most] = incomplete_requests;
        tokio::join!(nothing, half, most, complete_request);
        stop.cancel();
        serving
            .await
            .expect("the task does not panic")
            .expect("the server stops without an error");
    }
}
