//! Counting and estimating tokens.

mod clip;
mod clip_json;
mod count;
mod counter;
mod cut;
mod encoding;
mod estimate;
mod sketch;

pub use clip::{Clipped, clip_middle};
pub use clip_json::{ClippedJson, clip_json};
pub use count::{FRAMING_PER_MESSAGE, MEDIA_TOKENS, count_message, count_message_while, count_parts};
pub use counter::Counter;
pub use cut::MIN_CHUNK;
pub use encoding::Encoding;

use serde::{Deserialize, Serialize};

/// A number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(u64);

impl Tokens {
    /// None at all.
    pub const ZERO: Self = Self(0);

    /// `n` tokens.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// What is left after taking `other` away; zero when nothing is.
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
