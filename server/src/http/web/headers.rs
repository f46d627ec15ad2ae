//! Headers of every answer of the page. They forbid scripts, styles and pictures from elsewhere,
//! inline scripts, and frames.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};

/// What a page may load, and who may show it.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; script-src 'self'; \
     style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'";

/// Headers of every answer. `Referrer-Policy` is not `no-referrer`: browsers would then send
/// `Origin: null` with our own forms.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Adds the headers. A route may have set a stricter policy. Nothing is kept by caches unless the
/// route says for whom: streams come with a weaker word than `no-store`.
pub(super) fn protect(response: &mut Response) {
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    let kept = headers.get(header::CACHE_CONTROL);
    let is_kept = kept.is_some_and(|kept| {
        [&b"public"[..], b"private"]
            .iter()
            .any(|word| kept.as_bytes().starts_with(word))
    });
    if !is_kept {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}
