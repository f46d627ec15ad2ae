//! Whether a conversation stores tool messages.

use anneal_core::policy::Profile;
use anneal_proto::v1 as pb;

#[derive(Debug)]
pub(super) enum ToolRetention {
    /// It does. Tool parts of the file that are not stored are missing.
    Kept,
    /// It does not. Tool parts were never stored.
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

    /// Notes that a tool part is stored. Returns the positions of messages whose tool parts are
    /// missing.
    pub(super) fn note_stored(&mut self) -> Vec<u64> {
        match self {
            Self::Unknown(missing) => {
                let missing = std::mem::take(missing);
                *self = Self::Kept;
                missing
            }
            Self::Kept | Self::Dropped => Vec::new(),
        }
    }

    /// Notes that the tool parts of this message are not stored. Returns whether they are missing.
    pub(super) fn note_missing(&mut self, message: u64) -> bool {
        match self {
            Self::Kept => true,
            Self::Dropped => false,
            Self::Unknown(missing) => {
                missing.push(message);
                false
            }
        }
    }
}
