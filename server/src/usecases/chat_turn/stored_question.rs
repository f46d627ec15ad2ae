//! The stored question of a turn.

use anneal_proto::v1 as pb;
use anneal_store::{Anew, Appended, AppendedMessage, StoreError};
use pb::chat_response::Started;

use crate::failure::Failure;

/// A stored question.
pub(super) struct Question {
    /// Its messages, in order.
    pub(super) messages: Vec<AppendedMessage>,
    /// Whether an earlier call with the same request id has stored it.
    pub(super) is_replayed: bool,
    /// How many answers to it are withdrawn.
    alternatives: i32,
    /// The number of the change with which it is answered anew; 0: its messages are new.
    change_id: i64,
}

impl From<Appended> for Question {
    fn from(stored: Appended) -> Self {
        Self {
            messages: stored.messages,
            is_replayed: stored.replayed,
            alternatives: 0,
            change_id: 0,
        }
    }
}

impl From<Anew> for Question {
    fn from(anew: Anew) -> Self {
        Self {
            messages: anew.question,
            is_replayed: anew.replayed,
            alternatives: anew.alternatives,
            change_id: anew.change_id,
        }
    }
}

impl Question {
    /// The ids of its messages, in order.
    pub(super) fn ids(&self) -> Vec<i64> {
        self.messages.iter().map(|message| message.id.0).collect()
    }

    /// Refuses to answer a repeated question of which a message was withdrawn.
    pub(super) fn check_stands(&self) -> Result<(), Failure> {
        check_stands(&self.messages)
    }

    /// The event that starts an answer. `is_replay`: the answer is replayed.
    pub(super) fn started(&self, is_replay: bool) -> Started {
        Started {
            message_ids: self.ids(),
            turn: self.messages.last().map_or(0, |message| message.turn),
            replayed: is_replay,
            alternatives: self.alternatives,
            change_id: self.change_id,
        }
    }
}

/// Refuses stored messages of which one was withdrawn.
pub(super) fn check_stands(stored: &[AppendedMessage]) -> Result<(), Failure> {
    let withdrawn = stored.iter().find(|message| message.withdrawn);
    withdrawn.map_or(Ok(()), |message| {
        Err(StoreError::MessageWithdrawn(message.id).into())
    })
}
