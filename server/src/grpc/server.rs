//! Serves gRPC over HTTP/2, and assembles the services and their layers. Every resource of a
//! connection that a client controls has a limit.

use std::{sync::Arc, time::Duration};

use anneal_core::limits::{FRAMING_BYTES, REQUEST_BYTES, RESPONSE_BYTES, STREAMS_PER_CONNECTION};
use anneal_proto::v1::{
    chat_service_server::ChatServiceServer, context_service_server::ContextServiceServer,
    conversation_service_server::ConversationServiceServer,
    erasure_service_server::ErasureServiceServer, message_service_server::MessageServiceServer,
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
    auth::{AuthLayer, AuthService, Authenticator},
    failure::Failure,
    grpc::{
        dispatch::{Dispatcher, Services},
        encoded_response, malformed_requests,
        services::GrpcServices,
        status,
    },
    listen::{Connection, MaxConnectionAge},
    server_error::ServerError,
    state::ServerState,
    traffic::{TrafficLayer, TrafficLimits, TrafficService},
    usecases::watch,
};

/// Most streams that a client has reset before the server accepted them; more close the connection
/// (CVE-2023-44487).
const PENDING_RESETS: usize = 20;
/// Most streams of a connection that the server reset for the client's errors; more close the
/// connection (CVE-2025-8671). A correct client causes a few, because it goes on with an upload for
/// a moment after the refusal.
const ERROR_RESETS: usize = 1_024;
/// Most bytes of a request's headers after decompression, over all of its frames (CVE-2024-27316).
const HEADER_LIST_BYTES: u32 = 16 * 1024;
/// Most bytes of the header compression table that a client may fill.
const HEADER_TABLE_BYTES: u32 = 4 * 1024;
/// Most bytes of a frame. A frame is read whole.
const FRAME_BYTES: u32 = 16 * 1024;
/// Most bytes of a stream, and of a connection, that a client may send before they are read. The
/// window does not grow.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// Most bytes of one answer that hyper buffers. The rest waits in the response body, where
/// `traffic/` counts it.
const SEND_BYTES: usize = 64 * 1024;
/// A connection that is silent for this long is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// A connection that does not answer a ping within this time is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until `stop` is cancelled, then until the last connection has ended.
pub(crate) async fn serve(
    connections: impl Stream<Item = Connection>,
    (services, auth, traffic): (Dispatcher, Authenticator, TrafficLimits),
    max_age: MaxConnectionAge,
    stop: CancellationToken,
) {
    let layered_services = layer_services(services, auth, traffic);
    let (http2, open_connections) = (builder(), TaskTracker::new());
    let mut connections = std::pin::pin!(connections);
    while let Some(Some(connection)) = stop.run_until_cancelled(connections.next()).await {
        let (peer, close, layered_services) = (
            connection.peer(),
            connection.close_token(),
            layered_services.clone(),
        );
        let calls = service_fn(move |mut request: Request<Incoming>| {
            // Count the stream here, not in the async block: the block of a later request may be
            // polled first.
            let stream = peer.slot.begin_stream();
            request.extensions_mut().insert(peer.clone());
            let answered = layered_services.clone().oneshot(request);
            async move {
                answered
                    .await
                    .map(|answer| answer.map(|body| body.with_stream(stream)))
            }
        });
        let serving = http2.serve_connection(TokioIo::new(connection), calls);
        open_connections.spawn(max_age.serve(
            serving,
            hyper::server::conn::http2::Connection::graceful_shutdown,
            close,
            stop.clone(),
        ));
    }
    open_connections.close();
    open_connections.wait().await;
}

/// All services behind their layers, outermost first: traffic limits; reasons for requests that
/// tonic cannot decode; answers encoded once, large events of watches sent in pieces;
/// authentication.
pub(crate) type LayeredServices =
    TrafficService<MapResponseBody<MapResponseBody<AuthService<Dispatcher>>>, Body>;
/// A service whose responses are mapped.
type MapResponseBody<S> = MapResponse<S, fn(Response<Body>) -> Response<Body>>;

/// Wraps the services in their layers, outermost first.
pub(crate) fn layer_services(
    services: Dispatcher,
    auth: Authenticator,
    traffic: TrafficLimits,
) -> LayeredServices {
    ServiceBuilder::new()
        .layer(TrafficLayer {
            limits: traffic,
            refuse: |failure| match failure {
                Failure::Overloaded => status::overloaded_answer(),
                failure => Status::from(failure).into_http(),
            },
            truncate: |failure| Ok(Frame::trailers(trailers(failure))),
        })
        .map_response(
            malformed_requests::explain_decode_error as fn(Response<Body>) -> Response<Body>,
        )
        .map_response(
            (|answer| encoded_response::replace_body(watch::split_body(answer)))
                as fn(Response<Body>) -> Response<Body>,
        )
        .layer(AuthLayer(auth))
        .service(services)
}

/// The trailers of an answer that is cut short by a failure.
fn trailers(failure: Failure) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // Cannot fail: our messages and details are valid header values.
    let _ = Status::from(failure).add_header(&mut trailers);
    trailers
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
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

/// All services. Compression is not enabled, so tonic refuses compressed requests.
pub(crate) fn build_services(
    state: ServerState,
    reflection: bool,
    health: HealthServer<impl Health>,
) -> Result<Dispatcher, ServerError> {
    anneal_proto::codec::prepare();
    let mut others = Routes::new(health);
    if reflection {
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(anneal_proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .map_err(|error| ServerError::Serving(error.into()))?;
        others = others.add_service(reflection);
    }
    let call_limit = state.call_limit.clone();
    let services = Arc::new(GrpcServices {
        state,
        encodes_answers: true,
    });
    macro_rules! service {
        ($server:ident) => {
            $server::from_arc(Arc::clone(&services))
                .max_decoding_message_size(REQUEST_BYTES + FRAMING_BYTES)
                .max_encoding_message_size(RESPONSE_BYTES)
        };
    }
    Ok(Dispatcher::new(Services {
        conversations: service!(ConversationServiceServer),
        messages: service!(MessageServiceServer),
        contexts: service!(ContextServiceServer),
        chats: service!(ChatServiceServer),
        erasures: service!(ErasureServiceServer),
        operators: service!(OperatorServiceServer),
        others: others.prepare(),
        call_limit,
    }))
}
