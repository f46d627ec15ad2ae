//! Serves HTTP/1.1 on connections that were let in.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, header},
};
use futures::{Stream, StreamExt as _};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::listen::{Connection, Lifetime};

/// How long a client may take for the head of a request, and for beginning the next one.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of a request's head: as many as over HTTP/2. So much may lie unread in each connection of somebody who has shown no
/// credential yet.
const HEAD_BYTES: usize = 16 * 1024;
/// Headers of a request.
const HEADERS: usize = 100;

/// Serves until `stop` is cancelled and the last answer is given.
pub(crate) async fn serve(
    connections: impl Stream<Item = Connection>,
    router: Router,
    lifetime: Lifetime,
    stop: CancellationToken,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    let (http, living) = (Arc::new(http), TaskTracker::new());
    let mut connections = std::pin::pin!(connections);
    while let Some(Some(connection)) = stop.run_until_cancelled(connections.next()).await {
        let (peer, leave, router) = (connection.peer(), connection.leave(), router.clone());
        let place = peer.place.clone();
        let answering = service_fn(move |request: hyper::Request<Incoming>| {
            let mut request: Request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            let (answered, place) = (router.clone().oneshot(request), place.clone());
            async move {
                let mut answer = answered.await?;
                // Better now than in the middle of the next request.
                if place.is_next_to_go() {
                    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let serving = http.serve_connection(TokioIo::new(connection), answering);
        living.spawn(lifetime.live(serving, leave, stop.clone()));
    }
    living.close();
    living.wait().await;
}
