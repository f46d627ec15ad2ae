//! The conversations that are replayed.

use anneal_transcripts::{Chat, Data};

use super::script::Script;

/// Tokens of pi's system prompt and tools, which its sessions do not tell.
const PI_SYSTEM: u64 = 2_600;

/// Short dialogues that make one conversation.
const DIALOGUES: usize = 30;

/// Conversations that are billed together.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// Tokens that are sent before each of them, beside the system prompt that it tells.
    pub(super) system: u64,
    pub(super) chats: Vec<Chat>,
}

impl Family {
    /// Every family at hand.
    pub(super) fn all(data: &Data) -> Vec<Self> {
        let family = |name, chats| Self { name, system: 0, chats };
        vec![
            Self { system: PI_SYSTEM, ..family("pi", data.pi_sessions()) },
            family("mini-swe", data.mini_swe_agent()),
            family("swe-agent", data.swe_agent()),
            family("tau", data.tau_bench()),
            family("LoCoMo", data.locomo()),
            family("CrossWOZ", joined(&data.crosswoz(usize::MAX))),
            family("KdConv", joined(&data.kdconv(usize::MAX))),
        ]
    }

    /// Its conversations, counted.
    pub(super) fn scripts(&self) -> Vec<Script> {
        self.chats.iter().map(|chat| Script::of(chat, self.system)).collect()
    }
}

fn joined(chats: &[Chat]) -> Vec<Chat> {
    chats.chunks(DIALOGUES).map(|some| Chat::joined(some[0].name.clone(), some)).collect()
}
