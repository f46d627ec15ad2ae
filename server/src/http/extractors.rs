//! Extractors for paths, queries and JSON bodies. If a field of a query or a body is unknown or
//! cannot be read, the problem names the field.

use std::error::Error;

use anneal_core::{caller::Caller, limits::REQUEST_BYTES};
use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny, value},
};
use serde_path_to_error::Path as FieldPath;
use tonic::{Code, Status};

use super::{problem::Problem, state::HttpState};
use crate::{
    failure::{AuthError, Failure},
    limits::cpu_pool,
};

/// The parameters of a path. All are strings, so only a path that is not UTF-8 is refused.
pub(super) struct PathParams<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path)).map_err(|_| {
            Problem::malformed(
                StatusCode::BAD_REQUEST,
                "the path is not UTF-8 after percent-decoding",
            )
        })
    }
}

/// The parameters of an endpoint without any: every parameter is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParams {}

/// The parameters of a query. `T` refuses unknown ones (`deny_unknown_fields`).
pub(super) struct QueryParams<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(query)| Self(query)).map_err(|rejected| {
            let cause = find_cause::<serde_path_to_error::Error<value::Error>>(&rejected);
            let description =
                cause.map_or_else(|| rejected.body_text(), |error| error.inner().to_string());
            match cause.and_then(|error| field_at(error.path())) {
                Some(field) => Problem::invalid(field, description),
                None => Problem::malformed(
                    StatusCode::BAD_REQUEST,
                    format!("the query cannot be read: {description}"),
                ),
            }
        })
    }
}

/// A JSON body; None: the request has none. `T` refuses unknown fields (`deny_unknown_fields`).
pub(super) struct JsonBody<T>(pub(super) Option<T>);

impl<T: DeserializeOwned + Send + 'static> FromRequest<HttpState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &HttpState) -> Result<Self, Problem> {
        let Some((caller, bytes)) = read_json(request, state).await? else {
            return Ok(Self(None));
        };
        let is_long = cpu_pool::is_long(bytes.len(), 0);
        let read = state
            .services
            .state
            .cpu
            .run_if(is_long, caller.tenant(), move || parse_body(&bytes))
            .await;
        read?.map(|body| Self(Some(body)))
    }
}

/// Reads a JSON body, which is not parsed yet. None: the request has none.
pub(super) async fn read_json(
    request: Request,
    state: &HttpState,
) -> Result<Option<(Caller, Bytes)>, Problem> {
    // Set by `Authorized`, after it has checked the verbs.
    let caller = request.extensions().get::<Caller>().copied();
    let caller = caller.ok_or_else(|| Problem::from(Failure::Auth(AuthError::NoCredential)))?;
    let is_json = is_json(request.headers());
    let bytes = read_body(request, state).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if !is_json {
        let detail = "a body must come with Content-Type: application/json";
        return Err(Problem::malformed(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            detail,
        ));
    }
    Ok(Some((caller, bytes)))
}

/// Reads a body of any type.
pub(super) async fn read_body(request: Request, state: &HttpState) -> Result<Bytes, Problem> {
    if request
        .headers()
        .get(header::CONTENT_ENCODING)
        .is_some_and(|coding| coding != "identity")
    {
        let detail = "a body must have no Content-Encoding: the server does not decompress it";
        return Err(Problem::malformed(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            detail,
        ));
    }
    let size = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|size| size.to_str().ok()?.parse().ok());
    if size.is_some_and(|size: u64| size > REQUEST_BYTES as u64) {
        return Err(Problem::too_large(REQUEST_BYTES));
    }
    let read = Bytes::from_request(request, state).await;
    read.map_err(|rejected| {
        // `traffic::RequestBody` ends a body with a status.
        let ended = find_cause::<Status>(&rejected);
        match (rejected.status(), ended) {
            (_, Some(status)) if status.code() == Code::DeadlineExceeded => Problem::too_slow(),
            (_, Some(status)) => Problem::from(status.clone()),
            (StatusCode::PAYLOAD_TOO_LARGE, None) => Problem::too_large(REQUEST_BYTES),
            _ => Problem::malformed(StatusCode::BAD_REQUEST, "the body broke off"),
        }
    })
}

/// The first error of this type among the error and its sources.
fn find_cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(cause) = error.downcast_ref() {
            return Some(cause);
        }
        next = error.source();
    }
    None
}

/// The field at which parsing failed. None: the error is not about one field.
fn field_at(path: &FieldPath) -> Option<String> {
    path.iter().next().map(|_| path.to_string())
}

/// Whether the content type is JSON. Other types are refused, because a page of another origin can
/// send some of them without a CORS preflight.
fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|content_type| content_type.to_str().ok())
        .unwrap_or_default();
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .eq_ignore_ascii_case("application/json")
}

/// Whether the error is that a value of another type stands in place of an enum's name, or that a
/// number is too large. serde_json reports these as syntax errors, also if the JSON is valid.
fn is_wrong_value(description: &str, body: &[u8]) -> bool {
    let mut reports = ["expected value", "number out of range"].iter();
    reports.any(|report| description.starts_with(report))
        && serde_json::from_slice::<IgnoredAny>(body).is_ok()
}

/// Parses a JSON object. If a field cannot be read, the problem names it.
pub(super) fn parse_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde would also accept a list, and take its entries for the fields in their order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::malformed(
            StatusCode::BAD_REQUEST,
            "the body must be a JSON object",
        ));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let body = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let description = error.inner().to_string();
        match field_at(error.path()) {
            Some(field) if error.inner().is_data() || is_wrong_value(&description, bytes) => {
                Problem::invalid(field, description)
            }
            _ => Problem::malformed(
                StatusCode::BAD_REQUEST,
                format!("the body is not the expected JSON: {description}"),
            ),
        }
    })?;
    deserializer.end().map_err(|error| {
        let detail = format!("the body goes on after the JSON object: {error}");
        Problem::malformed(StatusCode::BAD_REQUEST, detail)
    })?;
    Ok(body)
}
