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
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::Semaphore,
};
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
        .layer(middleware::map_response(async |answer: Response| forbid_sniffing(answer)))
        .with_state(Shown { readiness, metrics })
}

/// The same answer, told to browsers to be of the type that it says and of no other.
pub fn forbid_sniffing(mut answer: Response) -> Response {
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

async fn readyz(State(shown): State<Shown>) -> (StatusCode, &'static str) {
    if shown.readiness.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

/// Connections that the system keeps for a port until they are accepted. The client of one more waits a second before it tries
/// again, and tokio's default, 128, is reached within 10 ms where many connect at once.
const BACKLOG: u32 = 1024;

/// Opens the port. With port 0 the system picks one; the listener knows which.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that is started again gets the port of the one that has just ended.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Connections at once; who comes when there are so many waits until one ends.
const CONNECTIONS: usize = 256;
/// How long a client may take for the head of a request, and for beginning the next one.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take for all of a connection: a probe is done in milliseconds, and comes again.
const CONNECTION_WITHIN: Duration = Duration::from_mins(1);
/// Bytes of a request's head, and headers in it.
const HEAD_BYTES: usize = 16 * 1024;
const HEADERS: usize = 100;
/// After an accept that failed: out of files, most likely, and the next one would fail at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Serves until cancelled, and then what is under way. Whoever says nothing, or half of it, or takes nothing, is shown out.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    let (leaving, room) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let entering = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (place, listener.accept().await)
        };
        let Some((place, accepted)) = stop.run_until_cancelled(entering).await else { break };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        // Without it the last part of an answer waits 40 ms for the acknowledgement of what came before.
        let _ = stream.set_nodelay(true);
        let serving = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let serving = leaving.watch(serving);
        tokio::spawn(async move {
            let _place = place;
            let _ = tokio::time::timeout(CONNECTION_WITHIN, serving).await;
        });
    }
    leaving.shutdown().await;
    Ok(())
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

    #[tokio::test]
    async fn who_says_nothing_or_half_of_it_is_shown_out_and_others_are_answered() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (router, stop) = (Router::new().route("/healthz", get(|| async { "ok" })), CancellationToken::new());
        let serving = tokio::spawn(serve(listener, router, stop.clone()));
        let silent = ["", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "].map(|said| async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("connects");
            stream.write_all(said.as_bytes()).await.expect("is taken");
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "{said} is shown out");
        });
        let asking = async {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("connects");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("is taken");
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.expect("is answered");
            assert_eq!(&answer, b"HTTP/1.1 200");
        };
        let [nothing, half, most] = silent;
        tokio::join!(nothing, half, most, asking);
        stop.cancel();
        serving.await.expect("ends").expect("in good order");
    }
}
