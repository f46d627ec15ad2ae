//! GET and POST /sign-in, POST /sign-out: exchanges an API key or a token for the cookie of a
//! session, and ends the session.

use anneal_web::{
    layout::{Notice, NoticeKind, Place},
    sign_in::SignInPage,
};
use axum::{
    extract::{FromRequestParts, State},
    http::{Extensions, HeaderValue, StatusCode, Uri, header, request::Parts},
    response::Response,
};
use serde::Deserialize;

use super::{
    cookie::{CookieSettings, SignedIn},
    error::WebError,
    form::Form,
    page::{self, NoticeCode, PageContext, SIGN_IN_PATH},
};
use crate::http::{extractors::QueryParams, problem::Problem, state::HttpState};

/// The page after the sign-in, if none was asked for.
const FIRST_PAGE: &str = "/conversations";

/// The query of the sign-in page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SignInQuery {
    /// The page that was asked for.
    next: String,
}

/// The fields of the form.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SignInForm {
    credential: String,
    next: String,
}

/// The fields of the form that signs out: its token alone.
#[derive(Deserialize)]
pub(super) struct NoFields {}

/// The frame of a page that needs no caller.
pub(super) struct Nobody(PageContext);

impl FromRequestParts<HttpState> for Nobody {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, WebError> {
        Ok(Self(PageContext::of(parts)))
    }
}

/// GET /: the list of conversations.
pub(super) async fn first_page() -> Response {
    page::see_other(FIRST_PAGE, None)
}

/// Shows the form.
pub(super) async fn show_form(
    State(state): State<HttpState>,
    Nobody(context): Nobody,
    QueryParams(query): QueryParams<SignInQuery>,
) -> Result<Response, WebError> {
    if state.auth.accepts_anyone() {
        return Ok(page::see_other(path_after(&query.next), None));
    }
    sign_in_page(&state, &context, &query.next, None)
}

/// Signs in. The new session has a new cookie, whichever cookie the browser had: a planted one
/// never becomes a session.
pub(super) async fn sign_in(
    State(state): State<HttpState>,
    Nobody(context): Nobody,
    extensions: RequestExtensions,
    cookies: CookieSettings,
    Form(form): Form<SignInForm>,
) -> Result<Response, WebError> {
    if state.auth.accepts_anyone() {
        return Ok(page::see_other(path_after(&form.next), None));
    }
    let RequestExtensions(extensions) = extensions;
    let signed_in = state
        .auth
        .sign_in(form.credential.trim(), &extensions)
        .await;
    let secret = match signed_in.map_err(Problem::from) {
        Ok(secret) => secret,
        Err(problem) if problem.status() == StatusCode::UNAUTHORIZED.as_u16() => {
            return sign_in_page(&state, &context, &form.next, Some(&problem));
        }
        Err(problem) => return Err(problem.into()),
    };
    if let Some(SignedIn(old)) = extensions.get::<SignedIn>() {
        state.auth.sign_out(old, &extensions).await?;
    }
    Ok(with_cookie(
        page::see_other(path_after(&form.next), None),
        cookies.of_session(&secret),
    ))
}

/// Signs out. The browser forgets what it has kept of this server's pages.
pub(super) async fn sign_out(
    State(state): State<HttpState>,
    RequestExtensions(extensions): RequestExtensions,
    cookies: CookieSettings,
    Form(NoFields {}): Form<NoFields>,
) -> Result<Response, WebError> {
    if let Some(SignedIn(secret)) = extensions.get::<SignedIn>() {
        state.auth.sign_out(secret, &extensions).await?;
    }
    let answer = page::see_other(SIGN_IN_PATH, Some(NoticeCode::SignedOut));
    let mut answer = with_cookie(answer, cookies.removal());
    let cleared = HeaderValue::from_static("\"cache\", \"storage\"");
    answer.headers_mut().insert("clear-site-data", cleared);
    Ok(answer)
}

/// Extractor: the extensions of the request.
pub(super) struct RequestExtensions(Extensions);

impl FromRequestParts<HttpState> for RequestExtensions {
    type Rejection = WebError;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, WebError> {
        Ok(Self(parts.extensions.clone()))
    }
}

fn with_cookie(mut answer: Response, cookie: HeaderValue) -> Response {
    answer.headers_mut().insert(header::SET_COOKIE, cookie);
    answer
}

fn sign_in_page(
    state: &HttpState,
    context: &PageContext,
    next: &str,
    refusal: Option<&Problem>,
) -> Result<Response, WebError> {
    let mut page = context.page("Sign in", Place::SignIn);
    let status = match refusal {
        None => StatusCode::OK,
        Some(problem) => {
            page.notice = Some(Notice {
                kind: NoticeKind::Refused,
                text: format!("This does not sign in: {}.", problem.detail()),
                reason: problem.reason().to_owned(),
            });
            StatusCode::UNAUTHORIZED
        }
    };
    let page = SignInPage {
        page,
        next: path_after(next).to_owned(),
        accepts_keys: state.auth.accepts_keys(),
        accepts_tokens: state.auth.accepts_tokens(),
    };
    page::html(status, page.render())
}

/// The page after the sign-in: a path of this server. Browsers read a backslash as a slash, and
/// leave out tabs and line breaks.
fn path_after(next: &str) -> &str {
    let is_path = next.starts_with('/')
        && !next[1..].starts_with(['/', '\\'])
        && next.bytes().all(|byte| byte.is_ascii_graphic())
        && next.parse::<Uri>().is_ok();
    if is_path && !next.starts_with("/sign-") {
        next
    } else {
        FIRST_PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_after_the_sign_in_is_one_of_this_server() {
        for path in [
            "/",
            "/conversations",
            "/conversations/1?x=%2F#end",
            "/operations",
        ] {
            let expected = path;
            assert_eq!(path_after(path), expected);
        }
        for path in [
            "",
            "conversations",
            "https://b.example/",
            "//b.example",
            "/\\b.example",
            "/\t/b.example",
            "/\n/b.example",
            "/é",
            "/sign-in",
            "/sign-out",
        ] {
            assert_eq!(path_after(path), FIRST_PAGE, "{path}");
        }
    }
}
