//! All available conversations, grouped by origin.

use crate::{Chat, TranscriptFolder};

/// Conversations of one origin.
#[derive(Debug, Clone)]
pub struct Family {
    /// Its name, as in the papers of its authors.
    pub name: &'static str,
    /// Its conversations, always in the same order.
    pub chats: Vec<Chat>,
}

impl TranscriptFolder {
    /// Every conversation. CrossWOZ is empty without python3 to unpack it.
    pub fn all(&self) -> Vec<Family> {
        let family = |name, chats| Family { name, chats };
        vec![
            family("pi", self.pi_sessions()),
            family("mini-swe-agent", self.mini_swe_agent()),
            family("SWE-agent", self.swe_agent()),
            family("tau-bench", self.tau_bench()),
            family("LoCoMo", self.locomo()),
            family("CrossWOZ", self.crosswoz(usize::MAX)),
            family("KdConv", self.kdconv(usize::MAX)),
            family("XPersona", self.xpersona()),
        ]
    }
}
