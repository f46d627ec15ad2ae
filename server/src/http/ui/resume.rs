//! GET /api/agents/{id}/ui/{chat}/stream.

use std::time::Duration;

use anneal_core::message::Message;
use anneal_proto::{
    convert::{message, session::parse_scope},
    v1 as pb,
};
use anneal_store::{Anew, AnewAsk, StoreError};
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};

use super::{
    UiTurn,
    answer_stream::{self, AnswerMessage},
    ids::scope,
    labels,
    prompt::Prompt,
    stored_chat::{StoredChat, label},
};
use crate::{
    failure::Failure,
    http::{
        caller::{Authorized, HttpCaller},
        chat::TurnStream,
        chat_body::ChatBody,
        extractors::{NoParams, PathParams, QueryParams},
        problem::Problem,
        resumable_turns::{SessionOrigin, TurnRequest, WhenBusy},
        session,
        state::HttpState,
    },
    usecases::chat_turn::answer_request_id,
};

/// How long a refusal of the turn may take to become the answer's status. A turn that another
/// server runs takes longer to join: the answer begins, and its refusal would be an `error` chunk.
const START_WAIT: Duration = Duration::from_secs(1);

/// Sends the answer that is under way in a chat, from its beginning: also of a turn that another
/// server runs, or whose server has died. 204: no question of this door waits for its answer.
pub(super) async fn resume(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<UiTurn>,
    PathParams((agent, chat)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
) -> Result<Response, Problem> {
    session::parse_agent_id(&agent)?;
    let Some(chat) = find_chat(&http_caller, &agent, &chat).await? else {
        return Ok(nothing_to_resume());
    };
    let Some(prompt) = find_open_prompt(&chat).await? else {
        return Ok(nothing_to_resume());
    };
    let permit = state
        .services
        .state
        .reader_limit
        .try_acquire(http_caller.caller.tenant())
        .inspect_err(|_| {
            metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
        })?;
    let answer = AnswerMessage::new(chat.conversation, prompt.continues.clone());
    let turn_request = TurnRequest {
        ask: prompt.into_request(&chat.id, ChatBody::default())?,
        session: chat.conversation,
        session_origin: SessionOrigin::Existing,
        when_busy: WhenBusy::Wait,
        resume_point: None,
    };
    let proof = http_caller.proof();
    let mut reader =
        state
            .running_turns
            .join_or_start(http_caller.clone(), turn_request, state.closing.clone());
    match tokio::time::timeout(START_WAIT, reader.wait_for_start()).await {
        // The question was withdrawn, or the conversation has gone on or is deleted.
        Ok(Err(problem)) if says_nothing_runs(problem.status()) => return Ok(nothing_to_resume()),
        Ok(Err(problem)) => return Err(problem),
        Ok(Ok(())) | Err(_) => {}
    }
    let turn_stream = TurnStream::new(reader, permit, proof);
    Ok(answer_stream::response(turn_stream, answer))
}

/// Whether a refusal with this status says that no answer is under way. Others say that the caller
/// may not ask now.
const fn says_nothing_runs(status: u16) -> bool {
    matches!(status, 400 | 404 | 409 | 410 | 412 | 422)
}

fn nothing_to_resume() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Finds the conversation of a chat. None: the tenant has no such chat.
async fn find_chat<'a>(
    http_caller: &'a HttpCaller,
    agent: &str,
    chat: &str,
) -> Result<Option<StoredChat<'a>>, Problem> {
    // An id that no chat can have is unknown as well.
    let Ok(scope) = parse_scope(Some(scope(http_caller.caller, agent, chat))) else {
        return Ok(None);
    };
    let store = &http_caller.services.state.store;
    let found = store.find_session(http_caller.caller, &scope.resolved.key);
    let found = found.await.map_err(Failure::from)?;
    Ok(found.map(|session| StoredChat {
        http_caller,
        id: session.conversation.id.to_string(),
        conversation: session.conversation.id,
        newest: session.conversation.last_message_id.0,
    }))
}

/// The prompt of the newest turn of this door, if its question stands and has no answer. The turn
/// runs, or has failed, or its server has died. None: there is none.
async fn find_open_prompt(chat: &StoredChat<'_>) -> Result<Option<Prompt>, Problem> {
    let mut newest = chat.list_newest(2).await?.into_iter();
    let Some(last) = newest.next() else {
        return Ok(None);
    };
    let prompt = match last.role() {
        pb::Role::User => match find_anew(chat, &last).await? {
            Some(prompt) => Some(prompt),
            None => stored_question(last, newest.next()),
        },
        pb::Role::Tool => stored_outputs(last),
        pb::Role::Assistant | pb::Role::System | pb::Role::Unspecified => None,
    };
    let Some(prompt) = prompt else {
        return Ok(None);
    };
    let (store, caller) = (
        &chat.http_caller.services.state.store,
        chat.http_caller.caller,
    );
    let answer = answer_request_id(&prompt.request_id);
    let end = store.find_turn_end(caller, chat.conversation, &answer);
    let has_ended = end.await.map_err(Failure::from)?.is_some();
    Ok((!has_ended).then_some(prompt))
}

/// The turn that answers this stored question anew, as long as no message came after. None: there
/// is none. Of two such turns the later one.
async fn find_anew(
    chat: &StoredChat<'_>,
    question: &pb::Message,
) -> Result<Option<Prompt>, Problem> {
    let id = question.message_id;
    let content = pb::NewMessage::from(question.clone());
    let parsed: Message = message::parse("message", content.clone())?;
    let edited = anneal_core::message::MessageId(id);
    let turns = [
        (
            Prompt::of_regeneration(id, chat.newest),
            AnewAsk::digest(None),
        ),
        (
            Prompt::of_edit(id, chat.newest, content),
            AnewAsk::digest(Some((edited, &parsed))),
        ),
    ];
    let mut latest: Option<(i64, Prompt)> = None;
    for (prompt, digest) in turns {
        let store = &chat.http_caller.services.state.store;
        let found: Result<Option<Anew>, StoreError> = store
            .find_anew(
                chat.http_caller.caller,
                chat.conversation,
                &prompt.request_id,
                digest,
            )
            .await;
        let found = match found {
            // The labels of the question have changed since.
            Err(StoreError::RequestIdReused) => None,
            found => found.map_err(Failure::from)?,
        };
        if let Some(anew) = found
            && latest
                .as_ref()
                .is_none_or(|(change, _)| *change < anew.change_id)
        {
            latest = Some((anew.change_id, prompt));
        }
    }
    Ok(latest.map(|(_, prompt)| prompt))
}

/// A stored question of this door, with the results of tools that came with it.
fn stored_question(question: pb::Message, before: Option<pb::Message>) -> Option<Prompt> {
    let id = label(&question, labels::ID)?.to_owned();
    let results = before.filter(|before| {
        before.role() == pb::Role::Tool && label(before, labels::ID) == Some(id.as_str())
    });
    let messages = results.into_iter().chain([question]);
    let messages = messages.map(pb::NewMessage::from).collect();
    Some(Prompt::of_stored_question(messages, &id))
}

/// Stored outputs of a step, which an answer continues.
fn stored_outputs(outputs: pb::Message) -> Option<Prompt> {
    let continues = label(&outputs, labels::CONTINUES)?.to_owned();
    let step = label(&outputs, labels::STEP)?.parse().ok()?;
    Some(Prompt::of_stored_outputs(outputs.into(), &continues, step))
}
