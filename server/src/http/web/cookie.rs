//! The cookies of the page. One holds the session of a person who has signed in. Another one holds
//! random bytes for the forms of somebody without a session. They have different names, so that a
//! form for somebody without a session never replaces one: a browser sends neither cookie with the
//! first request after a link of another site. They mean something to the routes of the page alone.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    middleware::Next,
    response::{Html, IntoResponse as _, Response},
};

use super::{
    csrf,
    page::{self, SIGN_IN_PATH},
};
use crate::{
    auth::{FromPage, SessionSecret, SessionText},
    failure::Failure,
    http::{problem::Problem, state::HttpState},
};

/// The page for a person who follows a link of another site. It opens itself again: the second
/// request comes from this site, so the browser sends the cookies with it.
const ARRIVAL: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
     <meta http-equiv=\"refresh\" content=\"0\"><title>anneal</title></head>\
     <body><p><a href=\"\">Open the page</a></p></body></html>\n";

/// How the cookies are set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CookieSettings {
    /// Whether browsers return them over HTTPS only.
    is_secure: bool,
    /// The name of a session's cookie.
    session: String,
    /// The name of the cookie for forms of somebody without a session.
    forms: String,
}

/// The values of the two cookies in a request. A name may stand there several times.
#[derive(Default)]
struct Found {
    session: Vec<String>,
    forms: Vec<String>,
}

impl CookieSettings {
    /// How this server sets them for a request with these headers to this address.
    fn of(state: &HttpState, headers: &HeaderMap, uri: &Uri) -> Self {
        Self::new(state.web.has_secure_cookies, csrf::port(headers, uri))
    }

    /// Browsers accept the prefix only from the host itself, over HTTPS. Without it, servers on
    /// other ports of the host would have the same cookies, because those of all ports are one set.
    fn new(is_secure: bool, port: u16) -> Self {
        let session = if is_secure {
            "__Host-anneal".to_owned()
        } else {
            format!("anneal-{port}")
        };
        Self {
            is_secure,
            forms: format!("{session}-forms"),
            session,
        }
    }

    /// The header that sets the cookie of a session.
    pub(super) fn of_session(&self, secret: &SessionSecret) -> HeaderValue {
        self.header(&self.session, &SessionText(secret.clone()).text(), "")
    }

    /// The header that sets the cookie for forms of somebody without a session.
    fn of_forms(&self, secret: &SessionSecret) -> HeaderValue {
        self.header(&self.forms, &secret.encode(), "")
    }

    /// The header that removes the cookie of a session.
    pub(super) fn removal(&self) -> HeaderValue {
        self.header(&self.session, "", "; Max-Age=0")
    }

    fn header(&self, name: &str, value: &str, end: &str) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
        let mut header = HeaderValue::try_from(text).expect("its parts are visible ASCII");
        header.set_sensitive(true);
        header
    }

    /// The cookies of the page among those of a request. Other cookies may hold any bytes.
    fn find(&self, headers: &HeaderMap) -> Found {
        let mut found = Found::default();
        let lines = headers.get_all(header::COOKIE).iter();
        for pair in lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')) {
            let pair = String::from_utf8_lossy(pair.trim_ascii());
            match pair.split_once('=') {
                Some((name, value)) if name == self.session => found.session.push(value.to_owned()),
                Some((name, value)) if name == self.forms => found.forms.push(value.to_owned()),
                _ => {}
            }
        }
        found
    }

    /// The refusal of several cookies of one name: one of them was planted. It removes those that
    /// this page could have set.
    fn refuse_several(&self) -> Response {
        let detail = "the browser sent two cookies of this page: sign in again";
        let mut answer = Problem::malformed(StatusCode::BAD_REQUEST, detail).into_response();
        let headers = answer.headers_mut();
        headers.append(header::SET_COOKIE, self.removal());
        let of_forms = self.header(&self.forms, "", "; Max-Age=0");
        headers.append(header::SET_COOKIE, of_forms);
        answer
    }
}

impl FromRequestParts<HttpState> for CookieSettings {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &HttpState) -> Result<Self, Infallible> {
        Ok(Self::of(state, &parts.headers, &parts.uri))
    }
}

/// A session of the page, signed in.
#[derive(Clone)]
pub(super) struct SignedIn(pub(super) SessionSecret);

/// Middleware of the page: turns the cookie of a session into the credential of the request, and
/// finds the secret of its forms. That of the form to sign in, and of every form where nobody signs
/// in, is in a cookie of its own, which a page with such a form sets.
pub(super) async fn accept_cookie(
    State(state): State<HttpState>,
    mut request: Request,
    next: Next,
) -> Response {
    let cookies = CookieSettings::of(&state, request.headers(), request.uri());
    let Found { session, forms } = cookies.find(request.headers());
    if session.len() > 1 || forms.len() > 1 {
        return cookies.refuse_several();
    }
    if session.is_empty() && forms.is_empty() && is_arrival(&request) {
        return Html(ARRIVAL).into_response();
    }
    request.headers_mut().remove(header::COOKIE);
    let signs_in = !state.auth.accepts_anyone();
    let value = session.first().filter(|_| signs_in);
    let session = value.and_then(|value| SessionText::parse(value));
    if let Some(session) = &session {
        if request.headers().contains_key(header::AUTHORIZATION) {
            let detail = "send the cookie or the authorization header, not both";
            return Problem::malformed(StatusCode::BAD_REQUEST, detail).into_response();
        }
        let header = HeaderValue::try_from(format!("Bearer {}", session.text()));
        let mut header = header.expect("a session is visible ASCII");
        header.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, header);
        request.extensions_mut().insert(FromPage);
        request.extensions_mut().insert(SignedIn(session.0.clone()));
    }
    let is_of_nobody = !signs_in || request.uri().path() == SIGN_IN_PATH;
    if !is_of_nobody {
        session.map(|session| request.extensions_mut().insert(session.0));
        return next.run(request).await;
    }
    if let Some(secret) = forms.first().and_then(|text| SessionSecret::decode(text)) {
        request.extensions_mut().insert(secret);
        return next.run(request).await;
    }
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    let Ok(secret) = SessionSecret::make() else {
        return Problem::from(Failure::Panicked).into_response();
    };
    request.extensions_mut().insert(secret.clone());
    let mut response = next.run(request).await;
    if page::is_html(response.headers()) {
        let headers = response.headers_mut();
        headers.append(header::SET_COOKIE, cookies.of_forms(&secret));
    }
    response
}

/// Whether a person follows a link of another site. Browsers omit the cookies then, so it is unknown
/// who that is.
fn is_arrival(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && csrf::is_cross_site(headers)
        && page::accepts_html(headers)
        && !headers.contains_key(page::HX_REQUEST)
        && !headers.contains_key(header::AUTHORIZATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> CookieSettings {
        CookieSettings::new(false, 8080)
    }

    #[test]
    fn a_secure_cookie_is_of_this_host_alone() {
        let secret = SessionSecret::from_bytes([1; 32]);
        let secure = CookieSettings::new(true, 443);
        for (set, name) in [
            (secure.of_session(&secret), "__Host-anneal=anneals_"),
            (secure.of_forms(&secret), "__Host-anneal-forms="),
        ] {
            let set = set.to_str().expect("is text");
            assert!(set.starts_with(name), "{set}");
            for attribute in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
                assert!(set.contains(attribute), "{set} lacks {attribute}");
            }
            assert!(!set.contains("Domain"), "{set}");
        }
        let plain = plain().of_session(&secret);
        let plain = plain.to_str().expect("is text");
        assert!(
            plain.starts_with("anneal-8080=") && !plain.contains("Secure"),
            "{plain}"
        );
    }

    #[test]
    fn the_cookies_are_found_among_others_whatever_bytes_those_hold() {
        let find = |lines: &[&'static [u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                let line = HeaderValue::from_bytes(line).expect("is a header");
                headers.append(header::COOKIE, line);
            }
            let found = plain().find(&headers);
            (found.session.join(","), found.forms.join(","))
        };
        let found = |session: &str, forms: &str| (session.to_owned(), forms.to_owned());
        assert_eq!(find(&[]), found("", ""));
        assert_eq!(
            find(&[b"xanneal-8080=1; anneal-80=2; anneal=3"]),
            found("", "")
        );
        assert_eq!(
            find(&[b"a=\xe9\xff; anneal-8080=x=y; b=2", b"anneal-8080-forms=z"]),
            found("x=y", "z")
        );
        assert_eq!(find(&[b"anneal-8080=1; anneal-8080=2"]), found("1,2", ""));
        assert_eq!(
            find(&[b"anneal-8080=1", b"anneal-8080=1"]),
            found("1,1", "")
        );
    }

    #[test]
    fn several_cookies_of_a_name_are_refused_and_removed() {
        let answer = plain().refuse_several();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let set: Vec<&[u8]> = answer
            .headers()
            .get_all(header::SET_COOKIE)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        assert_eq!(set.len(), 2);
        for name in ["anneal-8080=;", "anneal-8080-forms=;"] {
            assert!(
                set.iter().any(|set| set.starts_with(name.as_bytes())),
                "{name}"
            );
        }
        assert!(set.iter().all(|set| set.ends_with(b"; Max-Age=0")));
    }
}
