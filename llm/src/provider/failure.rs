//! Why a model gave no answer, grouped by what the caller should do. `http.rs` makes one attempt.
//! Its callers decide with [`CallFailure::is_retryable`] whether to make another.

use std::time::Duration;

use anneal_core::tokens::Tokens;
use reqwest::StatusCode;

use crate::provider_error::{Classification, Confidence, OverflowKind, StreamError};

/// A failed call. Its texts are anneal's own: a provider's message may quote users' content, so it
/// is neither logged nor stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The context is too long for the model's window, or for another limit of its provider (bytes,
    /// characters of one message, a quota). The caller should send a shorter one.
    #[error("the context does not fit the model ({rule})")]
    Overflow {
        /// The model's window, where the error names it.
        window: Option<Tokens>,
        /// Tokens of the context by the provider's count, where the error names them.
        prompt: Option<Tokens>,
        /// Tokens that the provider has read by its own count, where it has cut the context and
        /// answered as if that were all. None: the provider has reported the overflow.
        read: Option<Tokens>,
        /// The rule of `provider_error`, or the check of anneal's own, that decided this.
        rule: &'static str,
        /// How certain it is that the context is too long.
        confidence: Confidence,
        /// HTTP status of the error that says so; None: no error says so, or it has no status.
        status: Option<u16>,
        /// Of a likely overflow, a number that tells wordings apart:
        /// [`Classification::wording`].
        wording: Option<u64>,
    },
    /// Too many calls, or an overloaded provider (429, 503, 529). The caller should retry later.
    #[error("the provider limits its calls (status {status})")]
    Limited {
        /// HTTP status.
        status: u16,
        /// Delay before a retry, if the provider asks for one.
        retry_after: Option<Duration>,
    },
    /// The provider fails (408, or 5xx but 503 and 529), cannot be reached, or is too slow. The
    /// caller should retry later.
    #[error("the provider is unavailable: {what}")]
    Unavailable {
        /// The status, or a few words on the cause, such as `no connection`.
        what: String,
        /// HTTP status; None: the provider has sent none, or the answer failed after it.
        status: Option<u16>,
        /// Whether the provider may have processed the request. False if the request was not sent,
        /// or timed out while the provider received it (408).
        was_worked_on: bool,
        /// Delay before a retry, if the provider asks for one.
        retry_after: Option<Duration>,
    },
    /// The provider refuses the request (key, model name, format, policy) or redirects it, and
    /// would do so again.
    #[error("the provider refuses the request (status {status})")]
    Refused {
        /// HTTP status.
        status: u16,
    },
    /// The answer is unusable: malformed, cut off, empty or too large. A retry may succeed.
    #[error("the provider's answer cannot be used: {0}")]
    Broken(&'static str),
}

impl CallFailure {
    /// The failure's label in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Overflow { .. } => "overflow",
            Self::Limited { .. } => "limited",
            Self::Unavailable { .. } => "unavailable",
            Self::Refused { .. } => "refused",
            Self::Broken(_) => "broken",
        }
    }

    /// The failure of a call whose caller gave up after [`Model::hang_after`], before the provider
    /// had sent anything.
    ///
    /// [`Model::hang_after`]: super::Model::hang_after
    pub fn unanswered() -> Self {
        unavailable("no answer before its caller gave up")
    }

    /// The HTTP status of the failure, if the provider has sent one.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Limited { status, .. } | Self::Refused { status } => Some(*status),
            Self::Unavailable { status, .. } | Self::Overflow { status, .. } => *status,
            Self::Broken(_) => None,
        }
    }

    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Limited { .. } | Self::Unavailable { .. } | Self::Broken(_)
        )
    }

    /// Delay before a retry, if the provider asks for one.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Limited { retry_after, .. } | Self::Unavailable { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Whether the provider may bill the request's input. A request that was refused by status
    /// (4xx, or too many calls) or never sent costs nothing. An overflow costs something only if
    /// the provider truncated the prompt and answered.
    pub fn may_be_billed(&self) -> bool {
        match self {
            Self::Limited { .. } | Self::Refused { .. } => false,
            Self::Unavailable { was_worked_on, .. } => *was_worked_on,
            Self::Overflow { read, .. } => read.is_some(),
            Self::Broken(_) => true,
        }
    }

    /// Whether the failure concerns all calls of the model, not only this request.
    pub const fn is_model_wide(&self) -> bool {
        match self {
            Self::Limited { .. } | Self::Unavailable { .. } => true,
            // A wrong key, no credit, no permission, or an unknown model.
            Self::Refused { status } => matches!(status, 401..=404),
            Self::Overflow { .. } | Self::Broken(_) => false,
        }
    }
}

/// The rule of an overflow that the provider does not report: it truncated the prompt and answered.
pub(super) const PROMPT_SHORTENED: &str = "prompt-shortened";

/// The failure of an error status.
pub(super) fn of_status(status: u16, retry_after: Option<Duration>) -> CallFailure {
    match status {
        _ if is_limit(status) => CallFailure::Limited {
            status,
            retry_after,
        },
        408 | 500.. => {
            let was_worked_on = status != 408;
            CallFailure::Unavailable {
                what: format!("status {status}"),
                status: Some(status),
                was_worked_on,
                retry_after,
            }
        }
        _ => CallFailure::Refused { status },
    }
}

/// Whether a status means "too many calls", not an error of the provider.
fn is_limit(status: u16) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::SERVICE_UNAVAILABLE
        || status == 529
}

/// The failure of an error that is about the size of the context; None for any other error. A quota
/// that is too small for the request counts as such an error, because only a shorter context helps.
/// `status`: that of the error.
pub(super) fn overflow(verdict: &Classification, status: Option<u16>) -> Option<CallFailure> {
    use OverflowKind::{Bytes, Input, InputPlusOutput, MessageTooLong, QuotaTooSmall};
    let is_size = matches!(
        verdict.kind,
        Input | InputPlusOutput | Bytes | MessageTooLong | QuotaTooSmall
    );
    is_size.then(|| CallFailure::Overflow {
        window: verdict.limit_tokens.map(Tokens::new),
        prompt: verdict.prompt_tokens.map(Tokens::new),
        read: None,
        rule: verdict.rule,
        confidence: verdict.confidence,
        status,
        wording: verdict.wording,
    })
}

/// The failure of an error within an answer.
pub(super) fn of_stream_error(error: &StreamError) -> CallFailure {
    let by_status = || error.status.map(|status| of_status(status, None));
    overflow(&error.verdict, error.status)
        .or_else(by_status)
        .unwrap_or_else(|| unavailable("an error within the answer"))
}

/// The failure of a call that was too slow or broke off. The request may have been processed.
pub(super) fn unavailable(what: &str) -> CallFailure {
    CallFailure::Unavailable {
        what: what.to_owned(),
        status: None,
        was_worked_on: true,
        retry_after: None,
    }
}

/// The failure of a call that broke off before the request was sent.
pub(super) fn unreachable(what: &str) -> CallFailure {
    CallFailure::Unavailable {
        what: what.to_owned(),
        status: None,
        was_worked_on: false,
        retry_after: None,
    }
}
