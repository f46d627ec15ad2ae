//! Whether a conversation keeps what tools are called with and answer.

use anneal_core::policy::Profile;
use anneal_proto::v1 as pb;

/// What is known of it.
#[derive(Debug)]
pub(super) enum Tools {
    /// It does: calls and results of the file that it lacks are missing.
    Kept,
    /// It does not: they were never stored.
    Dropped,
    /// Its settings do not say, the server's hold; and nothing stored has shown it yet. The file's messages, by number, that
    /// lack theirs until now.
    Unsaid(Vec<u64>),
}

impl Tools {
    /// By the settings of the conversation.
    pub(super) fn of(conversation: &pb::Conversation) -> Self {
        let Some(policy) = &conversation.policy else { return Self::Unsaid(Vec::new()) };
        let profile = || Profile::named(&policy.profile)?.settings().store_tool_messages;
        match policy.store_tool_messages.or_else(profile) {
            Some(true) => Self::Kept,
            Some(false) => Self::Dropped,
            None => Self::Unsaid(Vec::new()),
        }
    }

    /// It has stored a call or a result. Returns the messages that lack theirs although it keeps them.
    pub(super) fn are_stored(&mut self) -> Vec<u64> {
        match self {
            Self::Unsaid(lacking) => {
                let lacking = std::mem::take(lacking);
                *self = Self::Kept;
                lacking
            }
            Self::Kept | Self::Dropped => Vec::new(),
        }
    }

    /// The file's message of this number has calls or results that are not stored. Whether they should be.
    pub(super) fn lack(&mut self, message: u64) -> bool {
        match self {
            Self::Kept => true,
            Self::Dropped => false,
            Self::Unsaid(lacking) => {
                lacking.push(message);
                false
            }
        }
    }
}
