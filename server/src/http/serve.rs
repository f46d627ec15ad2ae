//! Serves HTTP/1.1 on accepted connections. A connection may become a WebSocket; its handler then
//! serves it.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header},
};
use futures::{Stream, StreamExt as _};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::listen::{Connection, MaxConnectionAge};

/// How long a client may take to send the headers of a request. The wait for the next request of a
/// connection counts, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a request's line and headers; over HTTP/2 the headers have the same limit. Each
/// connection may buffer this much before its client has authenticated.
const HEAD_BYTES: usize = 16 * 1024;
/// Most headers of a request.
const HEADERS: usize = 100;

/// Serves connections until `stop` is cancelled and the last answer is sent.
pub(crate) async fn serve(
    connections: impl Stream<Item = Connection>,
    router: Router,
    max_age: MaxConnectionAge,
    stop: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS);
    let (http, connection_tasks) = (Arc::new(http), TaskTracker::new());
    let mut connections = std::pin::pin!(connections);
    while let Some(Some(connection)) = stop.run_until_cancelled(connections.next()).await {
        let (peer, close, router) = (connection.peer(), connection.close_token(), router.clone());
        let slot = peer.slot.clone();
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            let (answer_future, slot) = (router.clone().oneshot(request), slot.clone());
            async move {
                let mut answer = answer_future.await?;
                // If the connection may soon be closed to make room for others, end it now, between
                // two requests.
                let is_upgraded = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
                if !is_upgraded && slot.is_eviction_candidate() {
                    answer
                        .headers_mut()
                        .insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let serving = http
            .serve_connection(TokioIo::new(connection), service)
            .with_upgrades();
        connection_tasks.spawn(max_age.serve(
            serving,
            hyper::server::conn::http1::UpgradeableConnection::graceful_shutdown,
            close,
            stop.clone(),
        ));
    }
    connection_tasks.close();
    connection_tasks.wait().await;
}
