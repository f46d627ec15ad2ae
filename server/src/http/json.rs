//! What comes in: paths, queries, JSON bodies. What cannot be read is a problem that names the field.

use std::error::Error;

use anneal_core::{caller::Caller, limits::REQUEST_BYTES};
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use tonic::{Code, Status};

use super::{door::Door, problem::Problem};
use crate::{auth::Stranger, cpu, status::Failure};

/// The parts of a path.
pub(super) struct Place<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Place<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path))
            .map_err(|_| Problem::malformed(StatusCode::BAD_REQUEST, "the path is not UTF-8 once its % are decoded"))
    }
}

/// The parameters of a query; those that are not known are ignored.
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|rejected| {
            let text = rejected.body_text();
            let said = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, said)| said);
            match said.split_once(": ") {
                Some((field, description)) if !field.contains(' ') => Problem::invalid(field, description),
                _ => Problem::malformed(StatusCode::BAD_REQUEST, format!("the query cannot be read: {said}")),
            }
        })
    }
}

/// A JSON body; None: there is none. Fields that are not known are ignored.
pub(super) struct Body<T>(pub(super) Option<T>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Door> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, door: &Door) -> Result<Self, Problem> {
        // There is a caller only where the endpoint has looked at the verbs.
        let caller = request.extensions().get::<Caller>().copied();
        let caller = caller.ok_or_else(|| Problem::from(Failure::Stranger(Stranger::NoCredential)))?;
        let is_json = is_json(request.headers());
        if request.headers().get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            let detail = "a body must come as it is: no Content-Encoding is undone";
            return Err(Problem::malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let size = request.headers().get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
        if size.is_some_and(|size: u64| size > REQUEST_BYTES as u64) {
            return Err(Problem::too_large(REQUEST_BYTES));
        }
        let read = Bytes::from_request(request, door).await;
        let bytes = read.map_err(|rejected| match (rejected.status(), refused(&rejected)) {
            (_, Some(status)) if status.code() == Code::DeadlineExceeded => Problem::too_slow(),
            (_, Some(status)) => Problem::from(status.clone()),
            (StatusCode::PAYLOAD_TOO_LARGE, None) => Problem::too_large(REQUEST_BYTES),
            _ => Problem::malformed(StatusCode::BAD_REQUEST, "the body broke off"),
        })?;
        if bytes.is_empty() {
            return Ok(Self(None));
        }
        if !is_json {
            let detail = "a body must come with Content-Type: application/json";
            return Err(Problem::malformed(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let is_long = cpu::is_long(bytes.len(), 0);
        let read = door.services.house.cpu.run_if(is_long, caller.tenant(), move || parsed(&bytes)).await;
        read?.map(|body| Self(Some(body)))
    }
}

/// How the door has ended the body, if it was the door.
fn refused<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Status> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(status) = error.downcast_ref() {
            return Some(status);
        }
        next = error.source();
    }
    None
}

/// A page of another origin can send other types without asking the browser's leave, so that only this one is taken.
fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|given| given.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Lists would be read too, field by field.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::malformed(StatusCode::BAD_REQUEST, "the body must be a JSON object"));
    }
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let body = serde_path_to_error::deserialize(&mut text).map_err(|error| {
        let (field, inner) = (error.path().to_string(), error.inner());
        let description = inner.to_string();
        if inner.is_data() && field != "." {
            Problem::invalid(field, description)
        } else {
            Problem::malformed(StatusCode::BAD_REQUEST, format!("the body is not JSON as it should be: {description}"))
        }
    })?;
    text.end().map_err(|error| Problem::malformed(StatusCode::BAD_REQUEST, format!("after the JSON: {error}")))?;
    Ok(body)
}

/// An enum's value as JSON writes it: with the prefix `STOP_REASON_`, `STOP_REASON_DONE` is `done`.
pub(super) fn spelled(value: &str, prefix: &str) -> String {
    value.trim_start_matches(prefix).to_lowercase()
}

/// An answer in JSON, for this request alone.
pub(super) fn answer<T: Serialize>(body: &T) -> Response {
    let body = serde_json::to_vec(body).expect("answers are strings, numbers, lists and maps of strings");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, body).into_response()
}
