//! All available conversations, grouped by origin.

use crate::{Chat, TranscriptFolder};

/// Conversations of one origin.
#[derive(Debug, Clone)]
pub struct Family {
    /// The name that its authors use.
    pub name: &'static str,
    /// The conversations, always in the same order.
    pub chats: Vec<Chat>,
}

impl TranscriptFolder {
    /// Every conversation. CrossWOZ is unpacked by python3; it is empty if that fails.
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
