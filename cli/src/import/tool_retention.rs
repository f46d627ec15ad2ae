//! Whether a conversation stores tool messages, and which tool messages of the file are missing
//! there.

use anneal_core::policy::Profile;
use anneal_proto::v1 as pb;

/// Whether a conversation stores tool calls and results.
#[derive(Debug)]
pub(super) enum ToolRetention {
    /// It stores them. If tool parts of the file are not stored, they are missing.
    Kept,
    /// It does not store them, so none are missing.
    Dropped,
    /// Unknown: the server's settings decide, and no tool message is stored so far. Holds the
    /// positions of the file's messages whose tool parts are not stored.
    Unknown(Vec<u64>),
}

impl ToolRetention {
    /// From the settings of the conversation.
    pub(super) fn of(conversation: &pb::Conversation) -> Self {
        let Some(policy) = &conversation.policy else {
            return Self::Unknown(Vec::new());
        };
        let profile = || {
            Profile::from_name(&policy.profile)?
                .settings()
                .store_tool_messages
        };
        match policy.store_tool_messages.or_else(profile) {
            Some(true) => Self::Kept,
            Some(false) => Self::Dropped,
            None => Self::Unknown(Vec::new()),
        }
    }

    /// Notes that a tool part is stored. If it was unknown whether the conversation stores tool
    /// parts, this shows that it does: returns the positions of the messages whose tool parts are
    /// missing.
    pub(super) fn note_stored(&mut self) -> Vec<u64> {
        match self {
            Self::Unknown(not_stored) => {
                let missing = std::mem::take(not_stored);
                *self = Self::Kept;
                missing
            }
            Self::Kept | Self::Dropped => Vec::new(),
        }
    }

    /// Notes that the tool parts of the message at this position are not stored. Returns whether
    /// they are known to be missing.
    pub(super) fn note_not_stored(&mut self, position: u64) -> bool {
        match self {
            Self::Kept => true,
            Self::Dropped => false,
            Self::Unknown(not_stored) => {
                not_stored.push(position);
                false
            }
        }
    }
}
