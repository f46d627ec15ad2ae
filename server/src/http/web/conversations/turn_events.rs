//! GET /conversations/{id}/turns/{request}/events: the events of a turn as it answers.

use anneal_proto::convert::parse;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};

use super::turn;
use crate::{
    failure::Failure,
    http::{
        chat::{self, ChatTurn, TurnStream},
        extractors::PathParams,
        problem::Problem,
        resumable_turns::{ResumePoint, SessionOrigin, TurnRequest, WhenBusy},
        sse::LAST_EVENT_ID,
        state::HttpState,
        web::{error::WebError, page::WebCaller},
    },
};

/// Sends the events of a turn from its beginning, or after `Last-Event-ID`. A turn that another
/// server runs is waited for. One whose server has died is answered again. 204: there is nothing to
/// send.
pub(super) async fn turn_events(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams((id, request_id)): PathParams<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, WebError> {
    let session = parse::conversation_id(&id).map_err(Problem::from)?;
    let request_id = parse::request_id(&request_id).map_err(Problem::from)?;
    let resume_point = headers
        .get(LAST_EVENT_ID)
        .and_then(|id| ResumePoint::parse(id.as_bytes()));
    if resume_point.as_ref().is_some_and(|point| point.is_end) {
        return Ok(nothing_to_send());
    }
    let store = &state.services.state.store;
    // A registry of turns is asked only after the store: the caller may be bound.
    let found = store
        .find_turn(http_caller.caller, session, request_id.unwrap_or_default())
        .await
        .map_err(Failure::from)?;
    let Some(found) = found else {
        return Ok(nothing_to_send());
    };
    let Some(ask) = turn::find_request(&http_caller, session, &found).await? else {
        return Ok(nothing_to_send());
    };
    let permit = state
        .services
        .state
        .reader_limit
        .try_acquire(http_caller.caller.tenant())
        .inspect_err(|_| {
            metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
        })?;
    let turn_request = TurnRequest {
        ask,
        session,
        session_origin: SessionOrigin::Existing,
        when_busy: WhenBusy::Wait,
        resume_point,
    };
    let proof = http_caller.proof();
    let reader =
        state
            .running_turns
            .join_or_start(http_caller, turn_request, state.closing.clone());
    Ok(chat::sse_response(TurnStream::new(reader, permit, proof)))
}

fn nothing_to_send() -> Response {
    StatusCode::NO_CONTENT.into_response()
}
