//! Serves gRPC: HTTP/2 on connections that were let in, with a limit for whatever a client could make endless.

use std::time::Duration;

use anneal_core::limits::{FRAMING_BYTES, REQUEST_BYTES, RESPONSE_BYTES, STREAMS_PER_CONNECTION};
use anneal_proto::v1::{
    chat_service_server::ChatServiceServer, context_service_server::ContextServiceServer,
    conversation_service_server::ConversationServiceServer, message_service_server::MessageServiceServer,
    operator_service_server::OperatorServiceServer,
};
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Status, body::Body, service::Routes};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower::{ServiceBuilder, ServiceExt as _, util::MapResponse};

use crate::{
    auth::{Asking, Auth, AuthLayer},
    encoded,
    house::House,
    listen::{Connection, Lifetime},
    run::ServerError,
    services::Services,
    status::Failure,
    traffic::{Counting, Traffic, TrafficLayer},
    watch, wire,
};

/// Streams that a client has reset and nobody has taken up yet; more close the connection (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Streams that the server had to reset for a client's mistakes, over a connection's life; more close it (CVE-2025-8671). A good
/// client makes a few, where its upload was refused and goes on for a moment.
const ERROR_RESETS: usize = 1_024;
/// Bytes of a request's headers, as they are once decompressed: more are refused unread, however many frames bring them
/// (CVE-2024-27316).
const HEADER_LIST_BYTES: u32 = 16 * 1024;
/// Bytes that a client may have us remember of its headers.
const HEADER_TABLE_BYTES: u32 = 4 * 1024;
/// Bytes of a frame: what is read before anybody looks at it.
const FRAME_BYTES: u32 = 16 * 1024;
/// Bytes that may be on their way to us and unread, of a stream and of a connection. They do not grow with the client's speed.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes of one answer that lie in the connection; the rest waits where it is counted.
const SEND_BYTES: usize = 64 * 1024;
/// After so much silence a client is asked whether it is there, and has so long to say so.
const ASK_AFTER: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Serves until `stop` is cancelled and the last answer is given.
pub(crate) async fn serve(
    connections: impl Stream<Item = Connection>,
    (routes, auth, traffic): (Routes, Auth, Traffic),
    lifetime: Lifetime,
    stop: CancellationToken,
) {
    let answering = answering(routes, auth, traffic);
    let (http2, living) = (builder(), TaskTracker::new());
    let mut connections = std::pin::pin!(connections);
    while let Some(Some(connection)) = stop.run_until_cancelled(connections.next()).await {
        let (peer, leave, answering) = (connection.peer(), connection.leave(), answering.clone());
        let calls = service_fn(move |mut request: Request<Incoming>| {
            // Before anything of it is done: the next one may be looked at first.
            let stream = peer.place.begin_stream();
            request.extensions_mut().insert(peer.clone());
            let answered = answering.clone().oneshot(request);
            async move { answered.await.map(|answer| answer.map(|body| body.on_stream(stream))) }
        });
        let serving = http2.serve_connection(TokioIo::new(connection), calls);
        living.spawn(lifetime.live(serving, leave, stop.clone()));
    }
    living.close();
    living.wait().await;
}

/// Answers requests: all services behind what counts, explains and finds the caller.
pub(crate) type Answering = Counting<Changed<Changed<Asking<Routes>>>, Body>;
/// A service whose answers are changed on their way.
type Changed<S> = MapResponse<S, fn(Response<Body>) -> Response<Body>>;

/// The services as callers reach them.
pub(crate) fn answering(routes: Routes, auth: Auth, traffic: Traffic) -> Answering {
    ServiceBuilder::new()
        .layer(TrafficLayer {
            traffic,
            refuse: |failure| Status::from(failure).into_http(),
            cut: |failure| Ok(Frame::trailers(trailers(failure))),
        })
        .map_response(wire::explain as fn(Response<Body>) -> Response<Body>)
        .map_response(
            (|answer| encoded::replace_body(watch::in_pieces(answer))) as fn(Response<Body>) -> Response<Body>,
        )
        .layer(AuthLayer(auth))
        .service(routes.prepare())
}

/// The end of an answer that is cut short.
fn trailers(failure: Failure) -> HeaderMap {
    let mut end = HeaderMap::new();
    // Ours have texts and details that headers may hold.
    let _ = Status::from(failure).add_header(&mut end);
    end
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .keep_alive_interval(ASK_AFTER)
        .keep_alive_timeout(ANSWER_WITHIN)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_pending_accept_reset_streams(PENDING_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .max_header_list_size(HEADER_LIST_BYTES)
        .header_table_size(HEADER_TABLE_BYTES)
        .max_frame_size(FRAME_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES);
    http2
}

/// All services. No request is decompressed: tonic refuses what it was not told to accept.
pub(crate) fn routes(house: House, reflection: bool, health: HealthServer<impl Health>) -> Result<Routes, ServerError> {
    anneal_proto::codec::prepare();
    let services = Services { house, encodes: true };
    macro_rules! service {
        ($server:ident) => {
            $server::new(services.clone())
                .max_decoding_message_size(REQUEST_BYTES + FRAMING_BYTES)
                .max_encoding_message_size(RESPONSE_BYTES)
        };
    }
    let mut routes = Routes::new(health)
        .add_service(service!(ConversationServiceServer))
        .add_service(service!(MessageServiceServer))
        .add_service(service!(ContextServiceServer))
        .add_service(service!(ChatServiceServer))
        .add_service(service!(OperatorServiceServer));
    if reflection {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(anneal_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| ServerError::Serving(error.into()))?;
        routes = routes.add_service(reflection);
    }
    Ok(routes)
}
