//! Counting, estimating, truncating and clipping by tokens.
//!
//! - `counter`: exact counts of text.
//! - `truncate`: prefixes, suffixes and chunks of a text with at most a given count.
//! - `tables`: the tokenizers that `counter` and `truncate` use.
//! - `text_estimate`: estimates of text without a tokenizer, from the `sketch` of a vocabulary.
//! - `message_tokens`: counts and estimates of messages, media included.
//! - `clip`: text without its middle. `clip_json`: JSON without some of its parts, still valid.
//! - `encoding`: the supported vocabularies.

mod clip;
mod clip_json;
mod counter;
mod encoding;
mod message_tokens;
mod sketch;
mod tables;
mod text_estimate;
mod truncate;

pub use clip::{Clipped, clip_middle};
pub use clip_json::{ClippedJson, clip_json};
pub use counter::Counter;
pub use encoding::Encoding;
pub use message_tokens::{
    FRAMING_PER_MESSAGE, MEDIA_TOKENS, count_message, count_message_while, count_parts,
};
pub use truncate::MIN_CHUNK;

use serde::{Deserialize, Serialize};

/// A number of tokens.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tokens(u64);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// `n` tokens.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The number as an integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The difference; zero if `other` is larger.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, |a, b| a + b)
    }
}

impl std::fmt::Display for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
