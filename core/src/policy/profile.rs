//! The shipped presets, one for each kind of application whose needs are known.

use serde::{Deserialize, Serialize};

/// A shipped preset of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// A checkpoint at fifty messages or two million tokens.
    Default,
    /// Coding and tool-using agents: checkpoints and swaps are timed by what the provider's cache
    /// costs.
    Agents,
    /// Chat bots that keep text only, as ZeroClaw does.
    Zeroclaw,
    /// As claw0: at 180,000 tokens a checkpoint keeps half of the messages.
    Claw0,
    /// As ai-panel: above 80,000 tokens a checkpoint keeps twenty turns.
    AiPanel,
    /// As OpenClaw: a checkpoint close to the model's window.
    Openclaw,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 6] = [
        Self::Default,
        Self::Agents,
        Self::Zeroclaw,
        Self::Claw0,
        Self::AiPanel,
        Self::Openclaw,
    ];

    /// The name in settings and on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Agents => "agents",
            Self::Zeroclaw => "zeroclaw",
            Self::Claw0 => "claw0",
            Self::AiPanel => "ai-panel",
            Self::Openclaw => "openclaw",
        }
    }

    /// The profile with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}
