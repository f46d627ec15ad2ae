//! A turn of the page: it is begun by a form, and goes on without its reader.

use std::{collections::HashMap, time::Duration};

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::{
    convert::{message, parse},
    v1::{self as pb, message_service_server::MessageService as _},
};
use anneal_store::{AnewAsk, AskedTurn, StoreError, TurnQuestion};

use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        chat,
        chat_body::{self, ChatBody},
        problem::Problem,
        resumable_turns::{SessionOrigin, TurnEvent, TurnRequest, WhenBusy},
        state::HttpState,
    },
    reason::Reason,
};

/// How long a failure of the model may take to become the answer to a form. A later one comes with
/// the events of the turn.
const FAILURE_WAIT: Duration = Duration::from_millis(100);

/// Begins a turn, and waits until its question is stored. A turn with a request id that was begun
/// before is joined.
pub(super) async fn begin(
    state: &HttpState,
    http_caller: HttpCaller,
    (id, request_id): (&str, String),
    body: ChatBody,
    session_origin: SessionOrigin,
) -> Result<(), Problem> {
    let session = parse::conversation_id(id)?;
    let messages = chat_body::prompt(&body)?;
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
                TurnEvent::Error(failed) => return Err(failed.problem),
                _ => break,
            }
        }
        Ok(())
    };
    tokio::time::timeout(FAILURE_WAIT, failure)
        .await
        .unwrap_or(Ok(()))
}

/// The request of a turn whose question is stored, so that any server can go on with it. None: the
/// conversation has no such turn, or its question does not stand any more.
pub(super) async fn find_request(
    http_caller: &HttpCaller,
    session: ConversationId,
    turn: &AskedTurn,
) -> Result<Option<pb::ChatRequest>, Problem> {
    let request_id = &turn.request_id;
    let found = match turn.question {
        None => None,
        Some(TurnQuestion::Messages(first)) => {
            let prompt = chat::load_prompt(http_caller, session, request_id, first).await;
            match prompt {
                Ok(messages) => Some((ChatBody::default(), messages)),
                // The messages were appended, and are no question of a turn.
                Err(problem) if problem.is(Reason::InvalidField) => None,
                Err(problem) => return Err(problem),
            }
        }
        Some(TurnQuestion::Anew(question)) => {
            find_anew(http_caller, session, request_id, question).await?
        }
    };
    let ask = found.map(|(body, messages)| {
        body.into_request((session.to_string(), request_id.clone()), messages)
    });
    ask.transpose()
}

/// What a turn has asked for that answers a question anew.
async fn find_anew(
    http_caller: &HttpCaller,
    session: ConversationId,
    request_id: &str,
    question: MessageId,
) -> Result<Option<(ChatBody, Vec<pb::NewMessage>)>, Problem> {
    if is_anew(http_caller, session, request_id, None).await? {
        let body = ChatBody {
            regenerate: true,
            ..ChatBody::default()
        };
        return Ok(Some((body, Vec::new())));
    }
    let ask = pb::GetMessageRequest {
        conversation_id: session.to_string(),
        message_id: question.0,
        ..pb::GetMessageRequest::default()
    };
    let found = http_caller
        .services
        .get_message(http_caller.request(ask))
        .await?;
    let (_, found, _reservation) = found.into_parts();
    let stored = pb::NewMessage::from(found.message.unwrap_or_default());
    // An edit without labels has kept those that are stored.
    let unlabelled = pb::NewMessage {
        metadata: HashMap::new(),
        ..stored.clone()
    };
    for message in [unlabelled, stored] {
        let edited = Some((question, &message));
        if is_anew(http_caller, session, request_id, edited).await? {
            let body = ChatBody {
                edit_message_id: Some(question.0),
                ..ChatBody::default()
            };
            return Ok(Some((body, vec![message])));
        }
    }
    Ok(None)
}

/// Whether the turn with this request id answers the newest question anew, or this message after
/// this edit.
async fn is_anew(
    http_caller: &HttpCaller,
    session: ConversationId,
    request_id: &str,
    edited: Option<(MessageId, &pb::NewMessage)>,
) -> Result<bool, Problem> {
    let edited = match edited {
        None => None,
        Some((id, content)) => Some((id, message::parse("message", content.clone())?)),
    };
    let digest = AnewAsk::digest(edited.as_ref().map(|(id, message)| (*id, message)));
    let store = &http_caller.services.state.store;
    match store
        .find_anew(http_caller.caller, session, request_id, digest)
        .await
    {
        Ok(found) => Ok(found.is_some()),
        Err(StoreError::RequestIdReused) => Ok(false),
        Err(error) => Err(Failure::from(error).into()),
    }
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
