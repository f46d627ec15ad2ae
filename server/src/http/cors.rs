//! CORS headers: a web page may read answers only if its origin is in `server.cors_origins`.

use std::time::Duration;

use axum::http::{HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::{openai, sse::LAST_EVENT_ID};
use crate::cors_origins::{AllowedOrigins, CorsOrigins};

/// How long a browser may cache the answer to a preflight request.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_mins(10);

/// The layer that allows these origins. None: no CORS headers are sent, so browsers refuse pages of
/// other origins.
pub(super) fn layer(origins: &CorsOrigins) -> Option<CorsLayer> {
    let allowed = match origins.allowed() {
        AllowedOrigins::None => return None,
        AllowedOrigins::Any => AllowOrigin::any(),
        AllowedOrigins::List(origins) => AllowOrigin::list(
            origins
                .iter()
                .filter_map(|origin| HeaderValue::from_str(origin).ok()),
        ),
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_MATCH,
            LAST_EVENT_ID,
            openai::IDEMPOTENCY_KEY,
            openai::CONVERSATION,
        ])
        .expose_headers([
            header::ETAG,
            header::RETRY_AFTER,
            openai::RETRY_AFTER_MS,
            openai::REQUEST_ID,
            openai::CONVERSATION,
            openai::IGNORED_PARAMETERS,
            openai::RATE_LIMIT,
            openai::RATE_REMAINING,
            openai::RATE_RESET,
        ])
        .max_age(PREFLIGHT_MAX_AGE);
    Some(layer)
}
