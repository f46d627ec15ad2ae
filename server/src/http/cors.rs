//! Pages of other origins: none may ask, unless the operator names them.

use std::time::Duration;

use axum::http::{HeaderValue, Method, Uri, header};
use serde::{Deserialize, Serialize};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::sse::LAST_EVENT_ID;

/// The origins whose pages may ask; empty: none. `*` alone: all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct CorsOrigins(Vec<String>);

impl From<CorsOrigins> for Vec<String> {
    fn from(origins: CorsOrigins) -> Self {
        origins.0
    }
}

impl TryFrom<Vec<String>> for CorsOrigins {
    type Error = OriginError;

    fn try_from(origins: Vec<String>) -> Result<Self, OriginError> {
        if origins.len() > 1 && origins.iter().any(|origin| origin == ANY) {
            return Err(OriginError::NotAlone);
        }
        match origins.iter().find(|origin| *origin != ANY && !is_origin(origin)) {
            Some(broken) => Err(OriginError::Broken(broken.clone())),
            None => Ok(Self(origins)),
        }
    }
}

const ANY: &str = "*";

/// Why a list of origins cannot hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// It is no origin.
    #[error("{0:?} is no origin: write scheme://host or scheme://host:port, as a browser's Origin header says it")]
    Broken(String),
    /// Everybody, and somebody.
    #[error("\"*\" allows every origin, and stands alone")]
    NotAlone,
}

/// How long a browser may remember what was allowed.
const REMEMBERED: Duration = Duration::from_mins(10);

/// What tells browsers so; None: nothing is said, and browsers keep others out.
pub(super) fn layer(origins: &CorsOrigins) -> Option<CorsLayer> {
    let allowed = match origins.0.as_slice() {
        [] => return None,
        [one] if one == ANY => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::PATCH, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, header::IF_MATCH, LAST_EVENT_ID])
        .expose_headers([header::ETAG, header::RETRY_AFTER])
        .max_age(REMEMBERED);
    Some(layer)
}

/// Whether a browser could send it: a scheme, a host, perhaps a port, in lower case, and nothing else.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let Some((scheme, authority)) = uri.scheme().zip(uri.authority()) else { return false };
    text == text.to_ascii_lowercase() && !authority.as_str().contains('@') && text == format!("{scheme}://{authority}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(origins: &[&str]) -> Result<CorsOrigins, OriginError> {
        CorsOrigins::try_from(origins.iter().map(|origin| (*origin).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn origins_are_those_that_browsers_send() {
        for good in ["https://panel.example", "http://localhost:5173", "http://[::1]:80", "*"] {
            assert!(parsed(&[good]).is_ok(), "{good}");
        }
        for broken in
            ["", "panel.example", "https://panel.example/", "https://Panel.example", "https://u@p.example", "null"]
        {
            assert_eq!(parsed(&[broken]), Err(OriginError::Broken(broken.to_owned())));
        }
        assert_eq!(parsed(&["*", "https://panel.example"]), Err(OriginError::NotAlone));
    }
}
