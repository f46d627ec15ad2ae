//! POST /api/agents/{id}/ui.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};

use tracing::warn;

use super::{
    UiTurn,
    answer_stream::{self, AnswerMessage},
    body::{Trigger, UiAsk, UiBody},
    prompt,
    stored_chat::{self, StoredChat},
};
use crate::{
    http::{
        caller::{Authorized, HttpCaller},
        chat::TurnStream,
        extractors::{JsonBody, NoParams, PathParams, QueryParams},
        problem::Problem,
        resumable_turns::{SessionOrigin, TurnReader, TurnRequest, WhenBusy},
        session,
        state::HttpState,
    },
    limits::cpu_pool,
    reason::Reason,
};

/// Runs one turn of a chat, and sends its answer as a UI message stream. The turn goes on if the
/// client disconnects.
pub(super) async fn post_turn(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<UiTurn>,
    PathParams(agent): PathParams<String>,
    _: QueryParams<NoParams>,
    JsonBody(body): JsonBody<UiBody>,
) -> Result<Response, Problem> {
    session::parse_agent_id(&agent)?;
    let body = body.ok_or_else(|| {
        let detail = "the body must be the JSON object that DefaultChatTransport sends";
        Problem::malformed(StatusCode::BAD_REQUEST, detail)
    })?;
    let server = &state.services.state;
    let permit = server
        .reader_limit
        .try_acquire(http_caller.caller.tenant())
        .inspect_err(|_| {
            metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
        })?;
    let (bytes, count) = body.size();
    let is_long = cpu_pool::is_long(bytes, count);
    let parse = move || {
        let ask = body.parse()?;
        // Refused before a conversation is created for it. Another answer may need no message.
        if ask.trigger == Trigger::SubmitMessage {
            ask.convert_last()?;
        }
        Ok(ask)
    };
    let tenant = http_caller.caller.tenant();
    let ask: Result<UiAsk, Problem> = server.cpu.run_if(is_long, tenant, parse).await?;
    let proof = http_caller.proof();
    let (reader, answer) = start_turn(&state, http_caller, &agent, &Arc::new(ask?)).await?;
    let turn_stream = TurnStream::new(reader, permit, proof);
    Ok(answer_stream::response(turn_stream, answer))
}

/// Most times that a conversation is created for one turn.
const MAX_CREATIONS: usize = 3;

/// Starts a turn, and waits until its question is stored. Another server may refuse the same
/// request and delete the conversation that both have created; it is then created again.
async fn start_turn(
    state: &HttpState,
    http_caller: HttpCaller,
    agent: &str,
    ask: &Arc<UiAsk>,
) -> Result<(TurnReader, AnswerMessage), Problem> {
    let mut creations = 0;
    loop {
        let (turn_request, answer) = prepare_turn(&http_caller, agent, ask).await?;
        let is_created = turn_request.session_origin == SessionOrigin::Created;
        creations += usize::from(is_created);
        let mut reader = state.running_turns.join_or_start(
            http_caller.clone(),
            turn_request,
            state.closing.clone(),
        );
        match reader.wait_for_start().await {
            Err(problem)
                if is_created
                    && creations < MAX_CREATIONS
                    && problem.is(Reason::ConversationNotFound) => {}
            Err(problem) => return Err(problem),
            Ok(()) => return Ok((reader, answer)),
        }
    }
}

/// Finds or creates the conversation, and makes the request of the turn. A conversation that was
/// created for a request that is refused is deleted.
async fn prepare_turn(
    http_caller: &HttpCaller,
    agent: &str,
    ask: &Arc<UiAsk>,
) -> Result<(TurnRequest, AnswerMessage), Problem> {
    let place = (agent, ask.chat.as_str());
    let (chat, is_created) = stored_chat::resolve(http_caller, place, ask.user_id.as_ref()).await?;
    let (caller, conversation) = (http_caller.caller, chat.conversation);
    let prepared = prepare_turn_in(chat, is_created, ask).await;
    if prepared.is_err() && is_created {
        let store = &http_caller.services.state.store;
        if let Err(error) = store.delete_empty_conversation(caller, conversation).await {
            store.log_failure(&error, || {
                warn!(conversation.id = %conversation, "could not delete the conversation that was created for a turn: {error}");
            });
        }
    }
    prepared
}

/// Makes the request of a turn in this conversation.
async fn prepare_turn_in(
    mut chat: StoredChat<'_>,
    is_created: bool,
    ask: &Arc<UiAsk>,
) -> Result<(TurnRequest, AnswerMessage), Problem> {
    let is_new = chat.newest == 0 || check_import_is_open(&chat, ask).await?;
    let prompt = if is_new {
        prompt::import_and_ask(&mut chat, ask).await?
    } else {
        prompt::find_prompt(&chat, ask).await?
    };
    let answer = AnswerMessage::new(chat.conversation, prompt.continues.clone());
    let turn_request = TurnRequest {
        ask: prompt.into_request(&chat.id, ask.options.clone())?,
        session: chat.conversation,
        session_origin: if is_created && chat.newest == 0 {
            SessionOrigin::Created
        } else {
            SessionOrigin::Existing
        },
        when_busy: WhenBusy::Refuse,
        resume_point: None,
    };
    Ok((turn_request, answer))
}

/// Whether the import of the request's history was broken off.
async fn check_import_is_open(chat: &StoredChat<'_>, ask: &UiAsk) -> Result<bool, Problem> {
    if prompt::may_be_unfinished(chat, ask) {
        return chat.check_import_is_open().await;
    }
    Ok(false)
}
