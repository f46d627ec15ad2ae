//! The settings in force for one conversation: when it is compacted, and how its messages cool.
//!
//! - `session_settings`: the settings in force, from the server's `[session]` section, a profile,
//!   the conversation's own overrides, and the model's window and prices; which of them wins.
//! - `overrides`: the settings that can be set.
//! - `profile`: the names of the shipped presets. `profile_settings`: what each of them sets.
//! - `threshold`: how many tokens of tail make a checkpoint due.
//! - `keep_recent`: what a checkpoint leaves in the tail.

mod keep_recent;
mod overrides;
mod profile;
mod profile_settings;
mod session_settings;
mod threshold;

pub use keep_recent::{KeepRecent, SHARE_MIN_MESSAGES, SHARE_MIN_PERCENT};
pub use overrides::PolicyOverrides;
pub use profile::Profile;
pub use session_settings::SessionSettings;
pub use threshold::{TailFigures, TokenThreshold};

pub use crate::policy_error::PolicyError;

use serde::{Deserialize, Serialize};

use crate::{cache::CacheRetention, model::Prices, tokens::Tokens};

/// When cool large messages are swapped for their summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cooling {
    /// At once: every context sends every cool message that has a summary as its summary.
    #[default]
    Strict,
    /// All together in one step, once sending the originals has cost half as much as the step: a
    /// step breaks the provider's prefix cache. `cooling::stepped` has the exact rule.
    Stepped,
}

/// When large messages are summarized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LargeSummaries {
    /// As soon as they are counted.
    #[default]
    Eager,
    /// When they are nearly cool, or when the tail has half of the token threshold.
    Lazy,
}

/// Whether a context makes a checkpoint when the provider's cache is cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleCheckpoints {
    /// No.
    #[default]
    Off,
    /// If its summary costs nothing: prepared already, or extracted by rules.
    Free,
    /// As [`Self::Free`], and summaries are prepared ahead.
    Prepared,
}

/// The settings in force for one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "settings that are independent of each other"
)]
pub struct Policy {
    /// A checkpoint is due at this many tokens in the tail (`>=`).
    pub token_threshold: TokenThreshold,
    /// A checkpoint is due at this many messages in the tail (`>=`); 0 turns the trigger off.
    pub max_message_count: u32,
    /// The tail that a checkpoint keeps, if it fits into about half of the thresholds (`cut`).
    pub keep_recent: KeepRecent,
    /// A message with more tokens than this is large (`>`).
    pub large_message_threshold: Tokens,
    /// A message more than this many turns old is cool (`>`).
    pub hot_zone_radius: u32,
    /// With stepped cooling, a message is also cool when more than this many model calls have
    /// followed it (`>`); 0: never.
    pub hot_zone_calls: u32,
    /// When cool large messages are swapped.
    pub cooling: Cooling,
    /// When large messages are summarized.
    pub large_summaries: LargeSummaries,
    /// Whether tool calls and results are stored.
    pub store_tool_messages: bool,
    /// Seconds after which the provider drops an unused prefix from its cache.
    pub cache_ttl_seconds: u32,
    /// The model's context window, in tokens.
    pub window: Tokens,
    /// Whether `window` is known. Otherwise it is an assumption.
    pub window_known: bool,
    /// The provider's prices for cached input.
    pub prices: Prices,
    /// Whether turns mark what the provider should cache.
    pub cache_marks: bool,
    /// How long the provider should keep what is marked.
    pub cache_retention: CacheRetention,
    /// Whether a context makes a checkpoint when the provider's cache is cold.
    pub idle_checkpoints: IdleCheckpoints,
    /// Whether a turn that is stopped keeps what has come of its answer.
    pub keep_partial: bool,
}

impl Default for Policy {
    fn default() -> Self {
        SessionSettings::default().policy(&PolicyOverrides::default(), None)
    }
}

/// Smallest token threshold, in percent of what a checkpoint leaves. Below it, checkpoints follow
/// each other so fast that the rewritten prefix cache costs more than they save (measured: at 120 %
/// the cost rises steeply).
const MIN_THRESHOLD_PERCENT: u64 = 150;
/// Tokens that the summary of a checkpoint is assumed to have, before there is one: the default of
/// the setting `checkpoint_tokens`.
const ASSUMED_SUMMARY: Tokens = Tokens::new(2_000);

/// The smallest size of a context at which a checkpoint is worth its cost, if it leaves `left`
/// tokens.
fn least_context(left: Tokens) -> Tokens {
    Tokens::new(left.get().saturating_mul(MIN_THRESHOLD_PERCENT) / 100)
}

impl Policy {
    /// Checks every setting, for a conversation whose system prompt has `system_prompt` tokens.
    pub fn check(self, system_prompt: Tokens) -> Result<Self, PolicyError> {
        self.keep_recent.check()?;
        if self.large_message_threshold.get() > i64::MAX as u64 {
            return Err(PolicyError::new(
                "large_message_threshold",
                "at most 2^63 - 1",
            ));
        }
        for (key, value) in [
            ("hot_zone_radius", self.hot_zone_radius),
            ("hot_zone_calls", self.hot_zone_calls),
        ] {
            if value > i32::MAX as u32 {
                return Err(PolicyError::new(key, "at most 2^31 - 1"));
            }
        }
        if self.window == Tokens::ZERO || self.window.get() > i64::MAX as u64 {
            return Err(PolicyError::new("window_tokens", "from 1 to 2^63 - 1"));
        }
        self.prices.check()?;
        self.check_threshold(system_prompt)?;
        Ok(self)
    }

    fn check_threshold(&self, system_prompt: Tokens) -> Result<(), PolicyError> {
        match self.token_threshold {
            TokenThreshold::Tokens(Tokens::ZERO) => {
                Err(PolicyError::new("token_threshold", "at least 1"))
            }
            TokenThreshold::Tokens(threshold) if threshold.get() > i64::MAX as u64 => {
                Err(PolicyError::new("token_threshold", "at most 2^63 - 1"))
            }
            TokenThreshold::Tokens(threshold) => {
                let KeepRecent::Tokens(keep) = self.keep_recent else {
                    return Ok(());
                };
                let left = system_prompt + ASSUMED_SUMMARY + keep;
                let least = least_context(left);
                if threshold >= least {
                    return Ok(());
                }
                let must_be = format!(
                    "at least {least}: a checkpoint leaves {left} tokens (system prompt, a summary \
                     of {ASSUMED_SUMMARY} and keep_recent). With a smaller threshold the next \
                     checkpoint follows soon, and each one makes the provider write its cache again"
                );
                Err(PolicyError::new("token_threshold", must_be))
            }
            TokenThreshold::BelowWindow(reserve) if self.window_known && reserve >= self.window => {
                let must_be = format!(
                    "a reserve below the model's window of {} tokens",
                    self.window
                );
                Err(PolicyError::new("token_threshold", must_be))
            }
            TokenThreshold::BelowWindow(_) | TokenThreshold::Auto => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
