//! The cookie of the page. It holds the session of a person who has signed in, or random bytes for
//! the forms of somebody who has not. It means something to the routes of the page alone.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use crate::{
    auth::{FromPage, SessionSecret, SessionText},
    failure::Failure,
    http::{problem::Problem, state::HttpState},
};

/// The prefix of random bytes for the forms of somebody who has not signed in.
const ANONYMOUS_PREFIX: &str = "anneala_";

/// How the cookie is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct CookieSettings {
    /// Whether browsers return it over HTTPS only.
    is_secure: bool,
}

impl CookieSettings {
    /// How this server sets it.
    pub(super) fn of(state: &HttpState) -> Self {
        Self {
            is_secure: state.web.has_secure_cookies,
        }
    }

    /// The name. Browsers accept the prefix only from the host itself, over HTTPS.
    const fn name(self) -> &'static str {
        if self.is_secure {
            "__Host-anneal"
        } else {
            "anneal"
        }
    }

    /// The header that sets the cookie of a session.
    pub(super) fn of_session(self, secret: &SessionSecret) -> HeaderValue {
        self.header(&SessionText(secret.clone()).text(), "")
    }

    /// The header that sets the cookie of somebody who has not signed in.
    fn of_nobody(self, secret: &SessionSecret) -> HeaderValue {
        self.header(&format!("{ANONYMOUS_PREFIX}{}", secret.encode()), "")
    }

    /// The header that removes the cookie.
    pub(super) fn removal(self) -> HeaderValue {
        self.header("", "; Max-Age=0")
    }

    fn header(self, value: &str, end: &str) -> HeaderValue {
        let (name, secure) = (self.name(), if self.is_secure { "; Secure" } else { "" });
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
        let mut header = HeaderValue::try_from(text).expect("its parts are visible ASCII");
        header.set_sensitive(true);
        header
    }

    /// The value of the cookie. None: there is none. An error: there are several.
    fn find(self, headers: &HeaderMap) -> Result<Option<String>, Problem> {
        let mut found = None;
        for line in headers.get_all(header::COOKIE) {
            for pair in line.to_str().unwrap_or_default().split(';') {
                let Some((name, value)) = pair.trim().split_once('=') else {
                    continue;
                };
                if name == self.name() && found.replace(value.to_owned()).is_some() {
                    let detail = "the browser sent two cookies of this page: delete them";
                    return Err(Problem::malformed(StatusCode::BAD_REQUEST, detail));
                }
            }
        }
        Ok(found)
    }
}

/// A session of the page, signed in.
#[derive(Clone)]
pub(super) struct SignedIn(pub(super) SessionSecret);

/// Middleware of the page: turns the cookie into the credential of the request. Gives a cookie to a
/// browser that opens a page and has none.
pub(super) async fn accept_cookie(
    State(state): State<HttpState>,
    mut request: Request,
    next: Next,
) -> Response {
    let cookies = CookieSettings::of(&state);
    let value = match cookies.find(request.headers()) {
        Ok(value) => value.unwrap_or_default(),
        Err(problem) => return problem.into_response(),
    };
    request.headers_mut().remove(header::COOKIE);
    let mut new_cookie = None;
    if let Some(session) = SessionText::parse(&value) {
        if request.headers().contains_key(header::AUTHORIZATION) {
            let detail = "send the cookie or the authorization header, not both";
            return Problem::malformed(StatusCode::BAD_REQUEST, detail).into_response();
        }
        if !state.auth.accepts_anyone() {
            let header = HeaderValue::try_from(format!("Bearer {value}"));
            let mut header = header.expect("a session is visible ASCII");
            header.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, header);
            request.extensions_mut().insert(FromPage);
            request.extensions_mut().insert(SignedIn(session.0.clone()));
        }
        request.extensions_mut().insert(session.0);
    } else if let Some(secret) = value
        .strip_prefix(ANONYMOUS_PREFIX)
        .and_then(SessionSecret::decode)
    {
        request.extensions_mut().insert(secret);
    } else if request.method() == Method::GET {
        let Ok(secret) = SessionSecret::make() else {
            return Problem::from(Failure::Panicked).into_response();
        };
        new_cookie = Some(cookies.of_nobody(&secret));
        request.extensions_mut().insert(secret);
    }
    let mut response = next.run(request).await;
    if let Some(cookie) = new_cookie {
        let headers = response.headers_mut();
        headers.entry(header::SET_COOKIE).or_insert(cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: CookieSettings = CookieSettings { is_secure: false };
    const SECURE: CookieSettings = CookieSettings { is_secure: true };

    #[test]
    fn a_secure_cookie_is_of_this_host_alone() {
        let secret = SessionSecret::from_bytes([1; 32]);
        let set = SECURE.of_session(&secret);
        let set = set.to_str().expect("is text");
        assert!(set.starts_with("__Host-anneal=anneals_"), "{set}");
        for attribute in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
            assert!(set.contains(attribute), "{set} lacks {attribute}");
        }
        assert!(!set.contains("Domain"), "{set}");
        let plain = PLAIN.of_session(&secret);
        let plain = plain.to_str().expect("is text");
        assert!(
            plain.starts_with("anneal=") && !plain.contains("Secure"),
            "{plain}"
        );
    }

    #[test]
    fn the_cookie_is_found_among_others_and_two_of_it_are_refused() {
        let find = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::COOKIE, HeaderValue::from_static(line));
            }
            PLAIN.find(&headers).map_err(|problem| problem.status())
        };
        assert_eq!(find(&[]), Ok(None));
        assert_eq!(find(&["xanneal=1; anneals=2"]), Ok(None));
        assert_eq!(find(&["a=1; anneal=x=y; b=2"]), Ok(Some("x=y".to_owned())));
        assert_eq!(find(&["anneal=1; anneal=2"]), Err(400));
        assert_eq!(find(&["anneal=1", "anneal=1"]), Err(400));
        let mut headers = HeaderMap::new();
        let line = HeaderValue::from_static("anneal=1; __Host-anneal=2");
        headers.insert(header::COOKIE, line);
        let found = SECURE.find(&headers).map_err(|problem| problem.status());
        assert_eq!(found, Ok(Some("2".to_owned())));
    }
}
