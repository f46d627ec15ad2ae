//! Decides when a failed call opens the breaker of its model, or its tenant's breaker for that
//! model. (`store/sql/settle_call.sql` opens a conversation's breaker.)
//!
//! A tenant may cause its own failures with its requests or its content. So a tenant's failures
//! open that tenant's breaker, and only failures of at least two tenants open the model's breaker,
//! which stops every tenant. The failures that count against the model are called its evidence: of
//! one tenant's failures only a limited number counts.

use crate::admission::BreakerSettings;

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerState {
    /// Calls are admitted.
    #[default]
    Closed,
    /// No call is admitted.
    Open,
    /// The cooldown is over. One trial call at a time is admitted for each tenant.
    HalfOpen,
}

/// The breakers' states and counts before a failure of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailureCounts {
    /// State of the model's breaker.
    pub model: BreakerState,
    /// Failures counted against the model since its last answer, or since its breaker opened.
    pub evidence: u32,
    /// State of the tenant's breaker for this model.
    pub tenant: BreakerState,
    /// Consecutive failures of the tenant.
    pub tenant_failures: u32,
    /// The part of `evidence` that comes from the tenant's own calls.
    pub tenant_evidence: u32,
}

/// The counts after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureOutcome {
    /// Failures counted against the model, the new one included if it counts; zero if the model's
    /// breaker opens.
    pub evidence: u32,
    /// The failures counted against the model that come from the tenant's own calls. If the model's
    /// breaker opens, they count no longer: the store then begins a new series.
    pub tenant_evidence: u32,
    /// Whether the model's breaker opens.
    pub opens_model: bool,
    /// Whether the tenant's breaker opens.
    pub opens_tenant: bool,
}

/// Counts one more failure. While the model's breaker is closed, the failures of one tenant count
/// for at most half (rounded up) of the number that opens it, which is at least two. While the
/// model's breaker is half open, it opens again after failures of two tenants.
///
/// The tenant's breaker opens after `model_failures` consecutive failures of the tenant, and after
/// each failure while one of the two breakers is half open.
pub fn after_failure(counts: &FailureCounts, settings: &BreakerSettings) -> FailureOutcome {
    // At least two, because failures of one tenant never suffice.
    let opening_count_while_closed = settings.model_failures.max(2);
    let (tenant_max, opening_count) = match counts.model {
        BreakerState::Closed => (
            opening_count_while_closed.div_ceil(2),
            opening_count_while_closed,
        ),
        BreakerState::HalfOpen => (1, 2),
        // The call began before the breaker opened.
        BreakerState::Open => (0, u32::MAX),
    };
    let counted = u32::from(counts.tenant_evidence < tenant_max);
    let evidence = counts.evidence.saturating_add(counted);
    let opens_model = evidence >= opening_count;
    FailureOutcome {
        evidence: if opens_model { 0 } else { evidence },
        tenant_evidence: counts.tenant_evidence + counted,
        opens_model,
        opens_tenant: counts.tenant_failures.saturating_add(1) >= settings.model_failures
            || [counts.model, counts.tenant].contains(&BreakerState::HalfOpen),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The model's breaker and the tenants' breakers. Failures and answers are applied in the order
    /// in which the store applies them.
    #[derive(Default)]
    struct Breakers {
        counts: FailureCounts,
        tenants: BTreeMap<char, FailureCounts>,
    }

    impl Breakers {
        fn fail(&mut self, tenant: char, settings: &BreakerSettings) -> FailureOutcome {
            let tenant_counts = self.tenants.entry(tenant).or_default();
            let counts = FailureCounts {
                model: self.counts.model,
                evidence: self.counts.evidence,
                ..*tenant_counts
            };
            let failed = after_failure(&counts, settings);
            tenant_counts.tenant_failures += 1;
            tenant_counts.tenant_evidence = failed.tenant_evidence;
            if failed.opens_tenant {
                tenant_counts.tenant = BreakerState::Open;
            }
            self.counts.evidence = failed.evidence;
            if failed.opens_model {
                self.counts.model = BreakerState::Open;
                self.clear_tenant_evidence();
            }
            failed
        }

        fn answer(&mut self, tenant: char) {
            self.counts = FailureCounts::default();
            self.tenants.remove(&tenant);
            self.clear_tenant_evidence();
        }

        fn clear_tenant_evidence(&mut self) {
            let tenants = self.tenants.values_mut();
            tenants.for_each(|tenant_counts| tenant_counts.tenant_evidence = 0);
        }

        fn cool_down(&mut self) {
            let half_open = |state: &mut BreakerState| {
                if *state == BreakerState::Open {
                    *state = BreakerState::HalfOpen;
                }
            };
            half_open(&mut self.counts.model);
            self.tenants
                .values_mut()
                .for_each(|tenant_counts| half_open(&mut tenant_counts.tenant));
        }
    }

    fn opening_after(model_failures: u32) -> BreakerSettings {
        BreakerSettings {
            model_failures,
            ..BreakerSettings::default()
        }
    }

    #[test]
    fn one_tenant_opens_its_own_breaker_and_never_the_models() {
        for model_failures in [1, 2, 3, 20] {
            let (settings, mut breakers) = (opening_after(model_failures), Breakers::default());
            for nth in 1..=100 {
                let failed = breakers.fail('e', &settings);
                let case = format!("limit {model_failures}, failure {nth}");
                assert!(!failed.opens_model, "{case}");
                assert_eq!(failed.opens_tenant, nth >= model_failures, "{case}");
            }
        }
    }

    #[test]
    fn two_tenants_with_half_of_the_failures_each_open_the_models_breaker() {
        let (settings, mut breakers) = (opening_after(20), Breakers::default());
        // Only ten of these failures count against the model.
        for _ in 0..50 {
            assert!(!breakers.fail('e', &settings).opens_model);
        }
        for nth in 1..=10 {
            assert_eq!(
                breakers.fail('a', &settings).opens_model,
                nth == 10,
                "failure {nth} of the second tenant"
            );
        }
        let (settings, mut breakers) = (opening_after(1), Breakers::default());
        assert!(!breakers.fail('e', &settings).opens_model);
        assert!(breakers.fail('a', &settings).opens_model);
    }

    #[test]
    fn an_answer_to_any_tenant_clears_the_evidence_against_a_model() {
        let (settings, mut breakers) = (opening_after(4), Breakers::default());
        for _ in 0..20 {
            assert!(!breakers.fail('e', &settings).opens_model);
            assert!(!breakers.fail('a', &settings).opens_model);
            breakers.answer('b');
        }
    }

    #[test]
    fn a_failed_trial_opens_its_tenants_breaker_and_those_of_two_tenants_open_the_models() {
        let (settings, mut breakers) = (opening_after(4), Breakers::default());
        for tenant in ['e', 'e', 'a', 'a'] {
            breakers.fail(tenant, &settings);
        }
        assert_eq!(breakers.counts.model, BreakerState::Open);
        assert!(
            !breakers.fail('b', &settings).opens_model,
            "the call began before the breaker opened"
        );
        breakers.cool_down();
        for _ in 0..10 {
            let failed = breakers.fail('e', &settings);
            assert_eq!(
                (failed.opens_model, failed.opens_tenant),
                (false, true),
                "one tenant's failed trials do not open the model's breaker"
            );
        }
        let failed = breakers.fail('c', &settings);
        assert_eq!((failed.opens_model, failed.opens_tenant), (true, true));
    }
}
