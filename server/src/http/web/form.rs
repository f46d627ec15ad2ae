//! Forms of the page. The extractor checks that the form is one of ours, so no route can forget it.

use anneal_core::{caller::Caller, limits::REQUEST_BYTES};
use axum::{
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use serde::de::DeserializeOwned;

use super::{
    csrf::{self, CSRF_FIELD, CSRF_HEADER},
    error::WebError,
};
use crate::{
    auth::SessionSecret,
    http::{extractors, problem::Problem, state::HttpState},
};

/// Most bytes of a form without messages, and of one from somebody who has not signed in.
const FORM_BYTES: usize = 64 * 1024;
/// Most fields of a form.
const FORM_FIELDS: usize = 1_000;

/// Extractor: the fields of a form that this page has shown to its sender. It and [`MessageForm`]
/// are the only extractors of bodies for pages. Unknown fields are ignored.
pub(super) struct Form<T>(pub(super) T);

/// Extractor: a [`Form`] with a message, which may be as large as any request.
pub(super) struct MessageForm<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<HttpState> for Form<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &HttpState) -> Result<Self, WebError> {
        Ok(Self(read_form(request, state, FORM_BYTES).await?))
    }
}

impl<T: DeserializeOwned> FromRequest<HttpState> for MessageForm<T> {
    type Rejection = WebError;

    async fn from_request(request: Request, state: &HttpState) -> Result<Self, WebError> {
        // Set by `WebCaller`, after it has checked the verbs.
        let is_signed_in = request.extensions().get::<Caller>().is_some();
        let most = if is_signed_in {
            REQUEST_BYTES
        } else {
            FORM_BYTES
        };
        Ok(Self(read_form(request, state, most).await?))
    }
}

/// Reads a form of at most this many bytes, and refuses one that the page has not shown.
async fn read_form<T: DeserializeOwned>(
    request: Request,
    state: &HttpState,
    most: usize,
) -> Result<T, Problem> {
    let headers = request.headers();
    if !csrf::is_same_origin(headers, request.uri()) {
        return Err(refused("the form comes from another site"));
    }
    let secret = request.extensions().get::<SessionSecret>().cloned();
    let secret = secret.ok_or_else(|| refused("the browser sent no cookie with the form"))?;
    if !is_form(headers) {
        let detail = "a form must come as application/x-www-form-urlencoded";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::malformed(status, detail));
    }
    if length(headers).is_none_or(|length| length > most) {
        return Err(Problem::too_large(most));
    }
    let in_header = headers.get(CSRF_HEADER).cloned();
    let bytes = extractors::read_body(request, state).await?;
    check_token(in_header.as_ref(), &bytes, &secret)?;
    serde_urlencoded::from_bytes(&bytes).map_err(|error| unreadable(&error.to_string()))
}

/// The length of a body. None: it comes in chunks and does not say its length, as browsers send
/// none.
fn length(headers: &HeaderMap) -> Option<usize> {
    match headers.get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.parse().ok(),
        None => (!headers.contains_key(header::TRANSFER_ENCODING)).then_some(0),
    }
}

/// Refuses a form without the token of its sender's cookie. The page that showed it may be older
/// than the cookie. Reads the form as it came: only the form of a valid sender is worth memory.
fn check_token(
    in_header: Option<&HeaderValue>,
    form: &[u8],
    secret: &SessionSecret,
) -> Result<(), Problem> {
    let mut pairs = form.split(|byte| *byte == b'&');
    if pairs.clone().nth(FORM_FIELDS).is_some() {
        return Err(unreadable("it has more than 1,000 fields"));
    }
    let token = match in_header {
        Some(token) => Some(token.as_bytes()),
        // A token needs no escapes.
        None => pairs.find_map(|pair| pair.strip_prefix(CSRF_FIELD.as_bytes())?.strip_prefix(b"=")),
    };
    let token = token.and_then(|token| str::from_utf8(token).ok());
    if token.is_some_and(|token| csrf::is_token_of(token, secret)) {
        Ok(())
    } else {
        Err(refused(
            "the page with this form is out of date: open it again",
        ))
    }
}

fn refused(detail: &str) -> Problem {
    Problem::malformed(StatusCode::FORBIDDEN, detail)
}

fn unreadable(error: &str) -> Problem {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found_among_at_most_a_thousand_fields() {
        let secret = SessionSecret::from_bytes([1; 32]);
        let token = csrf::token(&secret);
        let check = |form: &str| {
            let checked = check_token(None, form.as_bytes(), &secret);
            checked.map_err(|problem| problem.status())
        };
        assert_eq!(check(&format!("a=b&csrf={token}&c")), Ok(()));
        for form in [
            "",
            "csrf=",
            &format!("xcsrf={token}"),
            &format!("csrf=x&csrf={token}"),
        ] {
            assert_eq!(check(form), Err(403), "{form}");
        }
        let fields = |count| format!("csrf={token}{}", "&a".repeat(count));
        assert_eq!(check(&fields(FORM_FIELDS - 1)), Ok(()));
        assert_eq!(check(&fields(FORM_FIELDS)), Err(400));
        // The header is worth more than the field.
        let header = HeaderValue::from_static("x");
        let form = format!("csrf={token}");
        assert!(check_token(Some(&header), form.as_bytes(), &secret).is_err());
    }
}
