//! POST /v1/responses.

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};
use serde_json::Value;

use super::{
    run::{Medium, begin},
    sse,
};
use crate::{
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{JsonBody, NoParams, QueryParams},
        json,
        openai::errors::ApiError,
    },
    limits::concurrency::Permit,
    verbs::Rpc,
};

/// Makes a create repeatable.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The unknown parameters of a create, which were ignored.
const IGNORED_PARAMETERS: HeaderName = HeaderName::from_static("x-anneal-ignored-parameters");
/// Most bytes of an idempotency key, and of the header that names ignored parameters.
const KEY_BYTES: usize = 255;
const IGNORED_BYTES: usize = 1_024;

/// The RPCs of this endpoint. The verbs of `chat` are enough for the others that are called.
pub(super) struct CreateResponse;

impl EndpointRpcs for CreateResponse {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("chat")];
}

/// Begins a response. Answers with its object or its events.
pub(super) async fn create(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<CreateResponse>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<Value>,
) -> Result<Response, ApiError> {
    let body = body.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let permit = acquire_reader(&state, &http_caller)?;
    let is_stream = body["stream"] == true;
    let medium = Medium::Http {
        idempotency_key: idempotency_key(&headers)?,
    };
    let running = begin(&state, &http_caller, body, medium).await?;
    let ignored = ignored_header(running.ignored_parameters());
    let mut response = if is_stream {
        sse::stream_events(running, permit, http_caller.proof())
    } else if running.is_background() {
        json::response(&running.begun_object())
    } else {
        json::response(&running.into_response_object().await?)
    };
    if let Some(names) = ignored {
        response.headers_mut().insert(IGNORED_PARAMETERS, names);
    }
    Ok(response)
}

/// A permit for one reader of a turn.
pub(super) fn acquire_reader(state: &HttpState, caller: &HttpCaller) -> Result<Permit, ApiError> {
    let limit = &state.services.state.reader_limit;
    let permit = limit.try_acquire(caller.caller.tenant());
    let permit = permit.inspect_err(|_| {
        metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
    });
    Ok(permit?)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = key.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > KEY_BYTES {
        return Err(ApiError::invalid(
            "Idempotency-Key",
            Some("invalid_value"),
            format!("The header Idempotency-Key must have 1 to {KEY_BYTES} ASCII characters."),
        ));
    }
    Ok(Some(key.to_owned()))
}

/// The header that names the ignored parameters, as far as it has room. None: there are none.
fn ignored_header(names: &[String]) -> Option<HeaderValue> {
    let is_printable = |name: &&String| name.bytes().all(|byte| byte.is_ascii_graphic());
    let mut header = String::new();
    for name in names.iter().filter(is_printable) {
        if header.len() + name.len() + 2 > IGNORED_BYTES {
            break;
        }
        if !header.is_empty() {
            header.push_str(", ");
        }
        header.push_str(name);
    }
    let header = HeaderValue::try_from(header).ok()?;
    (!header.is_empty()).then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_parameters_are_named_as_far_as_there_is_room() {
        let names = ["alpha", "with space", "zeta"].map(str::to_owned);
        assert_eq!(
            ignored_header(&names),
            Some(HeaderValue::from_static("alpha, zeta"))
        );
        assert_eq!(ignored_header(&[]), None);
        let long = vec!["a".repeat(100); 50];
        assert!(ignored_header(&long).is_some_and(|header| header.len() <= IGNORED_BYTES));
    }
}
