//! Decides whether a language model may be called now, from calls in flight, breakers and the
//! tokens that a tenant has used today. The store reads these figures in one transaction
//! (`store/src/model_calls/`). `llm/src/access.rs` makes the limits from the operator's settings.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::tokens::Tokens;

/// The operator's limits for calls of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallLimits {
    /// Most calls of the model in flight, over all processes; None: no limit.
    pub concurrent: Option<u32>,
    /// Most calls of the model in flight for one tenant while other tenants exist; None: no limit.
    pub tenant_share: Option<u32>,
    /// Most tokens that a tenant's calls may read and write in a UTC day; None: no limit.
    pub tokens_per_day: Option<Tokens>,
    /// When breakers open, and for how long.
    pub breaker: BreakerSettings,
}

/// A breaker refuses calls after consecutive failures: a circuit breaker. These settings say when
/// it opens, and for how long it stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerSettings {
    /// Consecutive failures after which a conversation's breaker opens.
    pub failures: u32,
    /// Consecutive failures after which a tenant's breaker for a model opens. The model's own
    /// breaker opens at the same number of failures, of which one tenant's count for at most half
    /// (module `breaker`).
    pub model_failures: u32,
    /// Seconds that an open breaker refuses calls. Then it is half open and admits one trial call
    /// at a time; a model's breaker admits one for each tenant.
    pub cooldown_seconds: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 5,
            model_failures: 20,
            cooldown_seconds: 60,
        }
    }
}

/// The purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPurpose {
    /// Writes a summary. The conversation's breaker applies too.
    Summary,
    /// Answers a chat turn. A conversation has one at a time; its breaker does not apply.
    Turn,
    /// Keeps the provider's cache warm after a turn. It is never a trial, and the conversation's
    /// breaker does not apply.
    Ping,
}

/// A breaker's state as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Consecutive failures.
    pub failures: u32,
    /// Time until it is half open; None: it is closed or half open already.
    pub open_for: Option<Duration>,
    /// Whether its cooldown is over, so that a trial call may close it.
    pub is_half_open: bool,
}

/// The figures that an admission is decided from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionState {
    /// The model's breaker.
    pub model: Breaker,
    /// The tenant's breaker for this model.
    pub tenant: Breaker,
    /// The conversation's breaker.
    pub conversation: Breaker,
    /// Calls of the model in flight, over all tenants.
    pub calls_in_flight: u32,
    /// Calls of the model in flight for this tenant.
    pub tenant_calls_in_flight: u32,
    /// Whether the installation has other tenants.
    pub has_other_tenants: bool,
    /// Tokens that the tenant's calls have used today, plus those reserved by calls in flight.
    pub tenant_tokens: Tokens,
    /// Time until the next UTC day, in which the tenant's tokens are counted from zero.
    pub day_left: Duration,
    /// Whether a turn of this conversation is in flight.
    pub turn_in_flight: bool,
}

/// Why and since when a breaker is open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BreakerCause {
    /// How long ago the breaker opened; None: this is not known.
    pub opened_ago: Option<Duration>,
    /// The last failure, without content of messages; empty: this is not known.
    pub last_error: String,
}

impl fmt::Display for BreakerCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(opened_ago) = self.opened_ago {
            write!(f, ", it opened {} s ago", opened_ago.as_secs())?;
        }
        if !self.last_error.is_empty() {
            write!(f, ", its last failure: {}", self.last_error)?;
        }
        Ok(())
    }
}

/// Why a call is refused before it is made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionRefusal {
    /// A breaker is open after too many consecutive failures.
    #[error("the breaker of this {scope} is open for {} s{cause}", .retry_after.as_secs().max(1))]
    Breaker {
        /// Which breaker is open: `model`, `tenant` or `conversation`.
        scope: &'static str,
        /// Time until the breaker stops refusing calls and admits a trial call.
        retry_after: Duration,
        /// Empty in what [`admit`] returns; the store, which knows it, fills it in.
        cause: BreakerCause,
    },
    /// The model has its maximum of calls in flight.
    #[error("the model already has its maximum number of calls in flight")]
    Busy,
    /// The tenant has its maximum of the model's calls in flight.
    #[error("the tenant already has its maximum number of this model's calls in flight")]
    Share,
    /// The tenant's tokens of the day are used up.
    #[error("the tenant has used up its tokens of the day")]
    Budget {
        /// Time until the next UTC day, in which the tenant's tokens are counted from zero.
        retry_after: Duration,
    },
    /// A turn of this conversation is in flight.
    #[error("another turn of this conversation is in flight")]
    Turn,
}

/// Decides whether a call that may use up to `tokens` is admitted; if not, returns the reason.
///
/// A half-open breaker refuses only a ping here, because a ping cannot be its trial. While a trial
/// call runs, the store keeps the breaker of the tenant or of the conversation open, so that
/// `open_for` refuses a second trial call.
pub fn admit(
    state: &AdmissionState,
    limits: &CallLimits,
    purpose: CallPurpose,
    tokens: Tokens,
) -> Result<(), AdmissionRefusal> {
    if purpose == CallPurpose::Turn && state.turn_in_flight {
        return Err(AdmissionRefusal::Turn);
    }
    let conversation =
        (purpose == CallPurpose::Summary).then_some(("conversation", state.conversation));
    for (scope, breaker) in [("model", state.model), ("tenant", state.tenant)]
        .into_iter()
        .chain(conversation)
    {
        let waits_for_trial = purpose == CallPurpose::Ping && breaker.is_half_open;
        let open_for = breaker
            .open_for
            .or(waits_for_trial.then_some(Duration::ZERO));
        if let Some(retry_after) = open_for {
            return Err(AdmissionRefusal::Breaker {
                scope,
                retry_after,
                cause: BreakerCause::default(),
            });
        }
    }
    if limits
        .tokens_per_day
        .is_some_and(|most| state.tenant_tokens + tokens > most)
    {
        return Err(AdmissionRefusal::Budget {
            retry_after: state.day_left,
        });
    }
    if state.has_other_tenants
        && limits
            .tenant_share
            .is_some_and(|most| state.tenant_calls_in_flight >= most)
    {
        return Err(AdmissionRefusal::Share);
    }
    if limits
        .concurrent
        .is_some_and(|most| state.calls_in_flight >= most)
    {
        return Err(AdmissionRefusal::Busy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Breaker = Breaker {
        failures: 5,
        open_for: Some(Duration::from_secs(9)),
        is_half_open: false,
    };

    /// Asks for a call that may use up to 100 tokens.
    fn admitted(
        state: &AdmissionState,
        limits: &CallLimits,
        purpose: CallPurpose,
    ) -> Result<(), AdmissionRefusal> {
        admit(state, limits, purpose, Tokens::new(100))
    }

    #[test]
    fn with_no_limit_and_no_open_breaker_every_call_is_admitted() {
        let busy = AdmissionState {
            calls_in_flight: 1_000,
            tenant_tokens: Tokens::new(1 << 40),
            ..AdmissionState::default()
        };
        assert_eq!(
            admitted(&busy, &CallLimits::default(), CallPurpose::Summary),
            Ok(())
        );
    }

    #[test]
    fn a_conversations_breaker_stops_its_summaries_and_not_its_turns() {
        let state = AdmissionState {
            conversation: OPEN,
            ..AdmissionState::default()
        };
        let refused = admitted(&state, &CallLimits::default(), CallPurpose::Summary);
        assert_eq!(
            refused,
            Err(AdmissionRefusal::Breaker {
                scope: "conversation",
                retry_after: Duration::from_secs(9),
                cause: BreakerCause::default(),
            })
        );
        assert_eq!(
            admitted(&state, &CallLimits::default(), CallPurpose::Turn),
            Ok(())
        );
        let state = AdmissionState {
            model: OPEN,
            ..AdmissionState::default()
        };
        assert!(admitted(&state, &CallLimits::default(), CallPurpose::Turn).is_err());
    }

    #[test]
    fn a_refusal_says_since_when_a_breaker_is_open_and_what_failed_last() {
        let refusal = |cause| AdmissionRefusal::Breaker {
            scope: "model",
            retry_after: Duration::from_secs(43),
            cause,
        };
        assert_eq!(
            refusal(BreakerCause::default()).to_string(),
            "the breaker of this model is open for 43 s"
        );
        let known = BreakerCause {
            opened_ago: Some(Duration::from_secs(17)),
            last_error: "no connection".into(),
        };
        assert_eq!(
            refusal(known).to_string(),
            "the breaker of this model is open for 43 s, it opened 17 s ago, \
             its last failure: no connection"
        );
    }

    #[test]
    fn a_call_may_reach_a_limit_but_not_exceed_it() {
        let limits = CallLimits {
            concurrent: Some(2),
            tokens_per_day: Some(Tokens::new(1_000)),
            ..CallLimits::default()
        };
        let state = AdmissionState {
            calls_in_flight: 1,
            tenant_tokens: Tokens::new(900),
            ..AdmissionState::default()
        };
        assert_eq!(admitted(&state, &limits, CallPurpose::Summary), Ok(()));
        let full = AdmissionState {
            calls_in_flight: 2,
            ..state
        };
        assert_eq!(
            admitted(&full, &limits, CallPurpose::Summary),
            Err(AdmissionRefusal::Busy)
        );
        let spent = AdmissionState {
            tenant_tokens: Tokens::new(901),
            ..state
        };
        assert!(matches!(
            admitted(&spent, &limits, CallPurpose::Summary),
            Err(AdmissionRefusal::Budget { .. })
        ));
    }

    #[test]
    fn a_tenants_breaker_stops_its_turns_and_its_summaries() {
        let state = AdmissionState {
            tenant: OPEN,
            ..AdmissionState::default()
        };
        for purpose in [CallPurpose::Turn, CallPurpose::Summary] {
            let refused = admitted(&state, &CallLimits::default(), purpose);
            assert_eq!(
                refused,
                Err(AdmissionRefusal::Breaker {
                    scope: "tenant",
                    retry_after: Duration::from_secs(9),
                    cause: BreakerCause::default(),
                })
            );
        }
    }

    #[test]
    fn a_ping_is_never_a_trial_and_needs_no_place_of_a_turn() {
        let half_open = Breaker {
            is_half_open: true,
            ..Breaker::default()
        };
        let of_model = AdmissionState {
            model: half_open,
            ..AdmissionState::default()
        };
        let of_tenant = AdmissionState {
            tenant: half_open,
            ..AdmissionState::default()
        };
        let limits = CallLimits::default();
        for (state, scope) in [(of_model, "model"), (of_tenant, "tenant")] {
            let refused = admitted(&state, &limits, CallPurpose::Ping);
            assert_eq!(
                refused,
                Err(AdmissionRefusal::Breaker {
                    scope,
                    retry_after: Duration::ZERO,
                    cause: BreakerCause::default(),
                })
            );
            assert_eq!(admitted(&state, &limits, CallPurpose::Turn), Ok(()));
        }
        let beside_a_turn = AdmissionState {
            conversation: OPEN,
            turn_in_flight: true,
            ..AdmissionState::default()
        };
        assert_eq!(admitted(&beside_a_turn, &limits, CallPurpose::Ping), Ok(()));
    }

    #[test]
    fn a_tenant_is_limited_to_its_share_only_while_there_are_others() {
        let limits = CallLimits {
            concurrent: Some(8),
            tenant_share: Some(4),
            ..CallLimits::default()
        };
        let without_others = AdmissionState {
            calls_in_flight: 7,
            tenant_calls_in_flight: 7,
            ..AdmissionState::default()
        };
        assert_eq!(
            admitted(&without_others, &limits, CallPurpose::Turn),
            Ok(())
        );
        let with_others = AdmissionState {
            has_other_tenants: true,
            ..without_others
        };
        assert_eq!(
            admitted(&with_others, &limits, CallPurpose::Turn),
            Err(AdmissionRefusal::Share)
        );
        let within = AdmissionState {
            tenant_calls_in_flight: 3,
            ..with_others
        };
        assert_eq!(admitted(&within, &limits, CallPurpose::Turn), Ok(()));
        let full = AdmissionState {
            calls_in_flight: 8,
            ..within
        };
        assert_eq!(
            admitted(&full, &limits, CallPurpose::Turn),
            Err(AdmissionRefusal::Busy)
        );
    }

    #[test]
    fn a_conversation_has_one_turn_in_flight_at_a_time() {
        let state = AdmissionState {
            turn_in_flight: true,
            ..AdmissionState::default()
        };
        assert_eq!(
            admitted(&state, &CallLimits::default(), CallPurpose::Turn),
            Err(AdmissionRefusal::Turn)
        );
        assert_eq!(
            admitted(&state, &CallLimits::default(), CallPurpose::Summary),
            Ok(())
        );
    }
}
