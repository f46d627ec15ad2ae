//! HTTP calls to a provider. Each provider has its own client, and each call has limits of time and
//! bytes. The header `Retry-After` of an error is read.
//!
//! This file makes one attempt and never repeats it. `failure.rs` says which failures may be
//! retried (429 and 5xx among them). `gateway/src/summary_calls.rs` repeats the calls of a summary.
//! If they fail all the same, `worker/src/retry_policy.rs` decides whether the job runs again
//! later. A chat turn does not repeat a call after these failures: it passes the delay on to its
//! client.

use std::{error::Error as _, io::ErrorKind, time::Duration};

use anneal_core::media_access::MediaAccess;
use reqwest::{
    Client, Response,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};

use super::{
    Api, CallFailure, OutputField,
    body::Body,
    call_limits::{Deadlines, Limits},
    failure,
    key::Key,
};
use crate::provider_error::{BODY_BYTES, Delivery, ProviderAnswer, RequestSize, classify};

/// The protocol version in every call to Anthropic.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Longest delay that a provider may ask for; a longer one is shortened to it.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// A provider, ready to be called.
pub(super) struct Provider {
    pub(super) api: Api,
    /// URL of its API, without a slash at the end.
    pub(super) base_url: String,
    /// Whether this is the protocol's own host.
    pub(super) is_default_host: bool,
    /// Whether requests ask for its prompt cache.
    pub(super) asks_for_cache: bool,
    /// Name of the field of the output limit, for OpenAI's protocol, which has two.
    pub(super) output_field: OutputField,
    /// Media whose addresses it may receive.
    pub(super) media: MediaAccess,
    pub(super) client: Client,
    pub(super) key: Option<Key>,
    pub(super) limits: Limits,
}

impl Provider {
    /// Posts a request and receives the answer's status and headers. Any status but success is a
    /// failure.
    pub(super) async fn post(
        &self,
        path: &str,
        body: String,
        size: RequestSize,
    ) -> Result<Body, CallFailure> {
        let deadlines = Deadlines::start(self.limits);
        let url = format!("{}{path}", self.base_url);
        let sending = self
            .client
            .post(url)
            .headers(self.headers())
            .body(body)
            .send();
        let response = deadlines
            .apply(sending, "the answer did not begin in time")
            .await?;
        let response = response.map_err(|e| connection_failure(&e))?;
        if response.status().is_success() {
            return Body::of(response, deadlines, self.limits.bytes);
        }
        Err(read_failure(response, deadlines, self.limits.bytes, size).await)
    }

    /// Requests a path without a body. Returns the status of the answer, and at most the first
    /// `bytes` of its body if the status is a success.
    pub(super) async fn get(
        &self,
        path: &str,
        bytes: usize,
    ) -> Result<(u16, Vec<u8>), CallFailure> {
        let deadlines = Deadlines::start(self.limits);
        let url = format!("{}{path}", self.base_url);
        let sending = self.client.get(url).headers(self.headers()).send();
        let response = deadlines
            .apply(sending, "the answer did not begin in time")
            .await?;
        let response = response.map_err(|e| connection_failure(&e))?;
        let status = response.status();
        let body = if status.is_success() {
            Body::read_prefix(response, deadlines, bytes).await
        } else {
            Vec::new()
        };
        Ok((status.as_u16(), body))
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let (name, prefix) = match self.api {
            Api::OpenAi => ("authorization", "Bearer "),
            Api::Anthropic => ("x-api-key", ""),
            Api::Gemini => ("x-goog-api-key", ""),
        };
        if let Some(key) = &self.key {
            headers.insert(name, key.header(prefix));
        }
        if self.api == Api::Anthropic {
            headers.insert("anthropic-version", ANTHROPIC_VERSION);
        }
        let traceparent = anneal_trace::current_traceparent();
        if let Some(value) = traceparent.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(anneal_trace::TRACEPARENT, value);
        }
        headers
    }
}

/// The failure of a request without an answer. The error's own text is left out, because it holds
/// the URL.
fn connection_failure(error: &reqwest::Error) -> CallFailure {
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => failure::unreachable("the connection took too long"),
        (true, false) => failure::unreachable(&find_connect_cause(error).map_or_else(
            || "no connection".to_owned(),
            |cause| format!("no connection ({cause})"),
        )),
        _ => failure::unavailable("the connection ended before an answer began"),
    }
}

/// Why there is no connection, if the system has said so.
fn find_connect_cause(error: &reqwest::Error) -> Option<ErrorKind> {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let mut kinds = causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .map(std::io::Error::kind);
    kinds.find(|kind| {
        matches!(
            kind,
            ErrorKind::ConnectionRefused
                | ErrorKind::ConnectionReset
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
        )
    })
}

/// Reads an answer with an error status or a redirect, and returns the failure that it means.
async fn read_failure(
    response: Response,
    deadlines: Deadlines,
    bytes: usize,
    size: RequestSize,
) -> CallFailure {
    let status = response.status();
    let headers: Vec<(String, String)> = response.headers().iter().map(header_text).collect();
    let retry_after = retry_after(response.headers());
    let body = Body::read_prefix(response, deadlines, bytes.min(BODY_BYTES)).await;
    let delivery = Delivery::Streamed;
    let answer = ProviderAnswer {
        status: status.as_u16(),
        headers: &headers,
        body: &body,
        delivery,
        sent_tokens: size.sent,
        window_tokens: size.window,
    };
    failure::overflow(&classify(&answer), Some(status.as_u16()))
        .unwrap_or_else(|| failure::of_status(status.as_u16(), retry_after))
}

fn header_text((name, value): (&reqwest::header::HeaderName, &HeaderValue)) -> (String, String) {
    (
        name.as_str().to_owned(),
        String::from_utf8_lossy(value.as_bytes()).into_owned(),
    )
}

/// The delay before a retry that the provider asks for, in milliseconds, seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let header = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let parse_seconds = |text: &str| {
        text.parse()
            .ok()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    };
    // Parsed as seconds and then divided: milliseconds may have a fraction, too.
    let by_milliseconds = header("retry-after-ms")
        .and_then(parse_seconds)
        .map(|duration| duration / 1_000);
    let by_seconds = || header("retry-after").and_then(parse_seconds);
    let by_date = || {
        let date = httpdate::parse_http_date(header("retry-after")?).ok()?;
        Some(
            date.duration_since(std::time::SystemTime::now())
                .unwrap_or_default(),
        )
    };
    by_milliseconds
        .or_else(by_seconds)
        .or_else(by_date)
        .map(|wait| wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_ms(name: &'static str, value: &str) -> Option<u128> {
        let headers = HeaderMap::from_iter([(
            reqwest::header::HeaderName::from_static(name),
            HeaderValue::from_str(value).expect("a header's value"),
        )]);
        retry_after(&headers).map(|wait| wait.as_millis())
    }

    #[test]
    fn the_delay_before_a_retry_is_read_in_every_form_and_is_at_most_an_hour() {
        assert_eq!(delay_ms("retry-after", "7"), Some(7_000));
        assert_eq!(delay_ms("retry-after", "0.5"), Some(500));
        assert_eq!(delay_ms("retry-after-ms", "1500"), Some(1_500));
        assert_eq!(delay_ms("retry-after", "999999999"), Some(3_600_000));
        assert_eq!(
            delay_ms("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"),
            Some(0)
        );
        assert_eq!(
            delay_ms("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"),
            Some(3_600_000)
        );
        for nonsense in ["soon", "-1", "NaN", "inf", "1e400", ""] {
            assert_eq!(delay_ms("retry-after", nonsense), None, "{nonsense}");
        }
    }
}
