//! POST /v1/responses.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde_json::Value;

use super::{
    begin::{Medium, begin},
    sse,
};
use crate::{
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{NoParams, QueryParams},
        json,
        openai::{
            errors::ApiError,
            request::{ObjectBody, idempotency_key, with_ignored},
        },
    },
    limits::concurrency::Permit,
    verbs::Rpc,
};

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
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    let permit = acquire_reader(&state, &http_caller)?;
    let is_stream = body.get("stream") == Some(&Value::Bool(true));
    let key = idempotency_key(&headers)?;
    let medium = Medium::Http {
        idempotency_key: (!key.is_empty()).then_some(key),
    };
    let mut running = begin(&state, &http_caller, Value::Object(body), medium).await?;
    let ignored = running.ignored_parameters().to_vec();
    let response = if is_stream {
        sse::stream_events(running, permit, http_caller.proof())
    } else if running.is_background() {
        json::response(&running.show_background().await?)
    } else {
        json::response(&Box::pin(running.into_response_object()).await?)
    };
    Ok(with_ignored(response, &ignored))
}

/// A permit for one reader of a turn.
pub(in crate::http::openai) fn acquire_reader(
    state: &HttpState,
    caller: &HttpCaller,
) -> Result<Permit, ApiError> {
    let limit = &state.services.state.reader_limit;
    let permit = limit.try_acquire(caller.caller.tenant());
    let permit = permit.inspect_err(|_| {
        metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
    });
    Ok(permit?)
}
