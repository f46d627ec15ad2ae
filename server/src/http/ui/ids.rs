//! Ids of answers, which clients get in `start`, and the request ids of turns. Both are derived
//! from what is stored, so that every server makes the same.

use std::fmt;

use anneal_core::{
    caller::{Bound, Caller, ConversationId},
    digest::{self, Digest},
};
use anneal_proto::v1 as pb;
use anneal_store::TurnKey;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use prost::Message as _;
use uuid::Uuid;

/// The channel of the sessions of this door.
const CHANNEL: &str = "ai-sdk";
const PREFIX: &str = "ui_";

/// The place of a chat: its agent, and the id that the client chose. The chats of a caller that is
/// bound to a user are that user's: the same id names other chats for other callers.
pub(super) fn scope(caller: Caller, agent: &str, chat: &str) -> pb::SessionScope {
    let place = pb::SessionScope {
        agent_id: agent.to_owned(),
        channel: CHANNEL.to_owned(),
        ..pb::SessionScope::default()
    };
    match caller.bound() {
        Some(Bound::User(user)) => pb::SessionScope {
            sender_id: user.as_str().to_owned(),
            thread_id: chat.to_owned(),
            ..place
        },
        Some(Bound::Agent(_) | Bound::Conversation(_)) | None => pb::SessionScope {
            group_id: chat.to_owned(),
            ..place
        },
    }
}

/// The id of an answer: `ui_`, the conversation, the last message of the question, and the number
/// of the change if the question is answered anew. It is known before the answer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerId {
    pub(super) conversation: ConversationId,
    pub(super) question: i64,
    /// None: the question was answered for the first time.
    change: Option<i64>,
}

impl AnswerId {
    /// The id of the answer to a question, in this turn.
    pub(super) fn of_turn(conversation: ConversationId, question: i64, turn: TurnKey) -> Self {
        let change = match turn {
            TurnKey::Anew(change) => Some(change),
            TurnKey::Message(_) => None,
        };
        Self {
            conversation,
            question,
            change,
        }
    }

    /// None: the text is no id of an answer.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.strip_prefix(PREFIX)?.split('_');
        let conversation = Uuid::try_parse(fields.next()?).ok()?;
        let mut numbers = fields.map(|field| field.parse::<i64>().ok().filter(|id| *id > 0));
        let parsed = Self {
            conversation: ConversationId(conversation),
            question: numbers.next()??,
            change: match numbers.next() {
                None => None,
                Some(number) => Some(number?),
            },
        };
        // One id has one form only.
        (parsed.to_string() == text).then_some(parsed)
    }
}

impl fmt::Display for AnswerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            conversation,
            question,
            change,
        } = self;
        write!(f, "{PREFIX}{}_{question}", conversation.0.simple())?;
        match change {
            Some(change) => write!(f, "_{change}"),
            None => Ok(()),
        }
    }
}

/// The request id of the turn that answers the user's message with this id.
pub(super) fn request_id_of_message(id: &str) -> String {
    format!("ai-sdk message {}", encode(digest::of_content(id)))
}

/// The request id of the turn that continues the client's message with this id after the step with
/// this number. All outputs of a step come in one request.
pub(super) fn request_id_of_results(continues: &str, step: usize) -> String {
    let digest = encode(digest::of_content(continues));
    format!("ai-sdk tools {digest} {step}")
}

/// The request id of the turn that answers the newest question anew. `newest`: the newest message
/// of the conversation, which stays the newest until the answer is stored. So the same request
/// repeats the turn before, and begins another one after.
pub(super) fn request_id_of_regeneration(question: i64, newest: i64) -> String {
    format!("ai-sdk regenerate {question} {newest}")
}

/// The request id of the turn that answers an edited question. `newest` is as in
/// [`request_id_of_regeneration`].
pub(super) fn request_id_of_edit(question: i64, newest: i64, message: &pb::NewMessage) -> String {
    let parts: Vec<Vec<u8>> = message.parts.iter().map(pb::Part::encode_to_vec).collect();
    let digest = encode(digest::of_fields(parts.iter().map(Vec::as_slice)));
    format!("ai-sdk edit {question} {newest} {digest}")
}

/// The request id of one append of a history.
pub(super) fn request_id_of_history(append: usize) -> String {
    format!("ai-sdk history {append}")
}

fn encode(digest: Digest) -> String {
    URL_SAFE_NO_PAD.encode(digest)
}

#[cfg(test)]
mod tests {
    use anneal_core::{limits::ID_BYTES, message::MessageId};
    use anneal_proto::convert::message::text_message;

    use super::*;

    #[test]
    fn an_id_of_an_answer_is_the_same_after_it_was_parsed() {
        let conversation = ConversationId(Uuid::from_u128(7));
        for turn in [TurnKey::Anew(9), TurnKey::Message(MessageId(3))] {
            let id = AnswerId::of_turn(conversation, 3, turn);
            assert_eq!(AnswerId::parse(&id.to_string()), Some(id));
        }
        let hex = conversation.0.simple();
        for other in [
            String::new(),
            "ui_".into(),
            format!("ui_{hex}"),
            format!("ui_{hex}_0"),
            format!("ui_{hex}_-1"),
            format!("ui_{hex}_03"),
            format!("ui_{hex}_3_"),
            format!("ui_{hex}_3_x"),
            format!("ui_{hex}_3_4_5"),
            format!("ui_{}_3", conversation.0.hyphenated()),
            "msg-kvmWNyZSUXZcYcYH".into(),
        ] {
            assert_eq!(AnswerId::parse(&other), None, "{other}");
        }
    }

    #[test]
    fn request_ids_differ_and_are_short_enough() {
        let long = "x".repeat(10_000);
        let edited = text_message(pb::Role::User, long.clone());
        let ids = [
            request_id_of_message(&long),
            request_id_of_message("a"),
            request_id_of_results(&long, usize::MAX),
            request_id_of_results("a", 1),
            request_id_of_results("a", 2),
            request_id_of_regeneration(i64::MAX, i64::MAX),
            request_id_of_edit(i64::MAX, i64::MAX, &edited),
            request_id_of_edit(i64::MAX, i64::MAX, &text_message(pb::Role::User, "b")),
            request_id_of_history(1),
        ];
        for (index, id) in ids.iter().enumerate() {
            assert!(id.len() <= ID_BYTES, "{id}");
            assert!(!ids[..index].contains(id), "{id}");
        }
    }
}
