//! Decides what a turn answers: new messages, or a stored question anew.

use std::sync::Arc;

use anneal_core::limits::MESSAGES_PER_APPEND;
use anneal_proto::v1 as pb;

use super::{
    body::{Trigger, UiAsk},
    ids::{
        request_id_of_edit, request_id_of_message, request_id_of_regeneration,
        request_id_of_results,
    },
    labels,
    outputs::{StepOutputs, known_outputs, outputs_to_continue},
    parsed_message::{UiMessage, UiRole, parse_id},
    stored_chat::StoredChat,
};
use crate::{
    http::{chat_body::ChatBody, problem::Problem},
    limits::cpu_pool,
};

/// What a turn answers.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub(super) messages: Vec<pb::NewMessage>,
    pub(super) request_id: String,
    /// Whether the newest question is answered anew.
    is_regeneration: bool,
    /// The message that is edited.
    edited: Option<i64>,
    /// The client's message that the answer continues. None: the answer is a message of its own.
    pub(super) continues: Option<String>,
}

/// The last message of the request, once it is known what it is.
#[derive(Debug)]
pub(super) enum LastMessage {
    /// A message of the user.
    Question(pb::NewMessage),
    /// An answer with outputs of its calls.
    Outputs(StepOutputs),
}

impl Prompt {
    /// New messages, of which the first may hold results of tools.
    fn of_messages(messages: Vec<pb::NewMessage>, id: &str) -> Self {
        Self {
            messages,
            request_id: request_id_of_message(id),
            ..Self::default()
        }
    }

    /// The newest question anew. `newest`: the newest message.
    pub(super) fn of_regeneration(question: i64, newest: i64) -> Self {
        Self {
            request_id: request_id_of_regeneration(question, newest),
            is_regeneration: true,
            ..Self::default()
        }
    }

    /// A question with this content, which may be the one that it has.
    pub(super) fn of_edit(question: i64, newest: i64, message: pb::NewMessage) -> Self {
        Self {
            request_id: request_id_of_edit(question, newest, &message),
            messages: vec![message],
            edited: Some(question),
            ..Self::default()
        }
    }

    /// The outputs of a step of the client's message with this id.
    fn of_outputs(id: &str, outputs: StepOutputs) -> Self {
        let StepOutputs { step, results } = outputs;
        let labels = labels::labels([
            (labels::CONTINUES, id.to_owned()),
            (labels::STEP, step.to_string()),
        ]);
        let message = pb::NewMessage {
            role: pb::Role::Tool.into(),
            parts: results.into_iter().map(|(_, part)| part).collect(),
            metadata: labels,
        };
        Self::of_stored_outputs(message, id, step)
    }

    /// The stored outputs of a step of the client's message with this id.
    pub(super) fn of_stored_outputs(message: pb::NewMessage, id: &str, step: usize) -> Self {
        Self {
            messages: vec![message],
            request_id: request_id_of_results(id, step),
            continues: Some(id.to_owned()),
            ..Self::default()
        }
    }

    /// A stored question, with the results of tools before it.
    pub(super) fn of_stored_question(messages: Vec<pb::NewMessage>, id: &str) -> Self {
        Self::of_messages(messages, id)
    }

    /// The turn as the RPC takes it, in the conversation with this id.
    pub(super) fn into_request(
        self,
        id: &str,
        options: ChatBody,
    ) -> Result<pb::ChatRequest, Problem> {
        let body = ChatBody {
            regenerate: self.is_regeneration,
            edit_message_id: self.edited,
            ..options
        };
        body.into_request((id.to_owned(), self.request_id), self.messages)
    }
}

impl UiAsk {
    /// Converts the last message. Fails if there is nothing to answer in it.
    pub(super) fn convert_last(&self) -> Result<LastMessage, Problem> {
        let (field, last) = self.last_message()?;
        match last.role {
            UiRole::User => Ok(LastMessage::Question(last.to_question(field)?)),
            UiRole::Assistant => {
                parse_id(&format!("{field}.id"), &last.id)?;
                Ok(LastMessage::Outputs(outputs_to_continue(last, field)?))
            }
            UiRole::System => {
                let reason = "must be user or assistant in the last message";
                Err(Problem::invalid(format!("{field}.role"), reason))
            }
        }
    }

    /// The last message, and its name in the request.
    fn last_message(&self) -> Result<(&str, &UiMessage), Problem> {
        let last = self.last.as_ref();
        let last = last.map(|(field, message)| (field.as_str(), message));
        last.ok_or_else(|| {
            let reason = "must hold the message of the user: nothing of this chat is stored";
            Problem::invalid("messages", reason)
        })
    }

    /// The messages that precede the turn, as they are stored.
    pub(super) fn convert_history(&self) -> Result<Vec<pb::NewMessage>, Problem> {
        let mut history = Vec::new();
        for (index, raw) in self.earlier.iter().enumerate() {
            let field = format!("messages[{index}]");
            history.extend(UiMessage::parse(&field, raw)?.to_messages(&field)?);
        }
        let (field, last) = self.last_message()?;
        if last.role == UiRole::Assistant {
            history.extend(last.to_messages(field)?);
            // The outputs of its last step are the prompt.
            history.pop();
        }
        Ok(history)
    }
}

/// The prompt of the first turn of a chat. The history before it is stored.
pub(super) async fn import_and_ask(
    chat: &mut StoredChat<'_>,
    ask: &Arc<UiAsk>,
) -> Result<Prompt, Problem> {
    let bytes = ask.earlier.iter().map(|raw| raw.get().len()).sum();
    let is_long = cpu_pool::is_long(bytes, ask.earlier.len());
    let shared = Arc::clone(ask);
    let convert = move || Ok((shared.convert_last()?, shared.convert_history()?));
    let (cpu, tenant) = (
        &chat.http_caller.services.state.cpu,
        chat.http_caller.caller.tenant(),
    );
    let converted: Result<_, Problem> = cpu.run_if(is_long, tenant, convert).await?;
    let (last, history) = converted?;
    chat.newest = chat.import(history).await?;
    let (_, message) = ask.last_message()?;
    Ok(match last {
        LastMessage::Question(question) => Prompt::of_messages(vec![question], &message.id),
        LastMessage::Outputs(outputs) => Prompt::of_outputs(&message.id, outputs),
    })
}

/// Whether the import of the request's history may have been broken off.
pub(super) fn may_be_unfinished(chat: &StoredChat<'_>, ask: &UiAsk) -> bool {
    !ask.earlier.is_empty() && chat.newest % MESSAGES_PER_APPEND as i64 == 0
}

/// The prompt of a turn in a chat that has messages.
pub(super) async fn find_prompt(chat: &StoredChat<'_>, ask: &UiAsk) -> Result<Prompt, Problem> {
    if ask.trigger == Trigger::RegenerateMessage {
        return find_regeneration(chat, ask).await;
    }
    let (_, message) = ask.last_message()?;
    let question = match ask.convert_last()? {
        LastMessage::Outputs(outputs) => return Ok(Prompt::of_outputs(&message.id, outputs)),
        LastMessage::Question(question) => question,
    };
    let Some(id) = &ask.message_id else {
        return submit(chat, ask, question, &message.id).await;
    };
    match chat.find_by_client_id(id).await? {
        Some(named) if named.is_question => {
            Ok(Prompt::of_edit(named.question, chat.newest, question))
        }
        Some(_) => Err(Problem::invalid(
            "messageId",
            "must be a message of the user",
        )),
        None => Err(unknown_message()),
    }
}

/// A new message of the user, after the outputs of the last answer that are not stored yet.
async fn submit(
    chat: &StoredChat<'_>,
    ask: &UiAsk,
    question: pb::NewMessage,
    id: &str,
) -> Result<Prompt, Problem> {
    let Some(raw) = ask.earlier.last() else {
        return Ok(Prompt::of_messages(vec![question], id));
    };
    let field = format!("messages[{}]", ask.earlier.len() - 1);
    let outputs = known_outputs(&UiMessage::parse(&field, raw)?, &field)?;
    let mut messages = Vec::new();
    if !outputs.results.is_empty() {
        let open = chat.find_open_calls(id).await?;
        let results = outputs.results.into_iter();
        let parts: Vec<pb::Part> = results
            .filter(|(call, _)| open.contains(call))
            .map(|(_, part)| part)
            .collect();
        if !parts.is_empty() {
            messages.push(pb::NewMessage {
                role: pb::Role::Tool.into(),
                parts,
                metadata: labels::labels([(labels::ID, id.to_owned())]),
            });
        }
    }
    messages.push(question);
    Ok(Prompt::of_messages(messages, id))
}

/// The question that is answered anew: that of the named message, else the last message of the
/// request, else the newest one. A message of the user that never arrived is answered for the first
/// time.
async fn find_regeneration(chat: &StoredChat<'_>, ask: &UiAsk) -> Result<Prompt, Problem> {
    let last = ask.last.as_ref().map(|(_, message)| message);
    let last = last.filter(|message| message.role == UiRole::User);
    let ids = [ask.message_id.as_deref(), last.map(|last| last.id.as_str())];
    let mut found = None;
    for id in ids.into_iter().flatten().filter(|id| !id.is_empty()) {
        found = chat.find_by_client_id(id).await?;
        if found.is_some() {
            break;
        }
    }
    let newest = chat.find_newest_question().await?;
    match (found.map(|message| message.question), newest, last) {
        (Some(question), Some(newest), _) if question == newest => {
            Ok(Prompt::of_regeneration(question, chat.newest))
        }
        (Some(question), _, _) => {
            let stored = chat.get_message(question).await?;
            Ok(Prompt::of_edit(question, chat.newest, stored.into()))
        }
        (None, _, _) if ask.message_id.is_some() => Err(unknown_message()),
        (None, Some(question), None) => Ok(Prompt::of_regeneration(question, chat.newest)),
        (None, None, None) => {
            let reason = "there is no message of the user to answer again";
            Err(Problem::invalid("trigger", reason))
        }
        (None, newest, Some(last)) => {
            let (field, _) = ask.last_message()?;
            let question = last.to_question(field)?;
            if let Some(newest) = newest {
                // An application may have loaded the history under ids of its own.
                let stored = chat.get_message(newest).await?;
                if stored.parts == question.parts {
                    return Ok(Prompt::of_regeneration(newest, chat.newest));
                }
            }
            Ok(Prompt::of_messages(vec![question], &last.id))
        }
    }
}

fn unknown_message() -> Problem {
    let reason = "is no message of this chat that the server has; to ask something new, send a \
                  message without messageId";
    Problem::invalid("messageId", reason)
}
