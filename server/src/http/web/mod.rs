//! The page: HTML for people. Its routes call the RPCs, as those of the API do, and the crate
//! `anneal-web` renders their answers. A person signs in with an API key or a token.
//!
//! - `page`: what all pages share: the caller, the frame, the kinds of answers
//! - `form`, `csrf`: forms, and how others' forms are refused
//! - `cookie`: the cookies: one holds a session, one what forms of somebody without a session need
//! - `sign_in`: sign-in and sign-out
//! - `assets`: the stylesheet and the scripts
//! - `operations`: the operator's page
//! - `error`: why a page cannot be shown; `refusals`: how refusals are shown; `headers`: headers of
//!   every answer
//! - `conversations`: the list, and a conversation to talk in
//! - `xray`: a conversation's context, and what other settings would do to it

mod assets;
mod conversations;
mod cookie;
mod csrf;
mod error;
mod form;
mod headers;
mod operations;
mod page;
mod refusals;
mod sign_in;
mod xray;

use axum::{Router, middleware, routing};
use tower_http::compression::{
    CompressionLayer,
    predicate::{Predicate, SizeAbove},
};

use self::page::WebRoute;
pub(super) use self::refusals::shape;
use super::state::HttpState;

/// Routes that belong to no page.
const ROUTES: &[WebRoute] = &[
    ("/", || routing::get(sign_in::first_page)),
    (page::SIGN_IN_PATH, || {
        routing::get(sign_in::show_form).post(sign_in::sign_in)
    }),
    ("/sign-out", || routing::post(sign_in::sign_out)),
    ("/assets/{digest}/{name}", || routing::get(assets::asset)),
];

/// The first segments of the paths of pages.
const SEGMENTS: [&str; 6] = [
    "",
    "assets",
    "conversations",
    "operations",
    "sign-in",
    "sign-out",
];

/// Every route of the page.
pub(super) fn routes() -> impl Iterator<Item = &'static WebRoute> {
    ROUTES
        .iter()
        .chain(conversations::ROUTES)
        .chain(xray::ROUTES)
        .chain(operations::ROUTES)
}

/// Whether this is the path of a page.
fn is_page_path(path: &str) -> bool {
    let segment = path.trim_start_matches('/').split('/').next();
    segment.is_some_and(|segment| SEGMENTS.contains(&segment))
}

/// The router of the page.
pub(super) fn router(state: &HttpState) -> Router<HttpState> {
    let mut router = Router::new();
    for (path, methods) in routes() {
        router = router.route(path, methods());
    }
    // Server-sent events must not wait for a block of the compression, and assets are compressed.
    let is_html = |_: axum::http::StatusCode,
                   _: axum::http::Version,
                   headers: &axum::http::HeaderMap,
                   _: &axum::http::Extensions| { page::is_html(headers) };
    router
        .method_not_allowed_fallback(super::no_such_method)
        .layer(middleware::from_fn_with_state(
            state.clone(),
            cookie::accept_cookie,
        ))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(1_024).and(is_html)))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use anneal_core::policy::SessionSettings;
    use anneal_store::{AppendSettings, Store, StoreSettings};
    use axum::{
        body::Body,
        http::{Request, StatusCode, header},
    };
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        auth::{Authenticator, SessionSecret},
        grpc::services::GrpcServices,
        http::WebState,
        limits::concurrency::TenantShare,
        settings::{AuthSettings, CurrentSettings, LimitSettings, ServerSettings, WebSettings},
        state::ServerState,
        traffic::TrafficLimits,
    };

    #[test]
    fn every_route_is_below_a_segment_of_the_page() {
        for (path, _) in routes() {
            assert!(is_page_path(path), "{path}");
        }
        for path in [
            "/api/agents/a/chat",
            "/v1/models",
            "/metrics",
            "/healthz",
            "/openapi.json",
        ] {
            assert!(!is_page_path(path), "{path}");
        }
    }

    /// The state of a server that accepts anyone and has no database.
    fn state() -> HttpState {
        let settings = StoreSettings {
            url: "postgres://nobody@127.0.0.1:1/none".into(),
            ..StoreSettings::default()
        };
        let session = SessionSettings::default();
        let store = Store::new(settings, AppendSettings::default(), session);
        let store = store.expect("the URL can be read");
        let web = WebSettings::default();
        let auth = Authenticator::new(&AuthSettings::default(), &web, &store);
        let (server, current) = (ServerSettings::default(), CurrentSettings::default());
        let traffic = TrafficLimits::new(current.clone(), true);
        let services = GrpcServices {
            state: ServerState::new(store, &server, current, traffic, TenantShare::Whole),
            encodes_answers: false,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        HttpState::new(
            services,
            auth.expect("without credentials no file is read"),
            &LimitSettings::default(),
            WebState::new(&web, true, (address, false), None),
            CancellationToken::new(),
        )
    }

    /// A path that the route matches.
    fn example(route: &str) -> String {
        let segments = route.split('/').map(|segment| match segment {
            "{id}" | "{request}" => "019a9f0e-0000-7000-8000-000000000000",
            segment if segment.starts_with('{') => "1",
            segment => segment,
        });
        segments.collect::<Vec<_>>().join("/")
    }

    #[tokio::test]
    async fn every_route_refuses_a_form_without_a_token_or_from_another_site() {
        let state = state();
        let router = router(&state).with_state(state);
        let secret = SessionSecret::from_bytes([1; 32]);
        let token = csrf::token(&secret);
        let mut refused = 0;
        for (path, _) in routes() {
            for method in ["POST", "PUT", "PATCH", "DELETE"] {
                for (site, body) in [
                    ("same-origin", String::new()),
                    ("cross-site", format!("csrf={token}")),
                ] {
                    let request = Request::builder()
                        .method(method)
                        .uri(example(path))
                        .header(
                            header::COOKIE,
                            format!("anneal-80-forms={}", secret.encode()),
                        )
                        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                        .header(header::CONTENT_LENGTH, body.len())
                        .header("sec-fetch-site", site)
                        .body(Body::from(body))
                        .expect("is a request");
                    let answer = router.clone().oneshot(request).await;
                    let status = answer.expect("routers do not fail").status();
                    if status == StatusCode::METHOD_NOT_ALLOWED {
                        continue;
                    }
                    assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path} {site}");
                    refused += 1;
                }
            }
        }
        assert!(refused >= 4, "{refused} forms were refused");
    }
}
