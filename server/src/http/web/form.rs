//! Forms of the page. The extractor checks that the form is one of ours, so no route can forget it.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use serde::de::DeserializeOwned;

use anneal_core::caller::Caller;

use super::{
    csrf::{self, CSRF_FIELD, CSRF_HEADER},
    error::WebError,
};
use crate::{
    auth::SessionSecret,
    http::{extractors, problem::Problem, state::HttpState},
};

/// Most bytes of a form from somebody who has not signed in.
const ANONYMOUS_FORM_BYTES: usize = 64 * 1024;

/// Extractor: the fields of a form that this page has shown to its sender. It is the only extractor
/// of bodies for pages. Unknown fields are ignored.
pub(super) struct Form<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<HttpState> for Form<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &HttpState) -> Result<Self, WebError> {
        let headers = request.headers();
        if !csrf::is_same_origin(headers, request.uri()) {
            return Err(refused("the form comes from another site").into());
        }
        let secret = request.extensions().get::<SessionSecret>().cloned();
        let secret = secret.ok_or_else(|| refused("the browser sent no cookie with the form"))?;
        if !is_form(headers) {
            let detail = "a form must come as application/x-www-form-urlencoded";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::malformed(status, detail).into());
        }
        let in_header = headers.get(CSRF_HEADER).cloned();
        // Set by `WebCaller`, after it has checked the verbs.
        let is_signed_in = request.extensions().get::<Caller>().is_some();
        let bytes = if is_signed_in {
            extractors::read_body(request, state).await?
        } else {
            read_anonymous(request, state).await?
        };
        check_token(in_header.as_ref(), &bytes, &secret)?;
        let form = serde_urlencoded::from_bytes(&bytes).map_err(|error| unreadable(&error))?;
        Ok(Self(form))
    }
}

/// Refuses a form without the token of its sender's cookie. The page that showed it may be older
/// than the cookie.
fn check_token(
    in_header: Option<&HeaderValue>,
    form: &[u8],
    secret: &SessionSecret,
) -> Result<(), Problem> {
    let is_ours = match in_header {
        Some(token) => token
            .to_str()
            .is_ok_and(|token| csrf::is_token_of(token, secret)),
        None => serde_urlencoded::from_bytes::<Vec<(String, String)>>(form)
            .map_err(|error| unreadable(&error))?
            .iter()
            .find(|(name, _)| name == CSRF_FIELD)
            .is_some_and(|(_, token)| csrf::is_token_of(token, secret)),
    };
    if is_ours {
        Ok(())
    } else {
        Err(refused(
            "the page with this form is out of date: open it again",
        ))
    }
}

/// Reads the form of somebody who has not signed in.
async fn read_anonymous(request: Request, state: &HttpState) -> Result<Bytes, Problem> {
    let headers = request.headers();
    let length: Option<usize> = match headers.get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok().and_then(|length| length.parse().ok()),
        // No body at all. One in chunks does not say its length, and browsers send none.
        None => (!headers.contains_key(header::TRANSFER_ENCODING)).then_some(0),
    };
    if length.is_none_or(|length| length > ANONYMOUS_FORM_BYTES) {
        return Err(Problem::too_large(ANONYMOUS_FORM_BYTES));
    }
    extractors::read_body(request, state).await
}

fn refused(detail: &str) -> Problem {
    Problem::malformed(StatusCode::FORBIDDEN, detail)
}

fn unreadable(error: &serde_urlencoded::de::Error) -> Problem {
    let detail = format!("the form cannot be read: {error}");
    Problem::malformed(StatusCode::BAD_REQUEST, detail)
}

fn is_form(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let kind = content_type.and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| {
        kind.trim()
            .eq_ignore_ascii_case("application/x-www-form-urlencoded")
    })
}
