//! The setting `keep_recent`: which messages a checkpoint leaves in the tail.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::PolicyError;
use crate::tokens::Tokens;

/// The tail that a checkpoint keeps.
///
/// Written for example as `5 turns`, `20000 tokens`, `50 %` or `last user message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeepRecent {
    /// This number of the last turns.
    Turns(u32),
    /// The newest messages, up to this many tokens.
    Tokens(Tokens),
    /// The newest messages, this share of them in percent; never less than [`SHARE_MIN_PERCENT`]
    /// and [`SHARE_MIN_MESSAGES`].
    Share(u32),
    /// Everything from the last user message on, whatever its size.
    LastUserMessage,
}

/// Fewest messages that [`KeepRecent::Share`] leaves, in percent.
pub const SHARE_MIN_PERCENT: usize = 20;
/// Fewest messages that [`KeepRecent::Share`] leaves.
pub const SHARE_MIN_MESSAGES: usize = 4;

/// The valid values, for error messages.
const FORMS: &str = "`5 turns`, `20000 tokens`, `50 %` or `last user message`; a number is at \
                     least 1, a share at most 90";

impl KeepRecent {
    pub(super) fn check(self) -> Result<(), PolicyError> {
        let good = match self {
            Self::Turns(turns) => turns > 0,
            Self::Tokens(tokens) => tokens > Tokens::ZERO && i64::try_from(tokens.get()).is_ok(),
            Self::Share(percent) => (1..=90).contains(&percent),
            Self::LastUserMessage => true,
        };
        if good {
            Ok(())
        } else {
            Err(PolicyError::new("keep_recent", FORMS))
        }
    }
}

impl fmt::Display for KeepRecent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns(turns) => write!(f, "{turns} turns"),
            Self::Tokens(tokens) => write!(f, "{tokens} tokens"),
            Self::Share(percent) => write!(f, "{percent} %"),
            Self::LastUserMessage => f.write_str("last user message"),
        }
    }
}

impl FromStr for KeepRecent {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let wrong = || PolicyError::new("keep_recent", FORMS);
        let words: Vec<&str> = text.split_whitespace().collect();
        let (number, unit) = match words.as_slice() {
            ["last", "user", "message"] => return Ok(Self::LastUserMessage),
            [number, unit] => (*number, *unit),
            // Number and unit in one word: `5turns`.
            [both] => both.split_at(both.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let kept = match unit {
            "turns" | "turn" => Self::Turns(u32::try_from(number).map_err(|_| wrong())?),
            "tokens" | "token" => Self::Tokens(Tokens::new(number)),
            "%" => Self::Share(u32::try_from(number).map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        Ok(kept)
    }
}

impl TryFrom<String> for KeepRecent {
    type Error = PolicyError;

    fn try_from(text: String) -> Result<Self, PolicyError> {
        text.parse()
    }
}

impl From<KeepRecent> for String {
    fn from(kept: KeepRecent) -> Self {
        kept.to_string()
    }
}
