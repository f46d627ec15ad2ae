//! The HTTP/JSON API. Its endpoints call the RPCs, so credentials, limits, deadlines, spans and
//! metrics are those of gRPC. Every refusal is a problem (RFC 9457) with the reason that gRPC would
//! give.
//!
//! - `alternatives`, `cancel_turn`, `chat`, `delete_message`, `delete_session`, `events`, `fork`,
//!   `get_session`, `list_sessions`, `openapi`, `patch_message`, `patch_session`, `restore`,
//!   `rewind`: the endpoints, one file each (`alternatives` has two)
//! - `chat_body`: the body of a turn
//! - `caller`: authentication, and the verbs that an endpoint needs
//! - `guards`: middleware that refuses requests
//! - `allowed_hosts`: the Host names that are accepted
//! - `cors`: CORS headers
//! - `extractors`: paths, queries and bodies of requests
//! - `bounded_collections`: lists and maps of a request, with a maximum size
//! - `json`: JSON answers
//! - `message`: a message in an answer
//! - `new_block`: blocks of a message in a request; `new_tool_results`: results of tool calls
//! - `chat_options`: options of turns, in requests and in answers
//! - `session`: a session in an answer
//! - `change`: a change of messages in an answer
//! - `problem`: the answer to a request that is refused or fails
//! - `sse`: answers as server-sent events
//! - `resumable_turns`: turns that go on without their reader, and readers that come back
//! - `serve`: serves HTTP/1.1 on connections
//! - `state`: what all endpoints share; `web_state`: the page's part of it
//! - `openai`: the doors of OpenAI's protocol; `ui`: the door of the AI SDK; `web`: the page

mod allowed_hosts;
mod alternatives;
mod bounded_collections;
mod caller;
mod cancel_turn;
mod change;
mod chat;
mod chat_body;
mod chat_options;
mod cors;
mod delete_message;
mod delete_session;
mod events;
mod extractors;
mod fork;
mod get_session;
mod guards;
mod json;
mod list_sessions;
mod message;
mod new_block;
mod new_tool_results;
mod openai;
mod openapi;
mod patch_message;
mod patch_session;
mod problem;
mod restore;
mod resumable_turns;
mod rewind;
mod serve;
mod session;
mod sse;
mod state;
mod ui;
mod web;
mod web_state;

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

pub(crate) use serve::serve;
pub(crate) use state::HttpState;
pub(crate) use web_state::WebState;

use self::{allowed_hosts::AllowedHosts, problem::Problem};
use crate::{
    failure::Failure,
    settings::ServerSettings,
    traffic::{TrafficLayer, TrafficLimits},
};

/// Parses the id of a turn's event and encodes it again. None: the id is not valid.
#[cfg(feature = "fuzzing")]
pub(crate) fn event_id(id: &[u8]) -> Option<String> {
    resumable_turns::ResumePoint::parse(id).map(|point| point.event_id())
}

/// The paths of the page's routes, for tests that must know all of them.
pub fn web_routes() -> impl Iterator<Item = &'static str> {
    web::routes().map(|(path, _)| *path)
}

/// A route: its path, and the handler of each method.
type Route = (&'static str, fn() -> MethodRouter<HttpState>);

/// The routes of this project's own API. `openapi.rs` describes each.
const ROUTES: [Route; 12] = [
    ("/api/agents/{id}/chat", || routing::post(chat::chat)),
    ("/api/agents/{id}/sessions", || {
        routing::get(list_sessions::list_sessions)
    }),
    ("/api/agents/{id}/sessions/{sid}", || {
        routing::get(get_session::get_session)
            .patch(patch_session::patch_session)
            .delete(delete_session::delete_session)
    }),
    ("/api/agents/{id}/sessions/{sid}/events", || {
        routing::get(events::events)
    }),
    ("/api/agents/{id}/sessions/{sid}/fork", || {
        routing::post(fork::fork)
    }),
    ("/api/agents/{id}/sessions/{sid}/messages/{mid}", || {
        routing::delete(delete_message::delete_message).patch(patch_message::patch_message)
    }),
    (
        "/api/agents/{id}/sessions/{sid}/messages/{mid}/alternatives",
        || routing::get(alternatives::list_alternatives),
    ),
    (
        "/api/agents/{id}/sessions/{sid}/messages/{mid}/alternatives/{n}/choose",
        || routing::post(alternatives::choose_alternative),
    ),
    ("/api/agents/{id}/sessions/{sid}/restore", || {
        routing::post(restore::restore)
    }),
    ("/api/agents/{id}/sessions/{sid}/rewind", || {
        routing::post(rewind::rewind)
    }),
    ("/api/agents/{id}/sessions/{sid}/turn", || {
        routing::delete(cancel_turn::cancel_turn)
    }),
    ("/openapi.json", || routing::get(openapi::document)),
];

/// The router of the API and of the probes. `probes` is None if they have a port of their own.
/// Other paths are answered with a problem.
pub(crate) fn router(
    probes: Option<Router>,
    state: HttpState,
    traffic: TrafficLimits,
    (address, settings): (SocketAddr, &ServerSettings),
) -> Router {
    let mut api = Router::new();
    for (path, methods) in ROUTES.iter().chain(openai::routes()).chain(ui::ROUTES) {
        api = api.route(path, methods());
    }
    // Must come before the layers: a layer covers only the handlers that exist when it is added.
    api = api.method_not_allowed_fallback(no_such_method);
    let hosts = state
        .auth
        .accepts_anyone()
        .then(|| AllowedHosts::new(address, &settings.http_hosts));
    let api = api.layer(middleware::from_fn(openai::add_rate_limits));
    let api = with_guards(api, hosts.as_ref(), &state);
    let mut api = catch_panics(api.with_state(state.clone()).fallback(no_such_path));
    // Outside the layers above, so that a page of an allowed origin can read their refusals. Probes
    // get no CORS headers: no page needs them.
    if let Some(cors_layer) = cors::layer(&settings.cors_origins) {
        api = api.layer(cors_layer);
    }
    // After the CORS headers, of which pages get none.
    let has_page = state.web.is_on;
    if has_page {
        let pages = with_guards(web::router(&state), hosts.as_ref(), &state);
        api = api.merge(catch_panics(pages.with_state(state.clone())));
    }
    if let Some(probes) = probes {
        let probes = probes.method_not_allowed_fallback(no_such_method);
        api = api.merge(catch_panics(probes.layer(middleware::from_fn_with_state(
            state,
            guards::require_operator_for_metrics,
        ))));
    }
    // An answer that is cut short must not look complete, so it ends with an error.
    let traffic_layer = TrafficLayer {
        limits: traffic,
        refuse: |failure| Problem::from(failure).into_response(),
        truncate: |failure| Err(axum::Error::new(tonic::Status::from(failure))),
    };
    let outer_layers = ServiceBuilder::new()
        .map_response(|answer: http::Response<_>| {
            anneal_process::http::forbid_sniffing(answer.map(Body::new))
        })
        .layer(traffic_layer)
        .map_request(|request: http::Request<_>| request.map(Body::new));
    let api = api
        .layer(outer_layers)
        .layer(middleware::from_fn(openai::errors::shape));
    if has_page {
        api.layer(middleware::from_fn(web::shape))
    } else {
        api
    }
}

/// The routes behind the guards that refuse requests, and the limit of their bodies. `hosts`: the
/// accepted Host names; None: any.
fn with_guards(
    mut routes: Router<HttpState>,
    hosts: Option<&AllowedHosts>,
    state: &HttpState,
) -> Router<HttpState> {
    if let Some(hosts) = hosts {
        routes = routes.layer(middleware::from_fn_with_state(
            hosts.clone(),
            guards::require_allowed_host,
        ));
    }
    routes
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .layer(middleware::from_fn_with_state(
            state.clone(),
            guards::refuse_when_closing,
        ))
}

/// Turns a panic of a handler into an internal problem, so that the connection stays open.
fn catch_panics(router: Router) -> Router {
    router.layer(CatchPanicLayer::custom(|_| -> Response {
        Problem::from(Failure::Panicked).into_response()
    }))
}

async fn no_such_path() -> Problem {
    Problem::malformed(
        StatusCode::NOT_FOUND,
        "there is no such path; GET /openapi.json lists the paths",
    )
}

async fn no_such_method() -> Problem {
    Problem::malformed(
        StatusCode::METHOD_NOT_ALLOWED,
        "the path does not allow this method; the Allow header lists those that it allows",
    )
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, extract::Request, http::header};
    use tower::ServiceExt as _;

    use super::*;

    /// The tests of security call what the documentation lists.
    #[test]
    fn every_route_of_another_protocol_is_documented() {
        let pages = [
            include_str!("../../../docs/openai.md"),
            include_str!("../../../docs/ai-sdk.md"),
        ];
        for (path, _) in openai::routes().chain(ui::ROUTES) {
            let span = format!(" {}`", path.replace('*', ""));
            assert!(pages.iter().any(|page| page.contains(&span)), "{path}");
        }
    }

    #[tokio::test]
    async fn a_panicking_handler_answers_with_an_internal_problem() {
        async fn broken() {
            panic!("a bug")
        }
        let router = catch_panics(Router::new().route("/", routing::get(broken)));
        let request = Request::new(Body::empty());
        let response = router.oneshot(request).await.expect("routers do not fail");
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/problem+json"
        );
        let body = axum::body::to_bytes(response.into_body(), 4_096)
            .await
            .expect("is whole");
        assert!(
            String::from_utf8_lossy(&body).contains(r#""reason":"INTERNAL""#),
            "{body:?}"
        );
    }
}
