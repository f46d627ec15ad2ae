//! GET /v1/responses/{id}: the object, or the events from the beginning or after a number.

use axum::{extract::State, response::Response};

use super::{create::acquire_reader, query::RetrieveQuery, record::Record, sse, stored};
use crate::{
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs},
        extractors::{PathParams, QueryParams},
        json,
        openai::errors::ApiError,
    },
    verbs::Rpc,
};

/// The RPCs of this endpoint.
pub(super) struct RetrieveResponse;

impl EndpointRpcs for RetrieveResponse {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("get_message")];
}

/// The response as it is now, or its events.
pub(super) async fn retrieve(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<RetrieveResponse>,
    PathParams(id): PathParams<String>,
    QueryParams(pairs): QueryParams<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let query = RetrieveQuery::parse(pairs)?;
    let mut record = Record::get(&state, &http_caller, &id).await?;
    if !query.stream {
        return Ok(json::response(&record.object().await?));
    }
    let permit = acquire_reader(&state, &http_caller)?;
    let running = stored::join(record, query.starting_after);
    Ok(sse::stream_events(running, permit, http_caller.proof()))
}
