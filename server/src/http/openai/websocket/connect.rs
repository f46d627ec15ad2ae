//! GET /v1/responses: the handshake of a WebSocket (RFC 6455).

use anneal_core::limits::REQUEST_BYTES;
use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, uri::Authority},
    response::{IntoResponse as _, Response},
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};
use tracing::debug;

use super::session::Session;
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs},
        openai::{errors::ApiError, responses},
        problem::Problem,
    },
    listen::Peer,
    poll_watchdog::{PollWatchdog, WatchedFuture},
    traffic::{Meter, MeteredIo, RequestAccounting},
    verbs::Rpc,
};

/// Bytes that are read at once.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// The RPCs of this endpoint. The verbs of `chat` are enough for the others that are called.
pub(super) struct ConnectSocket;

impl EndpointRpcs for ConnectSocket {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("chat")];
}

/// Opens a WebSocket.
pub(super) async fn connect(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<ConnectSocket>,
    mut request: Request,
) -> Result<Response, ApiError> {
    let accept = match accept_key(request.headers()) {
        Ok(accept) => accept,
        Err(refusal) => return Ok(*refusal),
    };
    let extensions = request.extensions_mut();
    let upgrade = extensions
        .remove::<OnUpgrade>()
        .ok_or_else(upgrade_required)?;
    let accounting = extensions.get::<RequestAccounting>().cloned();
    let meter = Meter::new(accounting.ok_or(Failure::Panicked)?);
    let slot = extensions.get::<Peer>().map(|peer| peer.slot.clone());
    let permit = responses::acquire_reader(&state, &http_caller)?;
    let turns = state.services.state.turns.clone();
    // A task of its own, which the server waits for when it stops.
    turns.spawn(WatchedFuture::new(
        PollWatchdog::for_task("websocket"),
        async move {
            let _permit = permit;
            let io = match upgrade.await {
                Ok(upgraded) => MeteredIo::new(TokioIo::new(upgraded), meter.clone()),
                Err(error) => return debug!("a connection did not become a WebSocket: {error}"),
            };
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config())).await;
            Box::pin(Session::new(state, http_caller, meter, slot).serve(socket)).await;
        },
    ));
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response())
}

/// The limits of frames and messages. Nothing is sent before the last message was written.
fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(REQUEST_BYTES))
        .max_frame_size(Some(REQUEST_BYTES))
}

/// Checks a handshake. Returns the value of `Sec-WebSocket-Accept`.
fn accept_key(headers: &HeaderMap) -> Result<HeaderValue, Box<Response>> {
    let names = |name, expected: &str| {
        let values = headers.get_all(name).iter();
        let mut tokens = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(',').map(str::trim));
        tokens.any(|token| token.eq_ignore_ascii_case(expected))
    };
    let is_upgrade = names(header::CONNECTION, "upgrade") && names(header::UPGRADE, "websocket");
    if !is_upgrade || !names(header::SEC_WEBSOCKET_VERSION, "13") {
        let mut refusal = upgrade_required().into_response();
        let refused = refusal.headers_mut();
        refused.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        refused.insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
        return Err(Box::new(refusal));
    }
    let invalid = |name: &str, message: &str| {
        Box::new(ApiError::invalid(name, Some("invalid_value"), message).into_response())
    };
    if !is_of_own_origin(headers) {
        let message = "A page of another origin cannot open a WebSocket here.";
        return Err(invalid("Origin", message));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let key = key.ok_or_else(|| invalid("Sec-WebSocket-Key", "The header is missing."))?;
    HeaderValue::try_from(derive_accept_key(key.as_bytes()))
        .map_err(|_| invalid("Sec-WebSocket-Key", "The header is not valid."))
}

fn upgrade_required() -> ApiError {
    let detail =
        "this path upgrades to a WebSocket (version 13); POST creates a response over HTTP";
    Problem::malformed(StatusCode::UPGRADE_REQUIRED, detail).into()
}

/// Whether no page of another origin asks. Browsers send the origin of the page, and do not ask
/// beforehand whether the page may connect.
fn is_of_own_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return true;
    };
    let (origin, host) = (origin.to_str().ok(), headers.get(header::HOST));
    let authority = origin.and_then(|origin| origin.split_once("://"));
    let authority = authority.and_then(|(_, authority)| authority.parse::<Authority>().ok());
    let host = host.and_then(|host| host.to_str().ok());
    matches!((authority, host), (Some(authority), Some(host)) if authority == *host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDSHAKE: [(&str, &str); 5] = [
        ("host", "a.example:8080"),
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    /// The answer's key, or the status of the refusal, with these headers beside the handshake's.
    fn answer(without: &str, more: &[(&'static str, &'static str)]) -> Result<String, u16> {
        let headers = HANDSHAKE.iter().filter(|(name, _)| *name != without);
        let headers = headers.chain(more).map(|(name, value)| {
            let name = header::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let key = accept_key(&headers.collect());
        key.map(|key| key.to_str().unwrap_or_default().to_owned())
            .map_err(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn a_handshake_is_accepted_with_the_key_of_the_specification() {
        let accepted = Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned());
        assert_eq!(answer("", &[]), accepted);
        assert_eq!(answer("", &[("origin", "http://a.example:8080")]), accepted);
    }

    #[test]
    fn requests_without_an_upgrade_and_pages_of_other_origins_are_refused() {
        for missing in ["connection", "upgrade", "sec-websocket-version"] {
            assert_eq!(answer(missing, &[]), Err(426), "{missing}");
        }
        assert_eq!(answer("sec-websocket-key", &[]), Err(400));
        for origin in ["http://b.example", "http://a.example", "null"] {
            assert_eq!(answer("", &[("origin", origin)]), Err(400), "{origin}");
        }
    }
}
