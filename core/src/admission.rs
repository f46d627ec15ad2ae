//! Whether a language model may be called now: calls under way, breakers, and what a tenant has spent today. The figures
//! are read by the store in one transaction; what follows from them is decided here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::tokens::Tokens;

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallLimits {
    /// Calls of the model under way in all processes together; None: any number.
    pub concurrent: Option<u32>,
    /// Calls of these that one tenant may have under way where there are other tenants; None: all of them.
    pub tenant_share: Option<u32>,
    /// Tokens that a tenant's calls may read and write in a day (UTC); None: any number.
    pub tokens_per_day: Option<Tokens>,
    /// When calls are given up for a while.
    pub breaker: BreakerSettings,
}

/// When calls are given up for a while, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerSettings {
    /// Failures in a row after which a conversation's breaker opens.
    pub failures: u32,
    /// Failures in a row after which a tenant's breaker for a model opens, and the model's, if they are not of one tenant.
    pub model_failures: u32,
    /// Seconds that an open breaker stays open; then one call tries.
    pub cooldown_seconds: u32,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: 5, model_failures: 20, cooldown_seconds: 60 }
    }
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPurpose {
    /// A summary. Its conversation's breaker counts.
    Summary,
    /// A turn of a chat. One at a time for each conversation.
    Turn,
}

/// A breaker as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Failures in a row.
    pub failures: u32,
    /// How long it is still open; None: it is closed, or half open.
    pub open_for: Option<Duration>,
    /// Whether its time is over, and a call tries whether it may close.
    pub is_half_open: bool,
}

/// How things stand at the moment of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The model's breaker.
    pub model: Breaker,
    /// The tenant's own for this model.
    pub tenant: Breaker,
    /// The conversation's.
    pub conversation: Breaker,
    /// Calls of the model under way.
    pub under_way: u32,
    /// Of these: the tenant's.
    pub tenant_under_way: u32,
    /// Whether there are other tenants.
    pub has_neighbours: bool,
    /// Tokens that the tenant's calls have used today, and those reserved by calls under way.
    pub tenant_tokens: Tokens,
    /// Time until the tenant's next day.
    pub day_left: Duration,
    /// Whether a turn of this conversation is under way.
    pub turn: bool,
}

/// Why a call is not even made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// Calls failed too often in a row: nobody calls until then.
    #[error("the breaker of this {scope} is open for {} s", .opens_in.as_secs().max(1))]
    Breaker {
        /// The breaker that is open: that of the `model`, of the `tenant` or of the `conversation`.
        scope: &'static str,
        /// Time until the next try.
        opens_in: Duration,
    },
    /// As many calls of the model are under way as are allowed.
    #[error("every call that the model may have is under way")]
    Busy,
    /// As many calls of the model are under way as are allowed to one tenant.
    #[error("every call that the tenant may have of the model is under way")]
    Share,
    /// The tenant's tokens of the day are spent.
    #[error("the tenant's tokens of the day are spent")]
    Budget {
        /// Time until there are new ones.
        opens_in: Duration,
    },
    /// A turn of this conversation is under way.
    #[error("a turn of this conversation is under way")]
    Turn,
}

/// Admits a call that may use `tokens`, or says why not.
pub fn admit(standing: &Standing, limits: &CallLimits, purpose: CallPurpose, tokens: Tokens) -> Result<(), Closed> {
    if purpose == CallPurpose::Turn && standing.turn {
        return Err(Closed::Turn);
    }
    let conversation = (purpose == CallPurpose::Summary).then_some(("conversation", standing.conversation));
    for (scope, breaker) in [("model", standing.model), ("tenant", standing.tenant)].into_iter().chain(conversation) {
        if let Some(opens_in) = breaker.open_for {
            return Err(Closed::Breaker { scope, opens_in });
        }
    }
    if limits.tokens_per_day.is_some_and(|most| standing.tenant_tokens + tokens > most) {
        return Err(Closed::Budget { opens_in: standing.day_left });
    }
    if standing.has_neighbours && limits.tenant_share.is_some_and(|most| standing.tenant_under_way >= most) {
        return Err(Closed::Share);
    }
    if limits.concurrent.is_some_and(|most| standing.under_way >= most) {
        return Err(Closed::Busy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Breaker = Breaker { failures: 5, open_for: Some(Duration::from_secs(9)), is_half_open: false };

    fn asked(standing: &Standing, limits: &CallLimits, purpose: CallPurpose) -> Result<(), Closed> {
        admit(standing, limits, purpose, Tokens::new(100))
    }

    #[test]
    fn without_limits_and_troubles_every_call_is_admitted() {
        let busy = Standing { under_way: 1_000, tenant_tokens: Tokens::new(1 << 40), ..Standing::default() };
        assert_eq!(asked(&busy, &CallLimits::default(), CallPurpose::Summary), Ok(()));
    }

    #[test]
    fn a_conversations_breaker_stops_its_summaries_and_not_its_turns() {
        let standing = Standing { conversation: OPEN, ..Standing::default() };
        let refused = asked(&standing, &CallLimits::default(), CallPurpose::Summary);
        assert_eq!(refused, Err(Closed::Breaker { scope: "conversation", opens_in: Duration::from_secs(9) }));
        assert_eq!(asked(&standing, &CallLimits::default(), CallPurpose::Turn), Ok(()));
        let standing = Standing { model: OPEN, ..Standing::default() };
        assert!(asked(&standing, &CallLimits::default(), CallPurpose::Turn).is_err());
    }

    #[test]
    fn limits_hold_to_the_last_call_and_the_last_token() {
        let limits =
            CallLimits { concurrent: Some(2), tokens_per_day: Some(Tokens::new(1_000)), ..CallLimits::default() };
        let standing = Standing { under_way: 1, tenant_tokens: Tokens::new(900), ..Standing::default() };
        assert_eq!(asked(&standing, &limits, CallPurpose::Summary), Ok(()));
        let full = Standing { under_way: 2, ..standing };
        assert_eq!(asked(&full, &limits, CallPurpose::Summary), Err(Closed::Busy));
        let spent = Standing { tenant_tokens: Tokens::new(901), ..standing };
        assert!(matches!(asked(&spent, &limits, CallPurpose::Summary), Err(Closed::Budget { .. })));
    }

    #[test]
    fn a_tenants_breaker_stops_its_turns_and_its_summaries() {
        let standing = Standing { tenant: OPEN, ..Standing::default() };
        for purpose in [CallPurpose::Turn, CallPurpose::Summary] {
            let refused = asked(&standing, &CallLimits::default(), purpose);
            assert_eq!(refused, Err(Closed::Breaker { scope: "tenant", opens_in: Duration::from_secs(9) }));
        }
    }

    #[test]
    fn a_tenant_beside_others_has_its_share_and_one_alone_all() {
        let limits = CallLimits { concurrent: Some(8), tenant_share: Some(4), ..CallLimits::default() };
        let alone = Standing { under_way: 7, tenant_under_way: 7, ..Standing::default() };
        assert_eq!(asked(&alone, &limits, CallPurpose::Turn), Ok(()));
        let beside = Standing { has_neighbours: true, ..alone };
        assert_eq!(asked(&beside, &limits, CallPurpose::Turn), Err(Closed::Share));
        let within = Standing { tenant_under_way: 3, ..beside };
        assert_eq!(asked(&within, &limits, CallPurpose::Turn), Ok(()));
        let full = Standing { under_way: 8, ..within };
        assert_eq!(asked(&full, &limits, CallPurpose::Turn), Err(Closed::Busy));
    }

    #[test]
    fn one_turn_at_a_time() {
        let standing = Standing { turn: true, ..Standing::default() };
        assert_eq!(asked(&standing, &CallLimits::default(), CallPurpose::Turn), Err(Closed::Turn));
        assert_eq!(asked(&standing, &CallLimits::default(), CallPurpose::Summary), Ok(()));
    }
}
