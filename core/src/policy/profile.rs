//! Shipped presets: one for each kind of application whose habits are known.

use serde::{Deserialize, Serialize};

use super::{Cooling, KeepRecent, LargeSummaries, PolicyOverrides, TokenThreshold};
use crate::tokens::Tokens;

/// A shipped preset of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Fifty messages, or two million tokens.
    Default,
    /// Coding and tool-using agents: as cheap as the provider's cache allows.
    Agents,
    /// Chat bots that keep text alone.
    Zeroclaw,
    /// Halves at 180,000 tokens.
    Claw0,
    /// Twenty turns at 80,000 tokens.
    AiPanel,
    /// Close to the model's window.
    Openclaw,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 6] =
        [Self::Default, Self::Agents, Self::Zeroclaw, Self::Claw0, Self::AiPanel, Self::Openclaw];

    /// Its name in settings and on the wire.
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

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Every key that it sets.
    pub fn settings(self) -> PolicyOverrides {
        let turns = |turns| KeepRecent::Turns(turns);
        let (threshold, messages, keep, large) = match self {
            Self::Default => (tokens(2_000_000), 50, turns(5), 1_000_000),
            Self::Agents => (TokenThreshold::Auto, 0, KeepRecent::Tokens(Tokens::new(20_000)), 1_000),
            Self::Zeroclaw => (tokens(12_000), 40, KeepRecent::LastUserMessage, 32_000),
            Self::Claw0 => (tokens(180_000), 0, KeepRecent::Share(50), 50_000),
            Self::AiPanel => (tokens(80_000), 0, turns(20), 50_000),
            Self::Openclaw => {
                let below = TokenThreshold::BelowWindow(Tokens::new(16_384));
                (below, 0, KeepRecent::Tokens(Tokens::new(20_000)), 50_000)
            }
        };
        let stepped = matches!(self, Self::Agents | Self::Openclaw);
        PolicyOverrides {
            profile: Some(self),
            token_threshold: Some(threshold),
            max_message_count: Some(messages),
            keep_recent: Some(keep),
            large_message_threshold: Some(Tokens::new(large)),
            hot_zone_radius: Some(5),
            hot_zone_calls: Some(10),
            cooling: Some(if stepped { Cooling::Stepped } else { Cooling::Strict }),
            large_summaries: Some(if stepped { LargeSummaries::Lazy } else { LargeSummaries::Eager }),
            store_tool_messages: Some(self != Self::Zeroclaw),
            ..PolicyOverrides::default()
        }
    }
}

const fn tokens(number: u64) -> TokenThreshold {
    TokenThreshold::Tokens(Tokens::new(number))
}
