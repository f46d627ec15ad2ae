//! When a conversation is compacted and what cools in it: the `[session]` settings, and what a conversation overrides.

use serde::{Deserialize, Serialize};

use crate::tokens::Tokens;

/// The settings in force for one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// A checkpoint is due at this many tokens in the tail (`>=`).
    pub token_threshold: Tokens,
    /// A checkpoint is due at this many messages in the tail (`>=`); 0 turns the trigger off.
    pub max_message_count: u32,
    /// Turns that a checkpoint leaves in the tail if they fit in half of the thresholds.
    pub keep_recent_turns: u32,
    /// A message with more tokens than this is large (`>`).
    pub large_message_threshold: Tokens,
    /// A message more than this many turns old is cool (`>`).
    pub hot_zone_radius: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            token_threshold: Tokens::new(2_000_000),
            max_message_count: 50,
            keep_recent_turns: 5,
            large_message_threshold: Tokens::new(1_000_000),
            hot_zone_radius: 5,
        }
    }
}

/// A setting whose value makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{key} must be {must_be}")]
pub struct PolicyError {
    /// The setting's name.
    pub key: &'static str,
    /// What it must be.
    pub must_be: &'static str,
}

impl Policy {
    /// The policy with a conversation's overrides applied.
    #[must_use]
    pub fn with(self, overrides: &PolicyOverrides) -> Self {
        Self {
            token_threshold: overrides.token_threshold.unwrap_or(self.token_threshold),
            max_message_count: overrides.max_message_count.unwrap_or(self.max_message_count),
            keep_recent_turns: overrides.keep_recent_turns.unwrap_or(self.keep_recent_turns),
            large_message_threshold: overrides.large_message_threshold.unwrap_or(self.large_message_threshold),
            hot_zone_radius: overrides.hot_zone_radius.unwrap_or(self.hot_zone_radius),
        }
    }

    /// Checks that every setting makes sense.
    pub fn check(self) -> Result<Self, PolicyError> {
        let at_least_one = |key| PolicyError { key, must_be: "at least 1" };
        if self.token_threshold == Tokens::ZERO {
            return Err(at_least_one("token_threshold"));
        }
        if self.keep_recent_turns == 0 {
            return Err(at_least_one("keep_recent_turns"));
        }
        if self.token_threshold.get() > i64::MAX as u64 {
            return Err(PolicyError { key: "token_threshold", must_be: "at most 2^63 - 1" });
        }
        if self.large_message_threshold.get() > i64::MAX as u64 {
            return Err(PolicyError { key: "large_message_threshold", must_be: "at most 2^63 - 1" });
        }
        if self.hot_zone_radius > i32::MAX as u32 {
            return Err(PolicyError { key: "hot_zone_radius", must_be: "at most 2^31 - 1" });
        }
        Ok(self)
    }
}

/// What one conversation says instead of the server's settings. Absent keys keep the server's. Stored as jsonb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyOverrides {
    /// See [`Policy::token_threshold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_threshold: Option<Tokens>,
    /// See [`Policy::max_message_count`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_message_count: Option<u32>,
    /// See [`Policy::keep_recent_turns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_recent_turns: Option<u32>,
    /// See [`Policy::large_message_threshold`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_message_threshold: Option<Tokens>,
    /// See [`Policy::hot_zone_radius`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hot_zone_radius: Option<u32>,
}
