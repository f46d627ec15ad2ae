//! POST /v1/responses/{id}/cancel.

use std::time::Duration;

use anneal_proto::v1::{self as pb, chat_service_server::ChatService as _};
use axum::{extract::State, response::Response};
use tokio::time::Instant;

use super::{
    outcome::{Outcome, Status},
    record::{Record, Settled},
};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs},
        extractors::{NoParams, PathParams, QueryParams},
        json,
        openai::errors::ApiError,
    },
    verbs::Rpc,
};

/// How long the end of a cancelled turn is waited for, and the pause between two looks.
const WAIT: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The RPCs of this endpoint.
pub(super) struct CancelResponse;

impl EndpointRpcs for CancelResponse {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("cancel_turn"), Rpc::named("get_message")];
}

/// Stops a response that runs in the background. Nothing of its answer is kept.
pub(super) async fn cancel(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<CancelResponse>,
    PathParams(id): PathParams<String>,
    _: QueryParams<NoParams>,
) -> Result<Response, ApiError> {
    let mut record = Record::get(&state, &http_caller, &id).await?;
    if !record.row.background {
        return Err(refuse(
            "Only a response with 'background' true can be cancelled.",
        ));
    }
    match record.settle().await? {
        Settled::Ended(outcome) if outcome.status == Status::Cancelled => {}
        Settled::Ended(_) => {
            return Err(refuse("The response has ended, so it cannot be cancelled."));
        }
        Settled::Running(_) => cancel_running(&mut record).await?,
    }
    Ok(json::response(&record.object().await?))
}

async fn cancel_running(record: &mut Record) -> Result<(), ApiError> {
    let (caller, id) = (record.caller.clone(), record.row.response_id);
    let store = &record.state.services.state.store;
    let marked = store.cancel_response(caller.caller, id).await;
    marked.map_err(Failure::from)?;
    let ask = pb::CancelTurnRequest {
        conversation_id: record.row.conversation_id.to_string(),
        turn_request_id: record.row.request_id.clone(),
        keep_partial: Some(false),
        wait: None,
    };
    let stopped = caller.services.cancel_turn(caller.request(ask)).await?;
    // The server that runs the turn stores its end, with the number of the last event.
    let until = Instant::now() + WAIT;
    loop {
        record.reload().await?;
        if record.row.outcome.is_some() {
            return Ok(());
        }
        if Instant::now() >= until {
            break;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    if stopped.get_ref().outcome() != pb::CancelOutcome::Pending {
        record.settle().await?;
        if record.row.outcome.is_none() {
            record.end(None, Outcome::cancelled()).await?;
        }
    }
    Ok(())
}

fn refuse(message: &str) -> ApiError {
    ApiError::invalid("response_id", Some("invalid_value"), message)
}
