//! Counting and estimating tokens.

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

/// The vocabulary that a conversation's tokens are counted in; fixed when the conversation is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// GPT-4o, 4.1, 5, the o-series; gpt-oss for ordinary text.
    #[default]
    O200kBase,
    /// GPT-4, GPT-3.5 and the embedding models of their time.
    Cl100kBase,
}
