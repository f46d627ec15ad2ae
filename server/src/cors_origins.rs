//! The setting `server.cors_origins`: origins whose web pages may read answers of the HTTP API.

use axum::http::Uri;
use serde::{Deserialize, Serialize};

/// Allows every origin. Must be the only entry of the list.
const ANY_ORIGIN: &str = "*";

/// Origins whose pages may read answers of the HTTP API. Empty: none. `*` alone: all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct CorsOrigins(Vec<String>);

/// The origins that a [`CorsOrigins`] allows.
pub(crate) enum AllowedOrigins<'o> {
    None,
    Any,
    List(&'o [String]),
}

impl CorsOrigins {
    /// Which origins are allowed.
    pub(crate) fn allowed(&self) -> AllowedOrigins<'_> {
        match self.0.as_slice() {
            [] => AllowedOrigins::None,
            [one] if one == ANY_ORIGIN => AllowedOrigins::Any,
            some => AllowedOrigins::List(some),
        }
    }
}

impl From<CorsOrigins> for Vec<String> {
    fn from(origins: CorsOrigins) -> Self {
        origins.0
    }
}

impl TryFrom<Vec<String>> for CorsOrigins {
    type Error = OriginError;

    fn try_from(origins: Vec<String>) -> Result<Self, OriginError> {
        if origins.len() > 1 && origins.iter().any(|origin| origin == ANY_ORIGIN) {
            return Err(OriginError::NotAlone);
        }
        match origins
            .iter()
            .find(|origin| *origin != ANY_ORIGIN && !is_origin(origin))
        {
            Some(broken) => Err(OriginError::Broken(broken.clone())),
            None => Ok(Self(origins)),
        }
    }
}

/// Why a list of origins is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// Not an origin as browsers send it.
    #[error(
        "{0:?} is no origin: write scheme://host or scheme://host:port, as in a browser's Origin header"
    )]
    Broken(String),
    /// The list has `*` and other origins.
    #[error("\"*\" allows every origin, and must be the only entry")]
    NotAlone,
}

/// Whether a browser can send this as its Origin header: scheme, host and optional port, in lower
/// case, nothing else.
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else {
        return false;
    };
    let Some((scheme, authority)) = uri.scheme().zip(uri.authority()) else {
        return false;
    };
    text == text.to_ascii_lowercase()
        && !authority.as_str().contains('@')
        && text == format!("{scheme}://{authority}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(origins: &[&str]) -> Result<CorsOrigins, OriginError> {
        CorsOrigins::try_from(
            origins
                .iter()
                .map(|origin| (*origin).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn origins_are_accepted_in_the_form_that_browsers_send() {
        for good in [
            "https://panel.example",
            "http://localhost:5173",
            "http://[::1]:80",
            "*",
        ] {
            assert!(parse(&[good]).is_ok(), "{good}");
        }
        for broken in [
            "",
            "panel.example",
            "https://panel.example/",
            "https://Panel.example",
            "https://u@p.example",
            "null",
        ] {
            assert_eq!(
                parse(&[broken]),
                Err(OriginError::Broken(broken.to_owned()))
            );
        }
        assert_eq!(
            parse(&["*", "https://panel.example"]),
            Err(OriginError::NotAlone)
        );
    }
}
