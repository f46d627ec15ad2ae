//! The messages that the conversation must have: every version of each, and whether it stands.

use std::{collections::BTreeMap, fmt::Debug};

use anneal_core::{
    digest,
    message::{MessageId, Role, ToolMark},
    tokens::{Encoding, count_message},
};
use anneal_testkit::{parsed, pb};
use pb::part::Part;

use crate::simulation::{
    conversation::{SimulatedConversation, Violation},
    policies_and_messages::MarkedMessage,
};

/// Whether a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Standing,
    Withdrawn,
    Erased,
}

/// One version of a message.
pub(crate) struct ExpectedVersion {
    pub(crate) message: pb::NewMessage,
    /// A word that no other version has.
    pub(crate) mark: String,
    pub(crate) digest: digest::Digest,
    /// The exact token count.
    pub(crate) tokens: i64,
    outline: Vec<ToolMark>,
}

impl ExpectedVersion {
    pub(crate) fn new(new: MarkedMessage) -> Self {
        let message = parsed(&new.message);
        let content = serde_json::to_string(&message.parts).expect("parts are JSON");
        Self {
            mark: new.mark,
            digest: digest::of_content(&content),
            tokens: count_message(Encoding::default(), &message)
                .get()
                .cast_signed(),
            outline: message.tool_outline(),
            message: new.message,
        }
    }
}

/// A message that was appended.
pub(crate) struct ExpectedMessage {
    pub(crate) role: Role,
    /// Its versions, the first one first; also those that are erased.
    pub(crate) versions: Vec<ExpectedVersion>,
    pub(crate) state: State,
    /// Whether a turn has stored it as its answer.
    pub(crate) is_answer: bool,
}

impl ExpectedMessage {
    pub(crate) fn new(new: MarkedMessage) -> Self {
        Self {
            role: parsed(&new.message).role,
            versions: vec![ExpectedVersion::new(new)],
            state: State::Standing,
            is_answer: false,
        }
    }

    /// The answer of a turn.
    pub(crate) fn answer(new: MarkedMessage) -> Self {
        Self {
            is_answer: true,
            ..Self::new(new)
        }
    }

    pub(crate) fn stands(&self) -> bool {
        self.state == State::Standing
    }

    /// The version that stands, or that stood last.
    pub(crate) fn newest(&self) -> &ExpectedVersion {
        let newest = self.versions.last();
        newest.expect("a message has its first version")
    }

    /// The versions that do not stand, the first one first.
    fn gone(&self) -> &[ExpectedVersion] {
        let standing = usize::from(self.stands());
        &self.versions[..self.versions.len() - standing]
    }

    /// The versions that must be stored beside the message's row, the first one first.
    pub(crate) fn kept(&self) -> &[ExpectedVersion] {
        match self.state {
            State::Standing | State::Withdrawn => self.gone(),
            State::Erased => &[],
        }
    }
}

impl SimulatedConversation<'_> {
    /// Id of the newest message, 0 if there is none.
    pub(crate) fn last_message_id(&self) -> MessageId {
        MessageId(self.messages.len() as i64)
    }

    /// The message with this id.
    pub(crate) fn message(&self, id: i64) -> &ExpectedMessage {
        &self.messages[id as usize - 1]
    }

    /// The messages that stand, each with its id.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (i64, &ExpectedVersion)> {
        let standing = (1..)
            .zip(&self.messages)
            .filter(|(_, message)| message.stands());
        standing.map(|(id, message)| (id, message.newest()))
    }

    /// Whether a message after this one stands.
    pub(crate) fn has_standing_after(&self, id: i64) -> bool {
        self.standing().any(|(standing, _)| standing > id)
    }

    /// The tool calls and results of the messages in this state.
    pub(crate) fn tool_marks(&self, state: State) -> Vec<(MessageId, Vec<ToolMark>)> {
        let messages = (1..).map(MessageId).zip(&self.messages);
        messages
            .filter(|(_, message)| message.state == state)
            .map(|(id, message)| (id, message.newest().outline.clone()))
            .filter(|(_, outline)| !outline.is_empty())
            .collect()
    }

    /// The message ids of tool calls and of their first results, among the messages that stand.
    pub(crate) fn tool_pairs(&self) -> Vec<(i64, i64)> {
        let mut unanswered_calls: BTreeMap<&str, i64> = BTreeMap::new();
        let mut pairs = Vec::new();
        for (id, version) in self.standing() {
            let parts = &version.message.parts;
            for part in parts.iter().filter_map(|part| part.part.as_ref()) {
                match part {
                    Part::ToolUse(part) => drop(unanswered_calls.entry(&part.id).or_insert(id)),
                    Part::ToolResult(part) => {
                        pairs.extend(
                            unanswered_calls
                                .remove(part.tool_use_id.as_str())
                                .map(|call| (call, id)),
                        );
                    }
                    _ => {}
                }
            }
        }
        pairs
    }

    /// A word that no message has yet.
    pub(crate) fn next_mark(&mut self) -> String {
        self.marks += 1;
        format!("zm{}z", self.marks)
    }

    /// Checks that an answer has nothing of a version that does not stand.
    pub(crate) fn check_marks(&self, name: &str, answer: &impl Debug) -> Result<(), Violation> {
        let text = format!("{answer:?}");
        for (id, message) in (1_i64..).zip(&self.messages) {
            let mut gone = message.gone().iter();
            if let Some(shown) = gone.find(|version| text.contains(&version.mark)) {
                return Err(format!(
                    "{name} has the word {} of a version of message {id} ({:?}) that does not stand",
                    shown.mark, message.state
                ));
            }
        }
        Ok(())
    }

    /// The words of erased messages.
    pub(crate) fn erased_marks(&self) -> impl Iterator<Item = &str> {
        let erased = self.messages.iter();
        erased
            .filter(|message| message.state == State::Erased)
            .flat_map(|message| &message.versions)
            .map(|version| version.mark.as_str())
    }
}
