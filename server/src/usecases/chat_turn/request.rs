//! The request of a turn.

use std::sync::Arc;

use anneal_core::{
    caller::{Caller, ConversationId},
    chat_options::ChatOptions,
    limits::ID_BYTES,
    message::{Message, MessageId, Role},
};
use anneal_store::Append;

use super::{overflow::OnOverflow, stored_question::check_stands};
use crate::{
    failure::Failure,
    state::ServerState,
    usecases::append::{self, AppendRequest},
};

/// The parsed request of a turn.
pub(crate) struct TurnRequest {
    /// The conversation. Of a turn that is not stored: a random id.
    pub(crate) id: ConversationId,
    /// The caller's request id, or a random one.
    pub(crate) request_id: String,
    /// Whether the caller gave the request id, so that this may repeat an earlier turn.
    pub(crate) is_repeatable: bool,
    pub(crate) prompt: TurnPrompt,
    /// The turn is refused unless this is the newest message. None: not checked.
    pub(crate) expected: Option<MessageId>,
    /// The model that the caller names.
    pub(crate) model: Option<String>,
    /// The models that the caller names to be tried after it, in order.
    pub(crate) fallback_models: Vec<String>,
    pub(crate) system_prompt: Option<String>,
    /// The options that the caller sets.
    pub(crate) options: ChatOptions,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) on_overflow: OnOverflow,
    /// Whether the provider's cache is kept warm once after the turn.
    pub(crate) cache_ping: bool,
}

/// What a turn answers.
pub(crate) enum TurnPrompt {
    /// New messages.
    Messages(Arc<[Message]>),
    /// The newest question, anew.
    Regenerate,
    /// An earlier question, after this message has replaced it.
    Edit { id: MessageId, message: Message },
    /// Messages of which nothing is stored: the question, and before it what the model is to know.
    Unstored(Arc<[Message]>),
}

/// What becomes of a turn whose caller goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// It stops, and nothing of its answer is kept.
    Stop,
    /// It stops, and what has come of its answer is kept.
    StopAndKeep,
    /// It goes on until its answer is stored.
    Finish,
}

impl TurnPrompt {
    /// The messages that the caller sends.
    pub(super) fn messages(&self) -> &[Message] {
        match self {
            Self::Messages(messages) | Self::Unstored(messages) => messages,
            Self::Regenerate => &[],
            Self::Edit { message, .. } => std::slice::from_ref(message),
        }
    }
}

impl TurnRequest {
    /// The append of new messages; None: the turn answers a stored question anew. Its digest covers
    /// only the messages, so that a turn whose model failed may be repeated with another model.
    pub(super) async fn prompt_append(
        &self,
        state: &ServerState,
        caller: Caller,
    ) -> Result<Option<Append>, Failure> {
        let TurnPrompt::Messages(messages) = &self.prompt else {
            return Ok(None);
        };
        let prompt = AppendRequest {
            id: self.id,
            request_id: Some(self.request_id.clone()),
            expected: self.expected,
            messages: Arc::clone(messages),
            reservation: None,
        };
        let prompt = append::prepare(state, caller, prompt).await?;
        Ok(Some(prompt.for_chat_turn(Role::User)))
    }

    /// The request id of the answer's append.
    pub(super) fn answer_request_id(&self) -> String {
        answer_request_id(&self.request_id)
    }
}

/// The request id of the append of the answer to a turn with this request id. A prefix padded to
/// [`ID_BYTES`] makes it longer than any that a caller can give, so that the two cannot be equal.
pub(crate) fn answer_request_id(request_id: &str) -> String {
    format!("{:-<ID_BYTES$}{request_id}", "answer to ")
}

/// The id of the first message of a turn's stored prompt, if the prompt has this request id and
/// consists of these messages. None: no such prompt is stored, or not all of it. Fails if another
/// prompt is stored with the request id, or if the prompt is withdrawn.
pub(crate) async fn find_prompt(
    state: &ServerState,
    caller: Caller,
    id: ConversationId,
    request_id: &str,
    messages: Vec<Message>,
) -> Result<Option<MessageId>, Failure> {
    let given = messages.len();
    let prompt = AppendRequest {
        id,
        request_id: Some(request_id.to_owned()),
        expected: None,
        messages: messages.into(),
        reservation: None,
    };
    let prompt = append::prepare(state, caller, prompt)
        .await?
        .for_chat_turn(Role::User);
    let Some(stored) = state.store.find_append(caller, &prompt).await? else {
        return Ok(None);
    };
    check_stands(&stored.messages)?;
    let first = stored.messages.first().map(|first| first.id);
    Ok(first.filter(|_| stored.messages.len() == given))
}
