//! POST /api/agents/{id}/chat.

use anneal_core::{caller::ConversationId, digest, message::MessageId};
use anneal_proto::{
    convert::{message, parse},
    v1::{
        self as pb, conversation_service_server::ConversationService as _,
        message_service_server::MessageService as _,
    },
};
use anneal_store::{Entity, StoreError, TurnCandidate, TurnKey};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response, sse::Event},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::stream;
use tokio_util::task::AbortOnDropHandle;

use super::{
    caller::{Authorized, EndpointRpcs, HttpCaller},
    chat_body::{ChatBody, prompt},
    extractors::{JsonBody, NoParams, PathParams, QueryParams},
    problem::Problem,
    resumable_turns::{
        ResumePoint, SessionOrigin, TurnEvent, TurnFailed, TurnReader, TurnRequest, WhenBusy,
    },
    session,
    sse::{self, LAST_EVENT_ID},
    state::HttpState,
};
use crate::{
    auth::Proof, failure::Failure, limits::concurrency::Permit, reason::Reason,
    usecases::chat_turn, verbs::Rpc,
};

/// The RPCs of this endpoint. Only `chat` is listed: its verbs, append and read, are enough for the
/// other RPCs that are called. A request that joins a running turn needs the same verbs.
pub(super) struct ChatTurn;

impl EndpointRpcs for ChatTurn {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("chat")];
}

/// Runs one turn of a chat, and sends its events.
///
/// Stores the user's message, calls the model, sends the answer as it is generated, and stores it.
/// The turn goes on if the client disconnects. The same request with Last-Event-ID, and with the
/// same body or an empty one, sends exactly the missing events. A turn that is refused stores
/// nothing, and a session that was created for it is deleted.
#[utoipa::path(
    post,
    path = "/api/agents/{id}/chat",
    params(
        ("id" = String, Path, description = "the agent"),
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that was received")
    ),
    request_body = ChatBody,
    responses(
        (status = 200, body = TurnEvent, content_type = "text/event-stream"),
        (status = 204, description = "nothing is missing: Last-Event-ID is that of the last event"),
        (status = "default", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn chat(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<ChatTurn>,
    PathParams(agent): PathParams<String>,
    _: QueryParams<NoParams>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<ChatBody>,
) -> Result<Response, Problem> {
    session::parse_agent_id(&agent)?;
    let permit = state
        .services
        .state
        .reader_limit
        .try_acquire(http_caller.caller.tenant());
    let permit = permit.inspect_err(|_| {
        metrics::counter!("anneal_shed_total", "rpc" => "chat_reader").increment(1);
    })?;
    let proof = http_caller.proof();
    let Some(id) = headers.get(LAST_EVENT_ID) else {
        let reader = start_turn(&state, http_caller, &agent, body.unwrap_or_default()).await?;
        return Ok(sse_response(TurnStream::new(reader, permit, proof)));
    };
    let resume_point = ResumePoint::parse(id.as_bytes());
    let resume_point = resume_point.ok_or_else(invalid_event_id)?;
    let turn_request =
        prepare_resumed_turn(&http_caller, &agent, resume_point, body.unwrap_or_default()).await?;
    if turn_request
        .resume_point
        .as_ref()
        .is_some_and(|resume_point| resume_point.is_end)
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reader =
        state
            .running_turns
            .join_or_start(http_caller, turn_request, state.closing.clone());
    Ok(sse_response(TurnStream::new(reader, permit, proof)))
}

/// Most times that a session is created for one turn.
const MAX_SESSION_CREATIONS: usize = 3;

/// Starts a turn, and waits until the user's message is stored. If the client has sent the same
/// request to another server, that server may refuse it and delete the session, which both requests
/// share. The session is then created again.
async fn start_turn(
    state: &HttpState,
    http_caller: HttpCaller,
    agent: &str,
    body: ChatBody,
) -> Result<TurnReader, Problem> {
    let mut creations = 0;
    loop {
        let turn_request = prepare_turn(&http_caller, agent, body.clone()).await?;
        creations += usize::from(turn_request.session_origin == SessionOrigin::Created);
        let may_create_again = turn_request.session_origin == SessionOrigin::Created
            && creations < MAX_SESSION_CREATIONS;
        let mut reader = state.running_turns.join_or_start(
            http_caller.clone(),
            turn_request,
            state.closing.clone(),
        );
        match reader.wait_for_start().await {
            Err(problem) if may_create_again && problem.is(Reason::ConversationNotFound) => {}
            Err(problem) => return Err(problem),
            Ok(()) => return Ok(reader),
        }
    }
}

/// Makes the request of a turn that begins. Creates the session, if the body names none.
async fn prepare_turn(
    http_caller: &HttpCaller,
    agent: &str,
    body: ChatBody,
) -> Result<TurnRequest, Problem> {
    let messages = prompt(&body)?;
    let request_id = match &body.request_id {
        Some(id) if !id.is_empty() => id.clone(),
        _ => uuid::Uuid::new_v4().to_string(),
    };
    let (session_id, user_id) = (body.session_id.clone(), body.user_id.clone());
    // Checked before a session is created.
    let mut ask = body.into_request((String::new(), request_id.clone()), messages)?;
    let (conversation, session_origin) = match session_id {
        Some(id) => (
            session::get_for_agent(http_caller, agent, &id).await?,
            SessionOrigin::Existing,
        ),
        None => (
            create_session(http_caller, agent, &request_id, user_id).await?,
            SessionOrigin::Created,
        ),
    };
    ask.conversation_id = conversation.conversation_id;
    Ok(TurnRequest {
        session: parse::conversation_id(&ask.conversation_id)?,
        ask,
        session_origin,
        when_busy: WhenBusy::Refuse,
        resume_point: None,
    })
}

/// Makes the request of a turn that a reader comes back to. The user's message comes from the
/// store. If the body has a message, it must be equal to the stored one. An edit comes with its
/// body, because its request has the message.
async fn prepare_resumed_turn(
    http_caller: &HttpCaller,
    agent: &str,
    resume_point: ResumePoint,
    mut body: ChatBody,
) -> Result<TurnRequest, Problem> {
    // Without a body, a question that was answered anew was not edited: an edit has a message.
    body.regenerate |= matches!(resume_point.turn, TurnKey::Anew(_))
        && body.has_no_prompt()
        && body.edit_message_id.is_none();
    let (session, request_id) = find_turn(http_caller, agent, &resume_point, &body).await?;
    let messages = match resume_point.turn {
        TurnKey::Anew(_) if !body.regenerate && body.edit_message_id.is_none() => {
            return Err(invalid_event_id());
        }
        TurnKey::Anew(_) => {
            let messages = prompt(&body)?;
            let edit = (body.edit_message_id, messages.as_slice());
            check_question(http_caller, session, &request_id, edit).await?;
            messages
        }
        TurnKey::Message(_) if body.regenerate || body.edit_message_id.is_some() => {
            return Err(invalid_event_id());
        }
        TurnKey::Message(first) if body.has_no_prompt() => {
            load_prompt(http_caller, session, &request_id, first).await?
        }
        TurnKey::Message(first) => {
            let messages = prompt(&body)?;
            match find_stored_prompt(http_caller, session, &request_id, &messages).await? {
                Some(id) if id == first => messages,
                _ => return Err(invalid_event_id()),
            }
        }
    };
    Ok(TurnRequest {
        ask: body.into_request((session.to_string(), request_id), messages)?,
        session,
        session_origin: SessionOrigin::Existing,
        when_busy: WhenBusy::Wait,
        resume_point: Some(resume_point),
    })
}

/// Finds the session of this agent and the request id of the turn that the resume point names. If
/// the body names them too, they must be the same. The resume point abbreviates the session's id;
/// if several ids are abbreviated alike, the body must name the session.
async fn find_turn(
    http_caller: &HttpCaller,
    agent: &str,
    resume_point: &ResumePoint,
    body: &ChatBody,
) -> Result<(ConversationId, String), Problem> {
    let store = &http_caller.services.state.store;
    let found = store
        .find_turns(
            http_caller.caller,
            agent,
            resume_point.session,
            resume_point.turn,
        )
        .await;
    let mut candidates: Vec<TurnCandidate> = found.map_err(Failure::from)?;
    if candidates.is_empty() {
        return Err(Failure::from(StoreError::NotFound(Entity::Conversation)).into());
    }
    if let Some(session) = &body.session_id {
        candidates.retain(|candidate| candidate.conversation_id.to_string() == *session);
    }
    let turn = match candidates.as_slice() {
        [turn] => turn,
        [] => {
            return Err(Problem::invalid(
                "sessionId",
                "is not that of the Last-Event-ID",
            ));
        }
        _ => {
            return Err(Problem::invalid(
                "sessionId",
                "is required: several sessions have ids that this Last-Event-ID may stand for",
            ));
        }
    };
    let request_id = turn.request_id.clone().ok_or_else(invalid_event_id)?;
    if body.request_id.as_ref().is_some_and(|id| *id != request_id) {
        return Err(Problem::invalid(
            "requestId",
            "is not that of the Last-Event-ID",
        ));
    }
    Ok((turn.conversation_id, request_id))
}

/// Most messages of a prompt: results of tools, and a message of the user.
const PROMPT_MESSAGES: i64 = 2;

/// Loads the messages of a turn's prompt, of which the first has this id. Fails if the message
/// belongs to no turn, but to an append: the message id comes from the client.
async fn load_prompt(
    http_caller: &HttpCaller,
    session: ConversationId,
    request_id: &str,
    first: MessageId,
) -> Result<Vec<pb::NewMessage>, Problem> {
    let mut messages = Vec::new();
    for id in first.0..first.0.saturating_add(PROMPT_MESSAGES) {
        let ask = pb::GetMessageRequest {
            conversation_id: session.to_string(),
            message_id: id,
            ..pb::GetMessageRequest::default()
        };
        let found = http_caller
            .services
            .get_message(http_caller.request(ask))
            .await;
        let found = match found {
            Err(_) if !messages.is_empty() => break,
            found => found?,
        };
        let (_, found, _reservation) = found.into_parts();
        let stored = found.message.unwrap_or_default();
        let role = stored.role();
        messages.push(pb::NewMessage::from(stored));
        match find_stored_prompt(http_caller, session, request_id, &messages).await {
            Ok(Some(id)) if id == first => return Ok(messages),
            Err(problem) if !problem.is(Reason::RequestIdReused) => return Err(problem),
            // The prompt may go on after results of tools.
            Ok(_) | Err(_) if role == pb::Role::Tool => {}
            Ok(_) | Err(_) => break,
        }
    }
    Err(invalid_event_id())
}

/// The id of the first of these messages, if they are the prompt of the turn with this request id.
/// None: the turn has stored other messages than these, or none. Fails if the request id is that of
/// another prompt, or of an append that is no turn.
async fn find_stored_prompt(
    http_caller: &HttpCaller,
    session: ConversationId,
    request_id: &str,
    messages: &[pb::NewMessage],
) -> Result<Option<MessageId>, Problem> {
    let messages = message::parse_at_least_one("messages", messages.to_vec())?;
    let found = chat_turn::find_prompt(
        &http_caller.services.state,
        http_caller.caller,
        session,
        request_id,
        messages,
    );
    found.await.map_err(Problem::from)
}

/// Fails if the turn with this request id answers another question anew than the edited one, or the
/// newest one if none is edited.
async fn check_question(
    http_caller: &HttpCaller,
    session: ConversationId,
    request_id: &str,
    (edit, messages): (Option<i64>, &[pb::NewMessage]),
) -> Result<(), Problem> {
    let edited = match edit {
        None => None,
        Some(number) => {
            let id = parse::message_id("edit_message_id", number)?;
            let messages = message::parse_at_least_one("messages", messages.to_vec())?;
            messages.into_iter().next().map(|message| (id, message))
        }
    };
    let (state, caller) = (&http_caller.services.state, http_caller.caller);
    chat_turn::check_question(state, caller, session, request_id, edited)
        .await
        .map_err(Problem::from)
}

fn invalid_event_id() -> Problem {
    Problem::invalid("Last-Event-ID", "is not the id of an event of a chat")
}

/// Creates a session of the agent; a repeated request gets the same session. The request id of the
/// creation is derived from the agent and `request_id`, because requests for other agents and of
/// gRPC clients may have the same `request_id`.
async fn create_session(
    http_caller: &HttpCaller,
    agent: &str,
    request_id: &str,
    user_id: Option<String>,
) -> Result<pb::Conversation, Problem> {
    parse::request_id(request_id)?;
    let agent_and_request = digest::of_fields([agent.as_bytes(), request_id.as_bytes()]);
    let ask = pb::CreateConversationRequest {
        request_id: format!("http chat {}", URL_SAFE_NO_PAD.encode(agent_and_request)),
        agent_id: agent.to_owned(),
        user_id: user_id.unwrap_or_default(),
        ..pb::CreateConversationRequest::default()
    };
    Ok(http_caller
        .services
        .create_conversation(http_caller.request(ask))
        .await?
        .into_inner())
}

/// The events of a turn as server-sent events.
pub(super) fn sse_response(turn_stream: TurnStream) -> Response {
    sse::response(stream::unfold(turn_stream, |mut turn_stream| async {
        let event = match turn_stream.next().await? {
            (Some(id), event) => Event::default().id(id).json_data(event),
            (None, event) => Event::default().json_data(event),
        };
        Some((event, turn_stream))
    }))
}

/// The events of a turn for one client, as long as its credential is valid.
pub(super) struct TurnStream {
    /// None: the credential has become invalid.
    reader: Option<TurnReader>,
    /// Ends when the credential becomes invalid. It is a task of its own, because `next` is not
    /// polled while the client does not read. None: callers need no credential.
    credential_check: Option<AbortOnDropHandle<Failure>>,
    _permit: Permit,
}

impl TurnStream {
    pub(super) fn new(reader: TurnReader, permit: Permit, proof: Option<Proof>) -> Self {
        let credential_check = proof.map(|proof| {
            AbortOnDropHandle::new(tokio::spawn(
                async move { proof.wait_until_invalid().await },
            ))
        });
        Self {
            reader: Some(reader),
            credential_check,
            _permit: permit,
        }
    }

    /// The turn in the session, once its first event was returned.
    pub(super) fn turn(&self) -> Option<TurnKey> {
        self.reader.as_ref().map(TurnReader::turn)
    }

    /// The next event and its id. The event for an invalid credential has no id, because it does
    /// not change the resume point. None: the turn has ended, or that event was the last one.
    pub(super) async fn next(&mut self) -> Option<(Option<String>, TurnEvent)> {
        let reader = self.reader.as_mut()?;
        let credential_ends = async {
            match &mut self.credential_check {
                Some(credential_check) => credential_check.await.unwrap_or(Failure::Panicked),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            failure = credential_ends => {
                self.reader = None;
                Some((None, TurnEvent::Error(TurnFailed { problem: failure.into() })))
            }
            event = reader.next() => event.map(|(id, event)| (Some(id), event)),
        }
    }
}
