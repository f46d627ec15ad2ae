//! Why a model gave no answer, by what is done about it.

use std::time::Duration;

use anneal_core::tokens::Tokens;

use super::http;
use crate::provider_error::{Classification, Midway, OverflowKind};

/// A failed call. Texts are ours: what a provider says may quote what users wrote, and is neither logged nor stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The context does not fit the model: send a shorter one.
    #[error("the context does not fit the model ({rule})")]
    Overflow {
        /// The model's window, where the error names it.
        window: Option<Tokens>,
        /// Tokens of the context by the provider's count, where the error names them.
        prompt: Option<Tokens>,
        /// The rule of `provider_error` that decided.
        rule: &'static str,
    },
    /// Too many calls, or an overloaded provider (429, 503, 529): come back later.
    #[error("the provider limits its calls (status {status})")]
    Limited {
        /// HTTP status.
        status: u16,
        /// When the provider asks to come back.
        retry_after: Option<Duration>,
    },
    /// The provider fails (5xx), cannot be reached, or was too slow: come back later.
    #[error("the provider is unavailable: {what}")]
    Unavailable {
        /// What happened: a status, a phase of the connection.
        what: String,
        /// Whether the provider may have worked on the request; else it was not sent, or refused by the status.
        was_worked_on: bool,
        /// When the provider asks to come back.
        retry_after: Option<Duration>,
    },
    /// The provider refuses the request (key, model name, shape, policy): the same request will be refused again.
    #[error("the provider refuses the request (status {status})")]
    Refused {
        /// HTTP status.
        status: u16,
    },
    /// What came is no answer: not the protocol, cut off, empty, endless, too large. Another try may be answered well.
    #[error("the provider's answer cannot be used: {0}")]
    Broken(&'static str),
}

impl CallFailure {
    /// Its name in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Overflow { .. } => "overflow",
            Self::Limited { .. } => "limited",
            Self::Unavailable { .. } => "unavailable",
            Self::Refused { .. } => "refused",
            Self::Broken(_) => "broken",
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Limited { .. } | Self::Unavailable { .. } | Self::Broken(_))
    }

    /// When the provider asks to come back.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the provider may have worked on the request, and so may bill its input. What it refuses by a status of its own
    /// (4xx, or too many calls) costs nothing, nor does what was never sent.
    pub fn may_have_cost(&self) -> bool {
        match self {
            Self::Limited { .. } | Self::Refused { .. } => false,
            Self::Unavailable { was_worked_on, .. } => *was_worked_on,
            Self::Overflow { rule, .. } => *rule == PROMPT_SHORTENED,
            Self::Broken(_) => true,
        }
    }

    /// Whether it says something of the model or its provider, whoever calls; else perhaps only of this request.
    pub const fn is_the_models_own(&self) -> bool {
        match self {
            Self::Limited { .. } | Self::Unavailable { .. } => true,
            Self::Refused { status } => matches!(status, 401..=404),
            Self::Overflow { .. } | Self::Broken(_) => false,
        }
    }
}

/// The rule of an overflow that the provider has not noticed: it answers a prompt that it cut short.
pub(super) const PROMPT_SHORTENED: &str = "prompt-shortened";

/// The failure that a status stands for.
pub(super) fn of_status(status: u16, retry_after: Option<Duration>) -> CallFailure {
    match status {
        _ if http::is_limit(status) => CallFailure::Limited { status, retry_after },
        408 | 500.. => {
            let was_worked_on = status != 408;
            CallFailure::Unavailable { what: format!("status {status}"), was_worked_on, retry_after }
        }
        _ => CallFailure::Refused { status },
    }
}

/// The failure of an answer that is about the size of the context; None for all others. A quota that is too small for the
/// request counts as one: waiting does not help, a shorter context does. It names no window.
pub(super) fn overflow(verdict: &Classification) -> Option<CallFailure> {
    use OverflowKind::{Bytes, Input, InputPlusOutput, MessageTooLong, QuotaTooSmall};
    let is_size = matches!(verdict.kind, Input | InputPlusOutput | Bytes | MessageTooLong | QuotaTooSmall);
    is_size.then(|| CallFailure::Overflow {
        window: verdict.limit_tokens.map(Tokens::new),
        prompt: verdict.prompt_tokens.map(Tokens::new),
        rule: verdict.rule,
    })
}

/// The failure that an error within an answer stands for.
pub(super) fn midway(error: &Midway) -> CallFailure {
    let by_status = || error.status.map(|status| of_status(status, None));
    overflow(&error.verdict).or_else(by_status).unwrap_or_else(|| unavailable("an error within the answer"))
}

/// It was too slow, or broke off: this happened.
pub(super) fn unavailable(what: &str) -> CallFailure {
    CallFailure::Unavailable { what: what.to_owned(), was_worked_on: true, retry_after: None }
}

/// It cannot be reached: this happened before the request was sent.
pub(super) fn unreached(what: &str) -> CallFailure {
    CallFailure::Unavailable { what: what.to_owned(), was_worked_on: false, retry_after: None }
}
