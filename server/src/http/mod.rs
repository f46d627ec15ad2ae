//! HTTP/JSON: a translation over the RPCs, so that credentials, limits, deadlines, spans and figures are those of gRPC.
//! One file per endpoint. Every refusal is a problem (RFC 9457) with the reason that gRPC gives.

mod chat;
mod cors;
mod delete_session;
mod door;
mod events;
mod few;
mod get_session;
mod json;
mod list_sessions;
mod live;
mod message;
mod names;
mod openapi;
mod patch_session;
mod problem;
mod serve;
mod session;
mod sse;

use std::net::SocketAddr;

use anneal_core::limits::REQUEST_BYTES;
use axum::{
    Router,
    body::Body,
    extract::DefaultBodyLimit,
    http::StatusCode,
    middleware,
    response::{IntoResponse as _, Response},
    routing::{self, MethodRouter},
};

use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;

pub use cors::CorsOrigins;
pub(crate) use door::Door;
pub(crate) use serve::serve;

/// An event's id as it would be told again; None: this server has given no such id.
#[cfg(feature = "fuzzing")]
pub(crate) fn event_id(id: &[u8]) -> Option<String> {
    live::Place::parse(id).map(|place| place.id())
}

use self::{names::Names, problem::Problem};
use crate::{
    settings::ServerSettings,
    status::Failure,
    traffic::{Traffic, TrafficLayer},
};

/// A route: its path, and who answers which of its methods.
type Route = (&'static str, fn() -> MethodRouter<Door>);

/// Every route of the API; `openapi.rs` describes each.
const ROUTES: [Route; 5] = [
    ("/api/agents/{id}/chat", || routing::post(chat::chat)),
    ("/api/agents/{id}/sessions", || routing::get(list_sessions::list_sessions)),
    ("/api/agents/{id}/sessions/{sid}", || {
        routing::get(get_session::get_session)
            .patch(patch_session::patch_session)
            .delete(delete_session::delete_session)
    }),
    ("/api/agents/{id}/sessions/{sid}/events", || routing::get(events::events)),
    ("/openapi.json", || routing::get(openapi::document)),
];

/// The API, and beside it the probes where they have no port of their own; what is neither is a problem too.
pub(crate) fn router(
    probes: Option<Router>,
    door: Door,
    traffic: Traffic,
    (address, settings): (SocketAddr, &ServerSettings),
) -> Router {
    let is_open = door.auth.is_open();
    let mut api = Router::new();
    for (path, answering) in ROUTES {
        api = api.route(path, answering());
    }
    // Before the layers, which hold for whatever stands when they are put on.
    api = api.method_not_allowed_fallback(no_such_method);
    if is_open {
        api =
            api.layer(middleware::from_fn_with_state(Names::new(address, &settings.http_hosts), door::only_own_names));
    }
    api = api.layer(DefaultBodyLimit::max(REQUEST_BYTES));
    api = api.layer(middleware::from_fn_with_state(door.clone(), door::only_while_open));
    let mut api = guarded(api.with_state(door.clone()).fallback(no_such_path));
    // Over everything else, so that a page of a named origin can read every refusal. What the port serves beside the API is
    // for no page.
    if let Some(allowed) = cors::layer(&settings.cors_origins) {
        api = api.layer(allowed);
    }
    if let Some(probes) = probes {
        let probes = probes.method_not_allowed_fallback(no_such_method);
        api = api.merge(guarded(probes.layer(middleware::from_fn_with_state(door, door::figures_for_operators))));
    }
    // What is cut short must not look as if it were whole.
    let counted = TrafficLayer {
        traffic,
        refuse: |failure| Problem::from(failure).into_response(),
        cut: |failure| Err(axum::Error::new(tonic::Status::from(failure))),
    };
    let whole = ServiceBuilder::new()
        .map_response(|answer: http::Response<_>| anneal_process::http::forbid_sniffing(answer.map(Body::new)))
        .layer(counted)
        .map_request(|request: http::Request<_>| request.map(Body::new));
    api.layer(whole)
}

/// The same, but a bug in one answer does not take its connection away.
fn guarded(router: Router) -> Router {
    router.layer(CatchPanicLayer::custom(|_| -> Response { Problem::from(Failure::Panicked).into_response() }))
}

async fn no_such_path() -> Problem {
    Problem::malformed(StatusCode::NOT_FOUND, "there is no such path; GET /openapi.json lists them")
}

async fn no_such_method() -> Problem {
    Problem::malformed(
        StatusCode::METHOD_NOT_ALLOWED,
        "the path does not take this method; the Allow header says which",
    )
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request, http::header};
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_panics_is_an_internal_problem() {
        async fn broken() {
            panic!("a bug")
        }
        let router = guarded(Router::new().route("/", routing::get(broken)));
        let asked = Request::new(Body::empty());
        let answered = router.oneshot(asked).await.expect("routers do not fail");
        assert_eq!(answered.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answered.headers()[header::CONTENT_TYPE], "application/problem+json");
        let body = axum::body::to_bytes(answered.into_body(), 4_096).await.expect("is whole");
        assert!(String::from_utf8_lossy(&body).contains(r#""reason":"INTERNAL""#), "{body:?}");
    }
}
