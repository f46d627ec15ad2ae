//! The way to a provider: one client each, and for every call limits on time and bytes.

use std::time::Duration;

use anneal_core::media_access::MediaAccess;
use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use tokio::time::{Instant, timeout_at};

use super::{Api, CallFailure, OutputField, body::Body, failure, key::Key};
use crate::provider_error::{BODY_BYTES, Delivery, ProviderAnswer, classify};

/// Anthropic's version of its protocol, as sent with every call.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Longest wait that a provider may ask for.
const RETRY_AFTER_MOST: Duration = Duration::from_hours(1);

/// A provider, ready to be called.
pub(super) struct Provider {
    pub(super) api: Api,
    /// Where its API begins, without a slash at the end.
    pub(super) home: String,
    /// The field in which it takes the output limit, where its protocol has several.
    pub(super) output_field: OutputField,
    /// Which media it is told the addresses of.
    pub(super) media: MediaAccess,
    pub(super) client: Client,
    pub(super) key: Option<Key>,
    pub(super) limits: Limits,
}

/// How long a call may take, and how much of an answer is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Until the answer begins, and between two pieces of it.
    pub(super) silence: Duration,
    /// For the whole call.
    pub(super) total: Duration,
    pub(super) bytes: usize,
}

impl Provider {
    /// Posts a request. The answer's head is here, its body still to be read; any status but success is a failure.
    pub(super) async fn post(&self, path: &str, body: String) -> Result<Body, CallFailure> {
        let clock = Clock::start(self.limits);
        let url = format!("{}{path}", self.home);
        let sent = self.client.post(url).headers(self.headers()).body(body).send();
        let response = clock.wait(sent, "the answer did not begin in time").await?;
        let response = response.map_err(|e| unreachable(&e))?;
        if response.status().is_success() {
            return Body::of(response, clock, self.limits.bytes);
        }
        Err(refused(response, clock, self.limits.bytes).await)
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
        headers
    }
}

/// The time that a call has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    silence: Duration,
    end: Instant,
}

impl Clock {
    fn start(limits: Limits) -> Self {
        Self { silence: limits.silence, end: Instant::now() + limits.total }
    }

    /// What comes of the future, or the failure that names the phase in which it took too long.
    pub(super) async fn wait<T>(&self, future: impl Future<Output = T>, phase: &str) -> Result<T, CallFailure> {
        let until = (Instant::now() + self.silence).min(self.end);
        timeout_at(until, future).await.map_err(|_| {
            let phase = if until == self.end { "the whole call took too long" } else { phase };
            failure::unavailable(phase)
        })
    }
}

/// Why no answer began. The error's own text is left out: it holds the URL.
fn unreachable(error: &reqwest::Error) -> CallFailure {
    match (error.is_connect(), error.is_timeout()) {
        (true, true) => failure::unreached("the connection took too long"),
        (true, false) => failure::unreached("no connection"),
        _ => failure::unavailable("the connection ended before an answer began"),
    }
}

/// What an answer with a status of failure, or a redirect, means.
async fn refused(response: Response, clock: Clock, bytes: usize) -> CallFailure {
    let status = response.status();
    let headers: Vec<(String, String)> = response.headers().iter().map(text_of).collect();
    let retry_after = retry_after(response.headers());
    let body = Body::prefix(response, clock, bytes.min(BODY_BYTES)).await;
    let delivery = Delivery::Streamed;
    let answer =
        ProviderAnswer { status: status.as_u16(), headers: &headers, body: &body, delivery, sent_tokens: None };
    failure::overflow(&classify(&answer)).unwrap_or_else(|| failure::of_status(status.as_u16(), retry_after))
}

fn text_of((name, value): (&reqwest::header::HeaderName, &HeaderValue)) -> (String, String) {
    (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// When the provider asks to come back: milliseconds, seconds or a date, whichever it says.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let said = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds = |text: &str| text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let by_milliseconds = said("retry-after-ms").and_then(seconds).map(|duration| duration / 1_000);
    let by_seconds = || said("retry-after").and_then(seconds);
    let by_date = || {
        let date = httpdate::parse_http_date(said("retry-after")?).ok()?;
        Some(date.duration_since(std::time::SystemTime::now()).unwrap_or_default())
    };
    by_milliseconds.or_else(by_seconds).or_else(by_date).map(|wait| wait.min(RETRY_AFTER_MOST))
}

/// Whether a status says "too many calls" rather than "broken".
pub(super) fn is_limit(status: u16) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE || status == 529
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(name: &'static str, value: &str) -> Option<u128> {
        let headers = HeaderMap::from_iter([(
            reqwest::header::HeaderName::from_static(name),
            HeaderValue::from_str(value).expect("a header's value"),
        )]);
        retry_after(&headers).map(|wait| wait.as_millis())
    }

    #[test]
    fn a_wait_is_read_in_every_form_and_never_longer_than_an_hour() {
        assert_eq!(wait("retry-after", "7"), Some(7_000));
        assert_eq!(wait("retry-after", "0.5"), Some(500));
        assert_eq!(wait("retry-after-ms", "1500"), Some(1_500));
        assert_eq!(wait("retry-after", "999999999"), Some(3_600_000));
        assert_eq!(wait("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(0));
        assert_eq!(wait("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"), Some(3_600_000));
        for nonsense in ["soon", "-1", "NaN", "inf", "1e400", ""] {
            assert_eq!(wait("retry-after", nonsense), None, "{nonsense}");
        }
    }
}
