//! Middleware that refuses requests before an endpoint sees them: requests during shutdown,
//! requests for `/metrics` without the operator verb, and, where callers need no credential,
//! requests with a Host name that a web page may have pointed at this server.

use anneal_core::caller::Verb;
use axum::{
    extract::{Request, State},
    http::{StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::{allowed_hosts::AllowedHosts, problem::Problem, state::HttpState};
use crate::{audit, auth::Authenticated, failure::Failure};

/// Refuses new requests once the server is shutting down.
pub(super) async fn refuse_when_closing(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> Response {
    if state.closing.is_cancelled() {
        return Problem::from(Failure::ServerStopping).into_response();
    }
    next.run(request).await
}

/// Requires the operator verb for `/metrics`, whose figures cover all tenants. Health probes stay
/// open to everybody.
pub(super) async fn require_operator_for_metrics(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> Response {
    if request.uri().path() == "/metrics" {
        let refused = match state
            .auth
            .authenticate(request.headers(), request.extensions())
            .await
        {
            Ok(authenticated) if authenticated.caller.may(Verb::Operator) => None,
            Ok(Authenticated {
                caller, identity, ..
            }) => {
                audit::log_missing_verb(caller.tenant(), &identity, "metrics", Verb::Operator);
                Some(Failure::VerbMissing(Verb::Operator))
            }
            Err(failure) => Some(failure),
        };
        if let Some(failure) = refused {
            return Problem::from(failure).into_response();
        }
    }
    next.run(request).await
}

/// Refuses host names that a web page could have pointed at this server (DNS rebinding). Without
/// authentication such a page would act in the name of everybody who opens it.
pub(super) async fn require_allowed_host(
    State(hosts): State<AllowedHosts>,
    request: Request,
    next: Next,
) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    // An authority in the request line takes precedence over the header (RFC 9112, 3.2.2).
    let authority = request.uri().authority().map(Authority::as_str);
    if !authority.or(host).is_some_and(|name| hosts.allows(name)) {
        return Problem::malformed(StatusCode::MISDIRECTED_REQUEST, hosts.refusal())
            .into_response();
    }
    next.run(request).await
}
