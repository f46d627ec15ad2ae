//! How many tokens of tail make a checkpoint due.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{KeepRecent, Policy, PolicyError};
use crate::tokens::Tokens;

/// When a checkpoint is due by tokens. Written as a number, `auto`, or `window - 16384`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum TokenThreshold {
    /// At so many tokens in the tail.
    Tokens(Tokens),
    /// Where checkpoints and cache together cost least, by the conversation's own figures.
    Auto,
    /// When the context comes within so many tokens of the model's window.
    BelowWindow(Tokens),
}

/// A conversation's figures, as `auto` and `window - n` need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Context {
    /// Tokens of the system prompt and of the checkpoint's summary.
    pub head: Tokens,
    /// Tokens of the tail.
    pub tail: Tokens,
    /// Messages of the tail.
    pub messages: u64,
    /// Turns that the tail holds, its first and last one included.
    pub turns: u64,
    /// Model calls in the tail: its assistant messages.
    pub calls: u64,
}

/// What is left free of the window for the model's answer where the threshold itself names no reserve.
const RESERVE: Tokens = Tokens::new(16_384);

impl Policy {
    /// Tokens of tail from which on a checkpoint is due, for a conversation with these figures.
    pub fn threshold(&self, context: &Context) -> Tokens {
        match self.token_threshold {
            TokenThreshold::Tokens(most) => most,
            TokenThreshold::BelowWindow(reserve) => {
                self.window.less(reserve).less(context.head).max(Tokens::new((self.window.get() / 4).max(1)))
            }
            TokenThreshold::Auto => {
                let cap = self.window.less(RESERVE.min(Tokens::new(self.window.get() / 4)));
                Tokens::new(self.cheapest(context)).min(cap).less(context.head).max(Tokens::new(1))
            }
        }
    }

    /// Whether a threshold goes by the model's window.
    pub const fn goes_by_window(&self) -> bool {
        !matches!(self.token_threshold, TokenThreshold::Tokens(_))
    }

    /// The least that [`Policy::threshold`] can be, whatever the tail, behind so many tokens of system prompt and summary: what a
    /// checkpoint leaves, and what a call adds, only raise it.
    pub fn least_threshold(&self, head: Tokens) -> Tokens {
        self.threshold(&Context { head, ..Context::default() })
    }

    /// The context size at which a checkpoint costs least: `max(K + sqrt(2 * rho * g * K), 1.5 * K)`, where K is what a
    /// checkpoint leaves, g the new tokens per call, and rho what writing the cache costs against reading it.
    fn cheapest(&self, context: &Context) -> u64 {
        let left = (context.head + self.kept(context)).get() as f64;
        let per_call = context.tail.get() as f64 / context.calls.max(1) as f64;
        let best = left + (2.0 * self.prices.rho() * per_call * left).sqrt();
        best.max(1.5 * left) as u64
    }

    /// About how many tokens a checkpoint would leave in the tail.
    fn kept(&self, context: &Context) -> Tokens {
        let share = |part: u64, whole: u64| {
            Tokens::new((context.tail.get() as f64 * part as f64 / whole.max(1) as f64) as u64).min(context.tail)
        };
        match self.keep_recent {
            KeepRecent::Tokens(tokens) => tokens,
            KeepRecent::Turns(turns) => share(u64::from(turns), context.turns),
            KeepRecent::Share(percent) => share(u64::from(percent), 100),
            KeepRecent::LastUserMessage => share(1, context.turns),
        }
    }
}

/// A number or a word.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Word(String),
}

const FORMS: &str = "a number of tokens, `auto`, or `window - 16384`";

impl fmt::Display for TokenThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(tokens) => tokens.fmt(f),
            Self::Auto => f.write_str("auto"),
            Self::BelowWindow(reserve) => write!(f, "window - {reserve}"),
        }
    }
}

impl FromStr for TokenThreshold {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let wrong = || PolicyError::new("token_threshold", FORMS);
        let text = text.trim();
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = |digits: &str| digits.trim().parse().map(Tokens::new).map_err(|_| wrong());
        match text.strip_prefix("window") {
            Some(rest) => Ok(Self::BelowWindow(number(rest.trim_start().strip_prefix('-').ok_or_else(wrong)?)?)),
            None => Ok(Self::Tokens(number(text)?)),
        }
    }
}

impl TryFrom<Written> for TokenThreshold {
    type Error = PolicyError;

    fn try_from(written: Written) -> Result<Self, PolicyError> {
        match written {
            Written::Number(tokens) => Ok(Self::Tokens(Tokens::new(tokens))),
            Written::Word(word) => word.parse(),
        }
    }
}

impl From<TokenThreshold> for Written {
    fn from(threshold: TokenThreshold) -> Self {
        match threshold {
            TokenThreshold::Tokens(tokens) => Self::Number(tokens.get()),
            TokenThreshold::Auto | TokenThreshold::BelowWindow(_) => Self::Word(threshold.to_string()),
        }
    }
}
