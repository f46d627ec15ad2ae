//! The groups of conversations that are replayed.

use anneal_transcripts::{Chat, TranscriptFolder};

use super::counted_conversation::CountedConversation;

/// Tokens of pi's system prompt and tools, which are not part of its session files.
const PI_SYSTEM: u64 = 2_600;

/// How many short dialogues are joined into one conversation.
const DIALOGUES_PER_CONVERSATION: usize = 30;

/// Conversations that are billed together.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// Tokens of a system prompt that is sent with each chat but is not in its file. 0: there is
    /// none.
    pub(super) system: u64,
    pub(super) chats: Vec<Chat>,
}

impl Family {
    /// All families.
    pub(super) fn all(data: &TranscriptFolder) -> Vec<Self> {
        let family = |name, chats| Self {
            name,
            system: 0,
            chats,
        };
        vec![
            Self {
                system: PI_SYSTEM,
                ..family("pi", data.pi_sessions())
            },
            family("mini-swe", data.mini_swe_agent()),
            family("swe-agent", data.swe_agent()),
            family("tau", data.tau_bench()),
            family("LoCoMo", data.locomo()),
            family("CrossWOZ", joined(&data.crosswoz(usize::MAX))),
            family("KdConv", joined(&data.kdconv(usize::MAX))),
        ]
    }

    /// The family's conversations with their token counts.
    pub(super) fn counted_conversations(&self) -> Vec<CountedConversation> {
        self.chats
            .iter()
            .map(|chat| CountedConversation::of(chat, self.system))
            .collect()
    }
}

fn joined(chats: &[Chat]) -> Vec<Chat> {
    chats
        .chunks(DIALOGUES_PER_CONVERSATION)
        .map(|some| Chat::joined(some[0].name.clone(), some))
        .collect()
}
