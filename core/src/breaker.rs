//! Decides when a failed call opens a breaker. A tenant may cause its own failures with its
//! requests or its content. So a tenant's failures open that tenant's breaker, and only failures of
//! at least two tenants open the model's breaker, which stops every tenant.

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

/// The counts before a failure that the model caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailureCounts {
    /// The model's breaker.
    pub model: BreakerState,
    /// Failures counted against the model since its last answer, or since its breaker opened.
    pub evidence: u32,
    /// The tenant's breaker for this model.
    pub tenant: BreakerState,
    /// Consecutive failures of the tenant.
    pub tenant_failures: u32,
    /// The part of `evidence` that comes from the tenant's own calls.
    pub tenant_evidence: u32,
}

/// The counts after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureOutcome {
    /// The new evidence against the model.
    pub evidence: u32,
    /// The part of it that comes from the tenant's own calls.
    pub tenant_evidence: u32,
    /// Whether the model's breaker opens.
    pub opens_model: bool,
    /// Whether the tenant's breaker opens.
    pub opens_tenant: bool,
}

/// Counts one more failure. While the model's breaker is closed, one tenant's failures count up to
/// half of the number that opens it. While it is half open, one failure of each of two tenants
/// opens it again.
pub fn after_failure(counts: &FailureCounts, settings: &BreakerSettings) -> FailureOutcome {
    let enough = settings.model_failures.max(2);
    let (tenant_max, enough) = match counts.model {
        BreakerState::Closed => (enough.div_ceil(2), enough),
        BreakerState::HalfOpen => (1, 2),
        // The call began before the breaker opened.
        BreakerState::Open => (0, u32::MAX),
    };
    let counted = u32::from(counts.tenant_evidence < tenant_max);
    let evidence = counts.evidence.saturating_add(counted);
    let opens_model = evidence >= enough;
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
    struct Model {
        counts: FailureCounts,
        of: BTreeMap<char, FailureCounts>,
    }

    impl Model {
        fn fail(&mut self, tenant: char, settings: &BreakerSettings) -> FailureOutcome {
            let own = self.of.entry(tenant).or_default();
            let counts = FailureCounts {
                model: self.counts.model,
                evidence: self.counts.evidence,
                ..*own
            };
            let failed = after_failure(&counts, settings);
            own.tenant_failures += 1;
            own.tenant_evidence = failed.tenant_evidence;
            if failed.opens_tenant {
                own.tenant = BreakerState::Open;
            }
            self.counts.evidence = failed.evidence;
            if failed.opens_model {
                self.counts.model = BreakerState::Open;
                self.of.values_mut().for_each(|own| own.tenant_evidence = 0);
            }
            failed
        }

        fn answer(&mut self, tenant: char) {
            self.counts = FailureCounts::default();
            self.of.remove(&tenant);
            self.of.values_mut().for_each(|own| own.tenant_evidence = 0);
        }

        fn cool_down(&mut self) {
            let half_open = |state: &mut BreakerState| {
                if *state == BreakerState::Open {
                    *state = BreakerState::HalfOpen;
                }
            };
            half_open(&mut self.counts.model);
            self.of
                .values_mut()
                .for_each(|own| half_open(&mut own.tenant));
        }
    }

    fn after(model_failures: u32) -> BreakerSettings {
        BreakerSettings {
            model_failures,
            ..BreakerSettings::default()
        }
    }

    #[test]
    fn one_tenant_opens_its_own_breaker_and_never_the_models() {
        for most in [1, 2, 3, 20] {
            let (settings, mut model) = (after(most), Model::default());
            for nth in 1..=100 {
                let failed = model.fail('e', &settings);
                assert!(!failed.opens_model, "{most}: failure {nth}");
                assert_eq!(failed.opens_tenant, nth >= most, "{most}: failure {nth}");
            }
        }
    }

    #[test]
    fn two_tenants_with_half_of_the_failures_each_open_the_models_breaker() {
        let (settings, mut model) = (after(20), Model::default());
        for _ in 0..50 {
            assert!(!model.fail('e', &settings).opens_model);
        }
        for nth in 1..=10 {
            assert_eq!(
                model.fail('a', &settings).opens_model,
                nth == 10,
                "failure {nth} of the other"
            );
        }
        let (settings, mut model) = (after(1), Model::default());
        assert!(!model.fail('e', &settings).opens_model);
        assert!(model.fail('a', &settings).opens_model);
    }

    #[test]
    fn an_answer_to_any_tenant_clears_the_evidence_against_a_model() {
        let (settings, mut model) = (after(4), Model::default());
        for _ in 0..20 {
            assert!(!model.fail('e', &settings).opens_model);
            assert!(!model.fail('a', &settings).opens_model);
            model.answer('b');
        }
    }

    #[test]
    fn a_failed_trial_opens_its_tenants_breaker_and_two_open_the_models() {
        let (settings, mut model) = (after(4), Model::default());
        for tenant in ['e', 'e', 'a', 'a'] {
            model.fail(tenant, &settings);
        }
        assert_eq!(model.counts.model, BreakerState::Open);
        assert!(
            !model.fail('b', &settings).opens_model,
            "the call began before the breaker opened"
        );
        model.cool_down();
        for _ in 0..10 {
            let failed = model.fail('e', &settings);
            assert_eq!(
                (failed.opens_model, failed.opens_tenant),
                (false, true),
                "its trials stop no other tenant"
            );
        }
        let failed = model.fail('c', &settings);
        assert_eq!((failed.opens_model, failed.opens_tenant), (true, true));
    }
}
