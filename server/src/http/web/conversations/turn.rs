//! A turn of the page: it is begun by a form, and goes on without its reader.

use std::time::Duration;

use anneal_proto::convert::parse;
use anneal_web::conversation::RunningTurn;
use axum::response::Response;

use super::paths;
use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        chat_body::{self, ChatBody},
        problem::Problem,
        resumable_turns::{SessionOrigin, TurnEvent, TurnRequest, WhenBusy},
        state::HttpState,
        web::page::{self, NoticeCode},
    },
};

/// How long a failure of the model may take to become a notice on the page that follows the form. A
/// later one comes with the events of the turn.
const FAILURE_WAIT: Duration = Duration::from_millis(100);

/// Begins a turn, and waits until its question is stored. A turn with a request id that was begun
/// before is joined. Returns what the page that follows says of it.
pub(super) async fn begin(
    state: &HttpState,
    http_caller: HttpCaller,
    (id, request_id): (&str, String),
    body: ChatBody,
    session_origin: SessionOrigin,
) -> Result<Option<NoticeCode>, Problem> {
    let session = parse::conversation_id(id)?;
    let messages = chat_body::prompt(&body)?;
    // The registry of turns is asked only after the store: the caller may be bound.
    super::get_conversation(&http_caller, id).await?;
    let turn_request = TurnRequest {
        ask: body.into_request((id.to_owned(), request_id), messages)?,
        session,
        session_origin,
        when_busy: WhenBusy::Refuse,
        resume_point: None,
    };
    let mut reader =
        state
            .running_turns
            .join_or_start(http_caller, turn_request, state.closing.clone());
    reader.wait_for_start().await?;
    let failure = async {
        while let Some((_, event)) = reader.next().await {
            match event {
                TurnEvent::Started(_) => {}
                TurnEvent::Error(_) => return Some(NoticeCode::NotAnswered),
                _ => break,
            }
        }
        None
    };
    let failure = tokio::time::timeout(FAILURE_WAIT, failure).await;
    Ok(failure.unwrap_or(None))
}

/// The turn that is under way in a conversation, on whichever server it runs. None: there is none,
/// or its question is not stored yet.
pub(super) async fn find_running(
    http_caller: &HttpCaller,
    id: &str,
) -> Result<Option<RunningTurn>, Problem> {
    let session = parse::conversation_id(id)?;
    let store = &http_caller.services.state.store;
    let found = store
        .find_turn_under_way(http_caller.caller, session)
        .await
        .map_err(Failure::from)?;
    let found = found.filter(|turn| turn.question.is_some());
    Ok(found.map(|turn| RunningTurn {
        events_url: paths::turn_events(id, &turn.request_id),
        stop_url: format!("{}/stop", paths::conversation(id)),
        request_id: turn.request_id,
    }))
}

/// The answer to a form that has begun a turn: the page of its conversation. A notice stands at the
/// page's top, the answer comes at its end.
pub(super) fn show(id: &str, notice: Option<NoticeCode>) -> Response {
    let path = match notice {
        None => paths::end(id),
        Some(_) => paths::conversation(id),
    };
    page::see_other(&path, notice)
}

/// Whether a turn with this request id has stored its question, or has begun to answer one anew.
pub(super) async fn has_begun(
    http_caller: &HttpCaller,
    id: &str,
    request_id: &str,
) -> Result<bool, Problem> {
    let session = parse::conversation_id(id)?;
    let store = &http_caller.services.state.store;
    let found = store
        .find_turn(http_caller.caller, session, request_id)
        .await
        .map_err(Failure::from)?;
    Ok(found.is_some_and(|turn| turn.question.is_some()))
}

/// The request id of a form, or one of its own.
pub(super) fn request_id(given: String) -> String {
    if given.is_empty() {
        random_request_id()
    } else {
        given
    }
}

/// The request id of one of several forms of a page, which have the same id. `form` names it.
pub(super) fn request_id_of(form: &str, given: &str) -> String {
    if given.is_empty() {
        random_request_id()
    } else {
        format!("{given} {form}")
    }
}

/// A text of a form, with the line breaks that the person has written: browsers send others.
pub(super) fn text(field: &str) -> String {
    field.replace("\r\n", "\n")
}

pub(super) fn random_request_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
