//! What stands before every endpoint: who asks, whether the door is open, and whether a browser was led here by another
//! name.

use std::sync::Arc;

use anneal_core::caller::{Caller, Verb};
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{Extensions, StatusCode, Uri, header, request::Parts, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;

use super::{live::Live, problem::Problem};
use crate::{auth::Auth, services::Services, status::Failure, traffic::Tab};

/// What endpoints share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Door {
    pub(super) services: Services,
    /// Who knows callers.
    pub(super) auth: Auth,
    /// Turns that run for readers over HTTP.
    pub(super) live: Arc<Live>,
    /// Cancelled when no new request is taken in.
    pub(super) closing: CancellationToken,
}

impl Door {
    /// A door to these services, until it closes.
    pub(crate) fn new(services: Services, auth: Auth, closing: CancellationToken) -> Self {
        Self { services, auth, live: Arc::default(), closing }
    }
}

/// Who asks: every call of one request is made in this name.
#[derive(Clone)]
pub(super) struct Visitor {
    pub(super) services: Services,
    pub(super) caller: Caller,
    metadata: MetadataMap,
    extensions: Extensions,
}

impl Visitor {
    /// A call of an RPC, as gRPC would have brought it.
    pub(super) fn request<T>(&self, message: T) -> tonic::Request<T> {
        tonic::Request::from_parts(self.metadata.clone(), self.extensions.clone(), message)
    }
}

impl FromRequestParts<Door> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<Self, Problem> {
        let (caller, proof) = door.auth.admit(&parts.headers, &parts.extensions).await?;
        let (metadata, mut extensions) = (MetadataMap::from_headers(parts.headers.clone()), Extensions::new());
        extensions.insert(caller);
        proof.map(|proof| extensions.insert(proof));
        parts.extensions.get::<Tab>().map(|tab| extensions.insert(tab.clone()));
        Ok(Self { services: door.services.clone(), caller, metadata, extensions })
    }
}

/// Refuses what comes once the server is stopping.
pub(super) async fn only_while_open(State(door): State<Door>, request: Request, next: Next) -> Response {
    if door.closing.is_cancelled() {
        return Problem::from(Failure::ServerStopping).into_response();
    }
    next.run(request).await
}

/// Refuses the process's figures to whoever may not see those of all tenants; whether it lives, everybody may ask.
pub(super) async fn figures_for_operators(State(door): State<Door>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/metrics" {
        let refused = match door.auth.admit(request.headers(), request.extensions()).await {
            Ok((caller, _)) if caller.may(Verb::Operator) => None,
            Ok(_) => Some(Failure::VerbMissing(Verb::Operator)),
            Err(failure) => Some(failure),
        };
        if let Some(failure) = refused {
            return Problem::from(failure).into_response();
        }
    }
    next.run(request).await
}

/// Refuses names that are not this machine's own: without authentication, a page whose name was pointed at loopback
/// (DNS rebinding) would otherwise speak for whoever looks at it.
pub(super) async fn only_loopback_names(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let named = |uri: &Uri| uri.authority().map(|authority| is_loopback(authority.as_str()));
    if !named(request.uri()).unwrap_or_else(|| host.is_some_and(is_loopback)) {
        let detail = "the Host is no name of this machine's loopback: localhost, 127.0.0.1 or [::1]";
        return Problem::malformed(StatusCode::MISDIRECTED_REQUEST, detail).into_response();
    }
    next.run(request).await
}

/// Whether `host[:port]` names loopback.
fn is_loopback(text: &str) -> bool {
    let Ok(authority) = text.parse::<Authority>() else { return false };
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_cannot_be_pointed_elsewhere_are_loopback() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.8.8.8", "[::1]:8080", "panel.localhost:80"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "[::2]", "a b"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
