//! The auditor: checks the promises on a random sample of what was said lately, for ever, in production. One conversation at a
//! time, on one connection, beside the jobs.

use std::time::Duration;

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::{Store, StoreError, Verified};
use tracing::{debug, error, warn};

use crate::{
    patience::answered,
    run::{FIRST_TENANT, jitter},
    settings::WorkerSettings,
};

/// The promises that an audit checks, by their numbers in the contract; 0: figures.
const PROMISES: [i32; 6] = [0, 3, 4, 6, 7, 12];

/// Audits now and then, until the future is dropped.
pub(crate) async fn audit(store: &Store, settings: &WorkerSettings) {
    if settings.audit_interval_seconds == 0 || settings.audit_sample == 0 {
        return;
    }
    // An alarm needs to see that there were none before.
    for promise in PROMISES {
        violations(promise, 0);
    }
    metrics::counter!("audited_conversations_total").increment(0);
    metrics::counter!("audits_failed_total").increment(0);
    let pause = Duration::from_secs(u64::from(settings.audit_interval_seconds));
    let mut cursor = FIRST_TENANT;
    loop {
        tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * jitter())).await;
        audit_once(store, settings, &mut cursor).await;
    }
}

/// One round: a sample of the next tenants' conversations. The cursor moves behind those tenants, and after the last begins
/// anew.
async fn audit_once(store: &Store, settings: &WorkerSettings, cursor: &mut TenantId) {
    let candidates = match answered(store.audit_candidates(*cursor)).await {
        Ok(candidates) => candidates,
        Err(error) => {
            warn!("could not look for conversations to audit: {error}");
            return;
        }
    };
    *cursor = candidates.last.unwrap_or(FIRST_TENANT);
    for (tenant, conversation) in sampled(candidates.conversations, settings.audit_sample as usize) {
        match answered(store.audit(Caller::of(tenant), conversation)).await {
            Ok((verified, error)) => {
                tell(tenant, conversation, &verified);
                if let Some(error) = error {
                    failed(conversation, &error);
                }
            }
            Err(StoreError::NotFound(_)) => debug!("{conversation} was deleted before it was audited"),
            Err(error) => failed(conversation, &error),
        }
    }
}

/// So many of them, each as likely as any other.
fn sampled<T>(mut all: Vec<T>, many: usize) -> Vec<T> {
    let mut sample = Vec::new();
    while !all.is_empty() && sample.len() < many {
        let place = (jitter() * all.len() as f64) as usize;
        sample.push(all.swap_remove(place.min(all.len() - 1)));
    }
    sample
}

/// An audit that was not made, or not to its end: a conversation that cannot be read is as bad as one that is wrong.
fn failed(conversation: ConversationId, error: &StoreError) {
    metrics::counter!("audits_failed_total").increment(1);
    warn!(conversation = %conversation, "could not audit {conversation}: {error}");
}

fn tell(tenant: TenantId, conversation: ConversationId, verified: &Verified) {
    metrics::counter!("audited_conversations_total").increment(1);
    for violation in &verified.violations {
        violations(violation.promise, 1);
        error!(
            tenant = %tenant, conversation = %conversation, promise = violation.promise,
            message_id = violation.message.0,
            "promise {} is broken in {conversation}: {}",
            violation.promise,
            violation.description
        );
    }
}

fn violations(promise: i32, more: u64) {
    metrics::counter!("invariant_violations_total", "promise" => promise.to_string()).increment(more);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_sample_has_no_one_twice_and_in_time_everyone() {
        let mut seen = BTreeSet::new();
        for _ in 0..1_000 {
            let sample = sampled((0..20).collect(), 4);
            assert_eq!(sample.iter().collect::<BTreeSet<_>>().len(), 4);
            seen.extend(sample);
        }
        assert_eq!(seen.len(), 20);
        assert_eq!(sampled(vec![1, 2], 4).len(), 2);
        assert!(sampled(Vec::<i32>::new(), 4).is_empty());
    }
}
