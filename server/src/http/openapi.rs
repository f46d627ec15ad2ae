//! GET /openapi.json: the description of the API, generated from the handlers.

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use utoipa::OpenApi;

use super::{
    alternatives, cancel_turn, chat, delete_message, delete_session, events,
    extractors::{NoParams, QueryParams},
    fork, get_session, list_sessions, patch_message, patch_session,
    problem::Problem,
    restore, rewind,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "anneal",
        description = "Conversations of LLM applications over HTTP. Every refusal is a problem (RFC 9457). The API \
                       refuses fields and parameters that it does not know; clients should ignore fields of answers that \
                       they do not know."
    ),
    paths(
        chat::chat,
        list_sessions::list_sessions,
        get_session::get_session,
        patch_session::patch_session,
        delete_session::delete_session,
        events::events,
        fork::fork,
        delete_message::delete_message,
        patch_message::patch_message,
        alternatives::list_alternatives,
        alternatives::choose_alternative,
        rewind::rewind,
        restore::restore,
        cancel_turn::cancel_turn,
        document,
        health::healthz,
        health::readyz,
        health::metrics
    ),
    components(schemas(Problem))
)]
struct Description;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    Description::openapi()
        .to_json()
        .expect("a description can be written")
});

/// The OpenAPI description of this API.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, content_type = "application/json")))]
pub(super) async fn document(_: QueryParams<NoParams>) -> Response {
    (
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )],
        DOCUMENT.as_str(),
    )
        .into_response()
}

/// Descriptions of the endpoints that every process has beside the API (`process/src/http.rs`).
#[expect(dead_code, reason = "only their descriptions are used")]
mod health {
    /// 200 while the process runs.
    #[utoipa::path(get, path = "/healthz", responses((status = 200, body = String, content_type = "text/plain")))]
    fn healthz() {}

    /// 200 when the process is ready, else 503.
    #[utoipa::path(
        get,
        path = "/readyz",
        responses(
            (status = 200, body = String, content_type = "text/plain"),
            (status = 503, body = String, content_type = "text/plain")
        )
    )]
    fn readyz() {}

    /// Metrics of the process, for Prometheus.
    #[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "text/plain")))]
    fn metrics() {}
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::ROUTES;

    #[test]
    fn every_route_is_described() {
        let described: BTreeSet<String> = Description::openapi().paths.paths.into_keys().collect();
        let probes_and_metrics = ["/healthz", "/readyz", "/metrics"];
        let routes: BTreeSet<String> = ROUTES
            .iter()
            .map(|(path, _)| *path)
            .chain(probes_and_metrics)
            .map(str::to_owned)
            .collect();
        assert_eq!(described, routes);
    }
}
