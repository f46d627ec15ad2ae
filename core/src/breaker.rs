//! When a failed call opens a breaker. A tenant's failures may be its own doing: its requests, its content. So a tenant's
//! failures open its own breaker, and only failures of at least two tenants open the model's, which stops everybody.

use crate::admission::BreakerSettings;

/// How a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Calls are made.
    #[default]
    Closed,
    /// No call is made.
    Open,
    /// Its time is over: one call at a time of each tenant tries whether it may close.
    HalfOpen,
}

/// The state of a breaker before a failure that is the model's own is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures {
    /// How the model's breaker stands.
    pub model: State,
    /// Failures that count against the model since its last answer, or since its breaker opened.
    pub evidence: u32,
    /// How the tenant's breaker for this model stands.
    pub tenant: State,
    /// Failures of the tenant in a row.
    pub of_tenant: u32,
    /// The part of `evidence` that the tenant's own calls made.
    pub tenant_evidence: u32,
}

/// The state of a breaker after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// The evidence against the model from now on.
    pub evidence: u32,
    /// The part of it that the tenant's own calls made.
    pub tenant_evidence: u32,
    /// Whether nobody calls the model for a while.
    pub opens_model: bool,
    /// Whether the tenant does not.
    pub opens_tenant: bool,
}

/// Counts one more failure. Against a model whose breaker is closed a tenant's failures count up to half of what opens
/// it; once the breaker's time is over, one failure of each of two tenants opens it again.
pub fn fail(known: &Failures, settings: &BreakerSettings) -> Failed {
    let enough = settings.model_failures.max(2);
    let (most_of_one, enough) = match known.model {
        State::Closed => (enough.div_ceil(2), enough),
        State::HalfOpen => (1, 2),
        // Calls that began before it opened.
        State::Open => (0, u32::MAX),
    };
    let counts = u32::from(known.tenant_evidence < most_of_one);
    let evidence = known.evidence.saturating_add(counts);
    let opens_model = evidence >= enough;
    Failed {
        evidence: if opens_model { 0 } else { evidence },
        tenant_evidence: known.tenant_evidence + counts,
        opens_model,
        opens_tenant: known.of_tenant.saturating_add(1) >= settings.model_failures
            || [known.model, known.tenant].contains(&State::HalfOpen),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A model's breaker and those of tenants, told of failures and answers as the store tells them.
    #[derive(Default)]
    struct Model {
        known: Failures,
        of: BTreeMap<char, Failures>,
    }

    impl Model {
        fn fail(&mut self, tenant: char, settings: &BreakerSettings) -> Failed {
            let own = self.of.entry(tenant).or_default();
            let known = Failures { model: self.known.model, evidence: self.known.evidence, ..*own };
            let failed = fail(&known, settings);
            own.of_tenant += 1;
            own.tenant_evidence = failed.tenant_evidence;
            if failed.opens_tenant {
                own.tenant = State::Open;
            }
            self.known.evidence = failed.evidence;
            if failed.opens_model {
                self.known.model = State::Open;
                self.of.values_mut().for_each(|own| own.tenant_evidence = 0);
            }
            failed
        }

        fn answer(&mut self, tenant: char) {
            self.known = Failures::default();
            self.of.remove(&tenant);
            self.of.values_mut().for_each(|own| own.tenant_evidence = 0);
        }

        fn cool_down(&mut self) {
            let half_open = |state: &mut State| {
                if *state == State::Open {
                    *state = State::HalfOpen;
                }
            };
            half_open(&mut self.known.model);
            self.of.values_mut().for_each(|own| half_open(&mut own.tenant));
        }
    }

    fn after(model_failures: u32) -> BreakerSettings {
        BreakerSettings { model_failures, ..BreakerSettings::default() }
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
    fn two_tenants_open_the_models_once_each_has_half_of_the_failures() {
        let (settings, mut model) = (after(20), Model::default());
        for _ in 0..50 {
            assert!(!model.fail('e', &settings).opens_model);
        }
        for nth in 1..=10 {
            assert_eq!(model.fail('a', &settings).opens_model, nth == 10, "failure {nth} of the other");
        }
        let (settings, mut model) = (after(1), Model::default());
        assert!(!model.fail('e', &settings).opens_model);
        assert!(model.fail('a', &settings).opens_model);
    }

    #[test]
    fn an_answer_to_anybody_ends_the_evidence_against_a_model() {
        let (settings, mut model) = (after(4), Model::default());
        for _ in 0..20 {
            assert!(!model.fail('e', &settings).opens_model);
            assert!(!model.fail('a', &settings).opens_model);
            model.answer('b');
        }
    }

    #[test]
    fn a_trial_that_fails_stops_its_tenant_and_two_of_them_the_model() {
        let (settings, mut model) = (after(4), Model::default());
        for tenant in ['e', 'e', 'a', 'a'] {
            model.fail(tenant, &settings);
        }
        assert_eq!(model.known.model, State::Open);
        assert!(!model.fail('b', &settings).opens_model, "it began before");
        model.cool_down();
        for _ in 0..10 {
            let failed = model.fail('e', &settings);
            assert_eq!((failed.opens_model, failed.opens_tenant), (false, true), "its trials stop nobody else");
        }
        let failed = model.fail('c', &settings);
        assert_eq!((failed.opens_model, failed.opens_tenant), (true, true));
    }
}
