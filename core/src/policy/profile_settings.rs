//! The settings of each shipped preset.

use super::{
    Cooling, IdleCheckpoints, KeepRecent, LargeSummaries, PolicyOverrides, Profile, TokenThreshold,
};
use crate::tokens::Tokens;

impl Profile {
    /// Every key that the profile sets.
    pub fn settings(self) -> PolicyOverrides {
        let turns = |turns| KeepRecent::Turns(turns);
        let (threshold, messages, keep, large) = match self {
            Self::Default => (tokens(2_000_000), 50, turns(5), 1_000_000),
            Self::Agents => (
                TokenThreshold::Auto,
                0,
                KeepRecent::Tokens(Tokens::new(20_000)),
                1_000,
            ),
            // ZeroClaw compacts above 40 messages, and ai-panel above 80,000 tokens.
            Self::Zeroclaw => (tokens(12_000), 41, KeepRecent::LastUserMessage, 32_000),
            Self::Claw0 => (tokens(180_000), 0, KeepRecent::Share(50), 50_000),
            Self::AiPanel => (tokens(80_001), 0, turns(20), 50_000),
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
            cooling: Some(if stepped {
                Cooling::Stepped
            } else {
                Cooling::Strict
            }),
            large_summaries: Some(if stepped {
                LargeSummaries::Lazy
            } else {
                LargeSummaries::Eager
            }),
            store_tool_messages: Some(self != Self::Zeroclaw),
            idle_checkpoints: Some(if stepped {
                IdleCheckpoints::Free
            } else {
                IdleCheckpoints::Off
            }),
            ..PolicyOverrides::default()
        }
    }
}

const fn tokens(number: u64) -> TokenThreshold {
    TokenThreshold::Tokens(Tokens::new(number))
}
