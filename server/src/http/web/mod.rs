//! The page: HTML for people. Its routes call the RPCs, as those of the API do, and the crate
//! `anneal-web` renders their answers. A person signs in with an API key or a token.
//!
//! - `page`: what all pages share: the caller, the frame, the kinds of answers
//! - `form`, `csrf`: forms, and how others' forms are refused
//! - `cookie`: the cookie, which holds a session
//! - `sign_in`: sign-in and sign-out
//! - `assets`: the stylesheet and the scripts
//! - `operations`: the operator's page
//! - `error`: refusals; `headers`: headers of every answer
//! - `state`: what the routes of pages share

mod assets;
mod cookie;
mod csrf;
mod error;
mod form;
mod headers;
mod operations;
mod page;
mod sign_in;
mod state;

use axum::{Router, middleware, routing};
use tower_http::compression::{
    CompressionLayer,
    predicate::{Predicate, SizeAbove},
};

pub(super) use self::error::shape;
use self::page::WebRoute;
pub(crate) use self::state::WebState;
use super::state::HttpState;

/// Routes that belong to no page.
const ROUTES: &[WebRoute] = &[
    ("/", || routing::get(sign_in::first_page)),
    ("/sign-in", || {
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
    ROUTES.iter().chain(operations::ROUTES)
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
                   _: &axum::http::Extensions| {
        headers
            .get(axum::http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"))
    };
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
    use super::*;

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
}
