//! The headers that say what a tenant's rate of calls leaves. A tenant without such a rate gets none.

use std::time::Duration;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};

use super::errors::PATH_PREFIX;
use crate::traffic::{RateFigures, RequestAccounting};

/// Calls that a tenant may make at once after a pause.
pub(in crate::http) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
/// Calls that it may make at once now.
pub(in crate::http) const REMAINING: HeaderName =
    HeaderName::from_static("x-ratelimit-remaining-requests");
/// When it may make all of them again, if it makes none before.
pub(in crate::http) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");

/// Middleware that adds the headers to answers under `/v1`. The figures are those of the limiter
/// when it has admitted the call, or refused it.
pub(in crate::http) async fn add_rate_limits(request: Request, next: Next) -> Response {
    let accounting = request
        .uri()
        .path()
        .starts_with(PATH_PREFIX)
        .then(|| request.extensions().get::<RequestAccounting>().cloned())
        .flatten();
    let mut response = next.run(request).await;
    let figures = accounting.and_then(|accounting| accounting.call_figures());
    if let Some(figures) = figures {
        insert(response.headers_mut(), figures);
    }
    response
}

fn insert(headers: &mut HeaderMap, figures: RateFigures) {
    headers.insert(LIMIT, HeaderValue::from(figures.burst));
    headers.insert(REMAINING, HeaderValue::from(figures.left));
    let reset = HeaderValue::try_from(show_duration(figures.full_in));
    headers.insert(RESET, reset.expect("digits and units are visible ASCII"));
}

/// A time as clients of the protocol read it, such as `120ms`, `9s` or `2m5s`. It is rounded up.
fn show_duration(time: Duration) -> String {
    let millis = time.as_nanos().div_ceil(1_000_000);
    let seconds = millis.div_ceil(1_000);
    match (millis, seconds) {
        (0..1_000, _) => format!("{millis}ms"),
        (_, 0..60) => format!("{seconds}s"),
        _ => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_rounded_up_to_its_unit() {
        let shown = |micros| show_duration(Duration::from_micros(micros));
        assert_eq!(shown(0), "0ms");
        assert_eq!(shown(1), "1ms");
        assert_eq!(shown(999_000), "999ms");
        assert_eq!(shown(999_001), "1s");
        assert_eq!(shown(8_640_000), "9s");
        assert_eq!(shown(59_001_000), "1m0s");
        assert_eq!(shown(125_000_000), "2m5s");
    }
}
