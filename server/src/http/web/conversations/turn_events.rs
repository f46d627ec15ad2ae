//! GET /conversations/{id}/turns/{request}/events: the events of a turn as it answers.

use std::time::Duration;

use anneal_core::caller::ConversationId;
use anneal_proto::convert::parse;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response, sse::Event},
};
use futures::{StreamExt as _, stream};
use serde::Serialize;

use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        chat::{self, ChatTurn, TurnStream},
        extractors::PathParams,
        problem::Problem,
        resumable_turns::ResumePoint,
        sse::{self, LAST_EVENT_ID},
        state::HttpState,
        web::{csrf, error::WebError, page::WebCaller},
    },
};

/// Time between two looks at a turn that another server runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The only event of a turn that does not run here.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PageEvent {
    /// The turn is not under way any more, or never was. The page shows what is stored.
    Ended,
}

/// Sends the events of a turn that runs here, from its beginning or after `Last-Event-ID`. A turn
/// that another server runs is waited for. Begins nothing: a question whose server has died is
/// answered anew by a form. 204: there is nothing to send.
pub(super) async fn turn_events(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<ChatTurn>,
    PathParams((id, request_id)): PathParams<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, WebError> {
    csrf::check_is_own_stream(&headers)?;
    let session = parse::conversation_id(&id).map_err(Problem::from)?;
    let request_id = parse::request_id(&request_id).map_err(Problem::from)?;
    let request_id = request_id.unwrap_or_default().to_owned();
    let resume_point = headers
        .get(LAST_EVENT_ID)
        .and_then(|id| ResumePoint::parse(id.as_bytes()));
    if resume_point.as_ref().is_some_and(|point| point.is_end) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // The registry of turns is asked only after the store: the caller may be bound.
    super::get_conversation(&http_caller, &id).await?;
    let tenant = http_caller.caller.tenant();
    let readers = &state.services.state.reader_limit;
    let permit = readers.try_acquire(tenant).inspect_err(|_| {
        metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
    })?;
    let turns = &state.running_turns;
    if let Some(reader) = turns.join((tenant, session), &request_id, resume_point.as_ref()) {
        let stream = TurnStream::new(reader, permit, http_caller.proof());
        return Ok(chat::sse_response(stream));
    }
    let ended = async move {
        let _permit = permit;
        while is_under_way(&http_caller, session, &request_id).await {
            // The browser comes back, to another server.
            if state.closing.is_cancelled() || http_caller.recheck_credential().await.is_err() {
                return None;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Some(Event::default().json_data(PageEvent::Ended))
    };
    let events = stream::once(ended).filter_map(async |event| event);
    Ok(sse::response(events))
}

/// Whether a turn runs on another server. A turn of which the database cannot tell is taken for one.
async fn is_under_way(http_caller: &HttpCaller, session: ConversationId, request_id: &str) -> bool {
    let store = &http_caller.services.state.store;
    let found = store
        .find_turn_under_way(http_caller.caller, session)
        .await
        .map_err(Failure::from);
    match found {
        Ok(turn) => turn.is_some_and(|turn| turn.request_id == request_id),
        Err(failure) => matches!(failure, Failure::Store(_)),
    }
}
