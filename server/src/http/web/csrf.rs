//! CSRF tokens. The token of a form is a code of the secret in the sender's cookie, so every server
//! can check it, and a page of another origin, which cannot read the cookie, cannot make it.

use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header, uri::Authority};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::{auth::SessionSecret, http::problem::Problem};

/// The header in which a script sends the token.
pub(super) const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
/// The field of a form that holds the token.
pub(super) const CSRF_FIELD: &str = "csrf";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Bytes of a code.
const CODE_BYTES: usize = 32;

/// The token for forms whose sender has this cookie. It is another text each time: a compressed
/// answer reveals nothing of the code (BREACH).
pub(super) fn token(secret: &SessionSecret) -> String {
    let mut mask = [0; CODE_BYTES];
    // A mask of zeros is only a loss of the protection against BREACH.
    let _ = getrandom::fill(&mut mask);
    let mut bytes = [0; 2 * CODE_BYTES];
    let code: [u8; CODE_BYTES] = code(secret).finalize().into_bytes().into();
    for (index, (mask, code)) in mask.iter().zip(code).enumerate() {
        bytes[index] = *mask;
        bytes[CODE_BYTES + index] = mask ^ code;
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Whether the token was made for the holder of this cookie.
pub(super) fn is_token_of(token: &str, secret: &SessionSecret) -> bool {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(token) else {
        return false;
    };
    let Some((mask, masked)) = bytes.split_at_checked(CODE_BYTES) else {
        return false;
    };
    if masked.len() != CODE_BYTES {
        return false;
    }
    let shown: Vec<u8> = mask.iter().zip(masked).map(|(a, b)| a ^ b).collect();
    let code = code(secret).finalize().into_bytes();
    bool::from(shown.as_slice().ct_eq(code.as_slice()))
}

fn code(secret: &SessionSecret) -> Hmac<Sha256> {
    let code = Hmac::<Sha256>::new_from_slice(secret.bytes());
    code.expect("keys of every length are accepted")
        .chain_update("anneal csrf 1")
}

/// Whether a page of this origin has sent the request, or the person themselves. Browsers send
/// `Sec-Fetch-Site` over TLS and to loopback, and `Origin` with every form. A request without both
/// is refused.
pub(super) fn is_same_origin(headers: &HeaderMap, uri: &Uri) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().ok());
    if let Some(site) = text(&SEC_FETCH_SITE) {
        return matches!(site, Some("same-origin" | "none"));
    }
    let Some(Some(origin)) = text(&header::ORIGIN) else {
        return false;
    };
    let host = host(headers, uri);
    let origin = origin
        .strip_prefix("https://")
        .or_else(|| origin.strip_prefix("http://"));
    origin.is_some() && origin == host
}

/// Whether a page of another site has sent the request.
pub(super) fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get(&SEC_FETCH_SITE);
    site.is_some_and(|site| site == "cross-site")
}

/// Host and port by which the sender knows this server.
fn host<'r>(headers: &'r HeaderMap, uri: &'r Uri) -> Option<&'r str> {
    let header = || headers.get(header::HOST)?.to_str().ok();
    uri.authority().map(Authority::as_str).or_else(header)
}

/// The port by which the sender knows this server; 80: it names none.
pub(super) fn port(headers: &HeaderMap, uri: &Uri) -> u16 {
    let authority = host(headers, uri).and_then(|host| host.parse::<Authority>().ok());
    authority
        .and_then(|authority| authority.port_u16())
        .unwrap_or(80)
}

/// Refuses a stream that a page of another origin has opened. A browser sends `Sec-Fetch-Site` with
/// it, over TLS and to loopback.
pub(super) fn check_is_own_stream(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(&SEC_FETCH_SITE) {
        Some(site) if site != "same-origin" => {
            let detail = "this stream is for a page of this server";
            Err(Problem::malformed(StatusCode::FORBIDDEN, detail))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn secret(byte: u8) -> SessionSecret {
        SessionSecret::from_bytes([byte; 32])
    }

    #[test]
    fn a_token_holds_for_its_cookie_alone_and_is_another_text_each_time() {
        let (first, second) = (token(&secret(1)), token(&secret(1)));
        assert_ne!(first, second);
        assert!(is_token_of(&first, &secret(1)) && is_token_of(&second, &secret(1)));
        assert!(!is_token_of(&first, &secret(2)));
        for text in ["", "AAAA", &first[1..], &format!("{first}AAAA")] {
            assert!(!is_token_of(text, &secret(1)), "{text}");
        }
        // A token of zeros would be one whose mask is the code itself.
        let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
        assert!(!is_token_of(&zeros, &secret(1)));
    }

    #[test]
    fn a_request_of_another_origin_is_recognized() {
        let check = |pairs: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("a.example:8080"));
            for (name, value) in pairs {
                headers.insert(name, HeaderValue::from_static(value));
            }
            is_same_origin(&headers, &Uri::from_static("/conversations"))
        };
        assert!(check(&[(SEC_FETCH_SITE, "same-origin")]));
        assert!(check(&[(SEC_FETCH_SITE, "none")]));
        assert!(check(&[(header::ORIGIN, "http://a.example:8080")]));
        assert!(check(&[(header::ORIGIN, "https://a.example:8080")]));
        for (name, value) in [
            (SEC_FETCH_SITE, "cross-site"),
            (SEC_FETCH_SITE, "same-site"),
            (header::ORIGIN, "null"),
            (header::ORIGIN, "http://a.example"),
            (header::ORIGIN, "http://b.example:8080"),
            (header::ORIGIN, "a.example:8080"),
        ] {
            assert!(!check(&[(name.clone(), value)]), "{name}: {value}");
        }
        assert!(!check(&[]));
        // The browser's word about the site is worth more than the origin.
        assert!(!check(&[
            (SEC_FETCH_SITE, "cross-site"),
            (header::ORIGIN, "http://a.example:8080")
        ]));
    }

    #[test]
    fn the_port_is_the_one_that_the_sender_has_named() {
        for (host, expected) in [
            ("a.example:8080", 8080),
            ("[::1]:9", 9),
            ("a.example", 80),
            ("a.example:", 80),
            ("a.example:99999", 80),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(port(&headers, &Uri::from_static("/")), expected, "{host}");
        }
        let uri = Uri::from_static("http://a.example:7/");
        assert_eq!(port(&HeaderMap::new(), &uri), 7);
    }
}
