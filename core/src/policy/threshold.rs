//! The token threshold: how many tokens of tail make a checkpoint due.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{KeepRecent, Policy, PolicyError, least_context};
use crate::tokens::Tokens;

/// The token threshold. Written as a number, as `auto`, or for example as `window - 16384`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum TokenThreshold {
    /// This many tokens in the tail; more if a checkpoint would leave almost as many.
    Tokens(Tokens),
    /// About the size at which checkpoints and the provider's cache together cost least, within the
    /// model's window. It is computed from the figures of the conversation's tail.
    Auto,
    /// The size at which the context is within this many tokens of the model's window. The tail may
    /// always have at least a quarter of the window.
    BelowWindow(Tokens),
}

/// The figures of a conversation's tail that thresholds depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TailFigures {
    /// Tokens of the system prompt and of the checkpoint's summary.
    pub head: Tokens,
    /// Tokens of the tail.
    pub tail: Tokens,
    /// Messages of the tail.
    pub messages: u64,
    /// Turns in the tail, including its first and last one.
    pub turns: u64,
    /// Model calls in the tail, which are its assistant messages.
    pub calls: u64,
}

/// Tokens of the window that computed thresholds reserve for the model's answer, but at most a
/// quarter of the window.
const ANSWER_RESERVE: Tokens = Tokens::new(16_384);

impl Policy {
    /// Tokens of tail from which on a checkpoint is due.
    pub fn threshold(&self, figures: &TailFigures) -> Tokens {
        match self.token_threshold {
            TokenThreshold::Tokens(threshold) => threshold.max(
                self.least_tail(figures.head)
                    .min(self.tail_cap(figures.head)),
            ),
            TokenThreshold::BelowWindow(reserve) => self
                .window
                .less(reserve)
                .less(figures.head)
                .max(Tokens::new((self.window.get() / 4).max(1))),
            TokenThreshold::Auto => Tokens::new(self.cheapest_context(figures))
                .less(figures.head)
                .min(self.tail_cap(figures.head))
                .max(Tokens::new(1)),
        }
    }

    /// Whether the threshold depends on the model's window.
    pub const fn depends_on_window(&self) -> bool {
        match self.token_threshold {
            TokenThreshold::Tokens(_) => matches!(self.keep_recent, KeepRecent::Tokens(_)),
            TokenThreshold::Auto | TokenThreshold::BelowWindow(_) => true,
        }
    }

    /// The tail with which a context has 1.5 K tokens, if a checkpoint keeps a number of tokens. K
    /// is what the checkpoint leaves: the head, and the kept tail, which is at most half of the
    /// threshold (`cut`). So a head that has become much larger than the settings foresaw does not
    /// make a checkpoint with every call. Zero for other values of `keep_recent`.
    fn least_tail(&self, head: Tokens) -> Tokens {
        let KeepRecent::Tokens(keep) = self.keep_recent else {
            return Tokens::ZERO;
        };
        // With t for the tail and h for the head: t + h = 1.5 (h + keep). If that keeps more than
        // t / 2: t + h = 1.5 (h + t / 2), so t = 2 h.
        least_context(head + keep).less(head).min(head + head)
    }

    /// The largest tail with which a context leaves room for the model's answer.
    fn tail_cap(&self, head: Tokens) -> Tokens {
        let reserve = ANSWER_RESERVE.min(Tokens::new(self.window.get() / 4));
        self.window.less(reserve).less(head)
    }

    /// The smallest value of [`Policy::threshold`] for any tail that follows `head` tokens of
    /// system prompt and summary. The tokens that a checkpoint leaves and that each call adds can
    /// only raise the threshold.
    pub fn min_threshold(&self, head: Tokens) -> Tokens {
        self.threshold(&TailFigures {
            head,
            ..TailFigures::default()
        })
    }

    /// The context size at which a checkpoint costs least, and never less than 1.5 K:
    /// `max(K + sqrt(2 * rho * g * K), 1.5 * K)`. K is what a checkpoint leaves, g the new tokens
    /// per call, and rho the relative cost of writing the cache ([`crate::model::Prices::rho`]).
    fn cheapest_context(&self, figures: &TailFigures) -> u64 {
        let after_checkpoint = (figures.head + self.kept_tokens(figures)).get() as f64;
        let per_call = figures.tail.get() as f64 / figures.calls.max(1) as f64;
        let best =
            after_checkpoint + (2.0 * self.prices.rho() * per_call * after_checkpoint).sqrt();
        best.max(1.5 * after_checkpoint) as u64
    }

    /// Approximate tokens that a checkpoint would leave in the tail.
    fn kept_tokens(&self, figures: &TailFigures) -> Tokens {
        let share = |part: u64, whole: u64| {
            Tokens::new((figures.tail.get() as f64 * part as f64 / whole.max(1) as f64) as u64)
                .min(figures.tail)
        };
        match self.keep_recent {
            KeepRecent::Tokens(tokens) => tokens,
            KeepRecent::Turns(turns) => share(u64::from(turns), figures.turns),
            KeepRecent::Share(percent) => share(u64::from(percent), 100),
            KeepRecent::LastUserMessage => share(1, figures.turns),
        }
    }
}

/// The serialized form: a number, or a text such as `auto` or `window - 16384`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Word(String),
}

/// The valid values, for error messages.
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
            Some(rest) => Ok(Self::BelowWindow(number(
                rest.trim_start().strip_prefix('-').ok_or_else(wrong)?,
            )?)),
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
            TokenThreshold::Auto | TokenThreshold::BelowWindow(_) => {
                Self::Word(threshold.to_string())
            }
        }
    }
}
