//! Turns in a conversation: those messages of the request are stored that are not stored yet, and
//! the answer comes from the context of the conversation.

use anneal_core::{
    caller::ConversationId,
    digest,
    limits::{MESSAGES_PER_APPEND, PAGE_MAX},
};
use anneal_proto::{
    convert::parse,
    v1::{
        self as pb, chat_service_server::ChatService as _,
        conversation_service_server::ConversationService as _,
        message_service_server::MessageService as _,
    },
};
use anneal_store::StoreError;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use tonic::{Code, Status};
use tracing::warn;
use uuid::Uuid;

use super::{
    answer::AnswerEvents,
    body::CompletionBody,
    names::FieldNames,
    plan::{Divergence, HistoryMessage, Plan, StoredMessage, plan},
    shown_message::shown_in,
};
use crate::{
    failure::Failure,
    http::{
        caller::HttpCaller,
        openai::{errors::ApiError, ids},
    },
    truncated_text::TruncatedText,
};

/// The label of the first message of a turn's prompt: the request id of the turn.
const TURN_LABEL: &str = "openai.completion";
/// Most pages that are read of a conversation to find where the request continues it.
const PAGES: usize = 64;

/// The conversation of a request.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) id: ConversationId,
    /// The id of its newest message, which may be withdrawn; 0: it has none.
    newest: i64,
    /// Whether it was created for this request, or for an earlier one with the same key.
    is_created: bool,
}

impl Conversation {
    /// The conversation that a request names: `conv_…`, or its UUID.
    pub(super) async fn find(http_caller: &HttpCaller, name: &str) -> Result<Self, ApiError> {
        let not_found = || {
            let name = TruncatedText::new(name);
            ApiError::not_found(format!("Conversation with id '{name}' not found."))
        };
        let id = ids::parse_conversation_id(name)
            .or_else(|| Uuid::try_parse(name).ok().map(ConversationId));
        let id = id.ok_or_else(not_found)?;
        let ask = pb::GetConversationRequest {
            conversation_id: id.to_string(),
        };
        let services = &http_caller.services;
        let found = services.get_conversation(http_caller.request(ask)).await;
        let found = found.map_err(|status| match status.code() {
            Code::NotFound => not_found(),
            _ => status.into(),
        })?;
        Ok(Self {
            id,
            newest: found.get_ref().message_count,
            is_created: false,
        })
    }

    /// Creates the conversation of a request that names none. The same key gets the same one.
    pub(super) async fn create(
        http_caller: &HttpCaller,
        body: &CompletionBody,
        key: Option<&str>,
    ) -> Result<Self, ApiError> {
        let ask = pb::CreateConversationRequest {
            request_id: key.map(turn_of_key).unwrap_or_default(),
            user_id: body.user.clone().unwrap_or_default(),
            metadata: body.metadata.clone(),
            // The history of the next request has calls and results.
            policy: Some(pb::Policy {
                store_tool_messages: Some(true),
                ..pb::Policy::default()
            }),
            ..pb::CreateConversationRequest::default()
        };
        let services = &http_caller.services;
        let created = services.create_conversation(http_caller.request(ask)).await;
        let created = created.map_err(|status| names_of(body).refusal(&status))?;
        Ok(Self {
            id: parse::conversation_id(&created.get_ref().conversation_id)?,
            newest: created.get_ref().message_count,
            is_created: true,
        })
    }

    /// Deletes the conversation if it was created for a request that has stored nothing. Returns
    /// whether it was deleted.
    pub(super) async fn delete_if_empty(&self, http_caller: &HttpCaller) -> bool {
        if !self.is_created {
            return false;
        }
        let (store, id) = (&http_caller.services.state.store, self.id);
        match store
            .delete_empty_conversation(http_caller.caller, id)
            .await
        {
            Ok(is_deleted) => is_deleted,
            Err(error) => {
                store.log_failure(&error, || {
                    warn!(conversation.id = %id, "could not delete the conversation that was created for a completion: {error}");
                });
                false
            }
        }
    }

    /// Stores the new messages of the request, and begins the turn that answers them.
    pub(super) async fn begin_turn(
        &self,
        http_caller: &HttpCaller,
        body: CompletionBody,
        key: Option<&str>,
    ) -> Result<AnswerEvents, ApiError> {
        let turn = key.map(turn_of_key);
        let history = body.messages.messages.iter();
        let history: Vec<HistoryMessage> = history
            .map(|message| HistoryMessage {
                role: message.role(),
                shown: shown_in(message.role(), &message.parts),
            })
            .collect();
        let stored = self.load(http_caller, &history).await?;
        let names = names_of(&body);
        let (mut ask, messages) = ask_of(body);
        ask.conversation_id = self.id.to_string();
        let mut names_of_turn = names;
        let mut divergence = None;
        let plan = plan(&history, &stored.messages, turn.as_deref()).or_else(|diverges| {
            divergence = Some(diverges);
            // The messages of an earlier request with this key may be older than those read.
            turn.is_some().then_some(Plan::Find).ok_or(diverges)
        });
        match plan.map_err(refusal_of)? {
            Plan::Append { first_new } => {
                let turn = turn.unwrap_or_else(|| Uuid::new_v4().to_string());
                let new = NewMessages::split(messages, first_new);
                names_of_turn = names.after(new.prompt_index());
                let (newest, prompt) = self
                    .append(http_caller, new, (&turn, key.is_some()), names)
                    .await?;
                ask.messages = prompt;
                if let Some(first) = ask.messages.first_mut() {
                    first.metadata.insert(TURN_LABEL.to_owned(), turn.clone());
                }
                ask.expected_last_message_id = Some(newest);
                ask.request_id = turn;
            }
            Plan::Repeat { turn, prompt } => {
                let ids = stored.ids.get(prompt).unwrap_or_default();
                ask.messages = self.get_messages(http_caller, ids).await?;
                ask.request_id = turn;
            }
            Plan::Find => {
                let turn = turn.unwrap_or_default();
                ask.messages = NewMessages::split(messages, 0).prompt;
                if let Some(first) = ask.messages.first_mut() {
                    first.metadata.insert(TURN_LABEL.to_owned(), turn.clone());
                }
                // Refused, unless an earlier request has stored the prompt.
                ask.expected_last_message_id = Some(0);
                ask.request_id = turn;
            }
            Plan::AnswerAnew => {
                ask.regenerate = true;
                ask.expected_last_message_id = Some(self.newest);
                ask.request_id = turn.unwrap_or_default();
            }
        }
        let services = &http_caller.services;
        let events = services.chat(http_caller.request(ask)).await;
        let events = events.map_err(|status| names_of_turn.refusal(&status))?;
        let begun = AnswerEvents::begin(events.into_inner(), names_of_turn).await;
        begun.map_err(|error| match divergence {
            Some(divergence) if error.code() == Some(LAST_MESSAGE_MISMATCH) => {
                refusal_of(divergence)
            }
            _ => error,
        })
    }

    /// The newest messages that stand: all of them, or more than the request has. Instructions
    /// before everything else are left out: those of a request are no messages either.
    async fn load(
        &self,
        http_caller: &HttpCaller,
        request: &[HistoryMessage],
    ) -> Result<StoredHistory, ApiError> {
        let asked: usize = request.iter().map(|message| message.shown.len()).sum();
        let mut history = StoredHistory::default();
        if self.newest == 0 {
            return Ok(history);
        }
        let mut ask = pb::ListMessagesRequest {
            conversation_id: self.id.to_string(),
            page_size: (asked + 2).min(PAGE_MAX as usize) as i32,
            newest_first: true,
            ..pb::ListMessagesRequest::default()
        };
        let (mut shown, mut answered, mut is_answer) = (0, 0, true);
        for _ in 0..PAGES {
            let page = ask.clone();
            let listed = http_caller
                .services
                .list_messages(http_caller.request(page))
                .await?;
            let (_, page, _reservation) = listed.into_parts();
            for message in page.messages {
                let found = stored_message(&message);
                is_answer &= message.role() == pb::Role::Assistant;
                shown += found.message.shown.len();
                answered += if is_answer {
                    found.message.shown.len()
                } else {
                    0
                };
                history.ids.push(message.message_id);
                history.messages.push(found);
            }
            if page.next_page_token.is_empty() {
                history.drop_last_instructions();
                break;
            }
            if shown > asked + answered {
                break;
            }
            ask.page_token = page.next_page_token;
        }
        history.ids.reverse();
        history.messages.reverse();
        Ok(history)
    }

    /// Appends the messages before the prompt. Returns the id of the newest message and the prompt.
    async fn append(
        &self,
        http_caller: &HttpCaller,
        new: NewMessages,
        (turn, is_repeatable): (&str, bool),
        names: FieldNames,
    ) -> Result<(i64, Vec<pb::NewMessage>), ApiError> {
        let mut newest = self.newest;
        let mut index = new.first;
        for batch in new.history.chunks(MESSAGES_PER_APPEND) {
            let request_id = is_repeatable.then(|| format!("{turn} {index}"));
            let ask = pb::AppendMessagesRequest {
                conversation_id: self.id.to_string(),
                request_id: request_id.unwrap_or_default(),
                messages: batch.to_vec(),
                expected_last_message_id: Some(newest),
            };
            let services = &http_caller.services;
            let appended = services.append_messages(http_caller.request(ask)).await;
            let appended = appended.map_err(|status| names.after(index).refusal(&status))?;
            let last = appended.get_ref().messages.last();
            newest = last.map_or(newest, |last| last.message_id);
            index += batch.len();
        }
        Ok((newest, new.prompt))
    }

    async fn get_messages(
        &self,
        http_caller: &HttpCaller,
        ids: &[i64],
    ) -> Result<Vec<pb::NewMessage>, ApiError> {
        let mut messages = Vec::with_capacity(ids.len());
        for id in ids {
            let ask = pb::GetMessageRequest {
                conversation_id: self.id.to_string(),
                message_id: *id,
                ..pb::GetMessageRequest::default()
            };
            let services = &http_caller.services;
            let found = services.get_message(http_caller.request(ask)).await?;
            let (_, found, _reservation) = found.into_parts();
            messages.extend(found.message.map(pb::NewMessage::from));
        }
        Ok(messages)
    }
}

/// The code of a refused turn whose conversation has another newest message.
const LAST_MESSAGE_MISMATCH: &str = "last_message_mismatch";

/// The messages of a conversation, as a request is compared with them.
#[derive(Debug, Default)]
struct StoredHistory {
    messages: Vec<StoredMessage>,
    /// Their ids.
    ids: Vec<i64>,
}

impl StoredHistory {
    fn drop_last_instructions(&mut self) {
        let is_instruction = |stored: &StoredMessage| stored.message.role == pb::Role::System;
        while self.messages.pop_if(|last| is_instruction(last)).is_some() {
            self.ids.pop();
        }
    }
}

fn stored_message(message: &pb::Message) -> StoredMessage {
    StoredMessage {
        message: HistoryMessage {
            role: message.role(),
            shown: shown_in(message.role(), &message.parts),
        },
        turn: message.metadata.get(TURN_LABEL).cloned(),
    }
}

/// The messages of a request that are not stored yet.
struct NewMessages {
    /// The place of the first one in the request.
    first: usize,
    /// Those before the prompt.
    history: Vec<pb::NewMessage>,
    /// The messages that the turn answers: the last ones of the user, of tools and of the system.
    prompt: Vec<pb::NewMessage>,
}

impl NewMessages {
    /// The messages from this one on.
    fn split(mut messages: Vec<pb::NewMessage>, first: usize) -> Self {
        let mut history = messages.split_off(first.min(messages.len()));
        let prompt = history
            .iter()
            .rev()
            .take(MESSAGES_PER_APPEND)
            .take_while(|message| message.role() != pb::Role::Assistant)
            .count();
        let prompt = history.split_off(history.len() - prompt);
        Self {
            first,
            history,
            prompt,
        }
    }

    /// The place of the prompt's first message in the request.
    const fn prompt_index(&self) -> usize {
        self.first + self.history.len()
    }
}

/// The request id of the turns with this key. Keys may be longer than request ids.
fn turn_of_key(key: &str) -> String {
    let digest = digest::of_fields([key.as_bytes()]);
    format!("chat completion {}", URL_SAFE_NO_PAD.encode(digest))
}

/// The names of fields in refusals of this request.
pub(super) const fn names_of(body: &CompletionBody) -> FieldNames {
    FieldNames {
        before: body.messages.before,
        output_limit: body.output_limit,
    }
}

/// A turn without its messages, and the messages of the request.
fn ask_of(body: CompletionBody) -> (pb::ChatRequest, Vec<pb::NewMessage>) {
    let options = body.options;
    let ask = pb::ChatRequest {
        model: body.model,
        system_prompt: body.messages.system_prompt,
        options: (options != pb::ChatOptions::default()).then_some(options),
        on_disconnect: pb::OnDisconnect::Finish.into(),
        ..pb::ChatRequest::default()
    };
    (ask, body.messages.messages)
}

/// Begins a turn of which nothing is stored. It stops if its reader goes away, and fails if the
/// messages are too long for the model.
pub(super) async fn begin_unstored_turn(
    http_caller: &HttpCaller,
    body: CompletionBody,
) -> Result<AnswerEvents, ApiError> {
    let names = names_of(&body);
    let (ask, messages) = ask_of(body);
    let ask = pb::ChatRequest {
        messages,
        on_disconnect: pb::OnDisconnect::Stop.into(),
        on_overflow: pb::OnOverflow::Fail.into(),
        ..ask
    };
    let services = &http_caller.services;
    let events = services
        .chat_without_storing(http_caller.request(ask))
        .await;
    let events = events.map_err(|status: Status| names.refusal(&status))?;
    AnswerEvents::begin(events.into_inner(), names).await
}

fn refusal_of(divergence: Divergence) -> ApiError {
    let message = match divergence {
        Divergence::OtherMessages => {
            "The messages before the new ones are not those of the conversation. Send its history as it is stored (the beginning may be left out), edit the conversation, or fork it."
        }
        Divergence::GoneOn => {
            "The conversation has gone on after these messages. Send the messages that came after them, rewind the conversation, or fork it."
        }
        Divergence::ResultsStored => {
            "These results of tools are stored already. Send the answer to them and a new message, rewind the conversation, or fork it."
        }
        Divergence::KeyReused => return Failure::from(StoreError::RequestIdReused).into(),
    };
    ApiError::conflict("conversation_diverged", message).with_param("messages")
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;

    use super::*;

    #[test]
    fn the_prompt_is_what_follows_the_last_answer() {
        use pb::Role::{Assistant, System, Tool, User};
        let messages = |roles: &[pb::Role]| -> Vec<pb::NewMessage> {
            roles.iter().map(|role| text_message(*role, "a")).collect()
        };
        for (roles, first, history, prompt) in [
            (&[User][..], 0, 0, 1),
            (&[User, Assistant, System, User], 0, 2, 2),
            (&[User, Assistant, Tool, Tool, User], 2, 0, 3),
            (&[User, User, Assistant, User], 1, 2, 1),
        ] {
            let new = NewMessages::split(messages(roles), first);
            assert_eq!((new.history.len(), new.prompt.len()), (history, prompt));
            assert_eq!(new.prompt_index(), roles.len() - prompt);
        }
        let many = NewMessages::split(messages(&[User; 150]), 0);
        assert_eq!((many.history.len(), many.prompt.len()), (50, 100));
    }

    #[test]
    fn a_key_of_any_length_is_a_request_id() {
        let turn = turn_of_key(&"k".repeat(1_000));
        assert!(turn.len() < 100, "with the place of a message: {turn}");
        assert_ne!(turn, turn_of_key("k"));
        assert!(parse::request_id(&turn).is_ok());
    }

    #[test]
    fn instructions_at_the_beginning_are_not_compared() {
        let message = |role| pb::Message {
            role: pb::Role::into(role),
            ..pb::Message::default()
        };
        let mut history = StoredHistory::default();
        for (id, role) in [
            (3, pb::Role::User),
            (2, pb::Role::System),
            (1, pb::Role::System),
        ] {
            history.ids.push(id);
            history.messages.push(stored_message(&message(role)));
        }
        history.drop_last_instructions();
        assert_eq!(
            (history.ids.as_slice(), history.messages.len()),
            (&[3][..], 1)
        );
    }
}
