//! The auditor: while the worker runs, checks the promises on a random sample of recently used
//! conversations. It reads one conversation at a time, on one connection, beside the jobs.

use std::time::Duration;

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::{Store, StoreError, VerifyReport};
use tracing::{debug, error, warn};

use crate::{
    deadline::with_deadline, jitter::jitter, settings::WorkerSettings, tenant_cursor::FIRST_TENANT,
};

/// The promises that an audit checks, by their numbers in the contract; 0: counters.
const PROMISES: [i32; 6] = [0, 3, 4, 6, 7, 12];

/// Audits a sample every `audit_interval_seconds`, until the future is dropped.
pub(crate) async fn run_audit_loop(store: &Store, settings: &WorkerSettings) {
    if settings.audit_interval_seconds == 0 || settings.audit_sample == 0 {
        return;
    }
    // The counters start at 0, because an alert on their increase needs a value before the first
    // violation.
    for promise in PROMISES {
        count_violations(promise, 0);
    }
    metrics::counter!("audited_conversations_total").increment(0);
    metrics::counter!("audits_failed_total").increment(0);
    let pause = Duration::from_secs(u64::from(settings.audit_interval_seconds));
    let mut cursor = FIRST_TENANT;
    loop {
        tokio::time::sleep(pause.mul_f64(0.75 + 0.5 * jitter())).await;
        audit_sample(store, settings, &mut cursor).await;
    }
}

/// Audits a sample of the next tenants' conversations. The cursor moves behind those tenants, and
/// back to the start after the last tenant.
async fn audit_sample(store: &Store, settings: &WorkerSettings, cursor: &mut TenantId) {
    let candidates = match with_deadline(store.find_audit_candidates(*cursor)).await {
        Ok(candidates) => candidates,
        Err(error) => {
            warn!("could not look for conversations to audit: {error}");
            return;
        }
    };
    *cursor = candidates.last.unwrap_or(FIRST_TENANT);
    for (tenant, conversation) in sample(candidates.conversations, settings.audit_sample as usize) {
        match with_deadline(store.audit(Caller::of(tenant), conversation)).await {
            Ok((verified, error)) => {
                report(tenant, conversation, &verified);
                if let Some(error) = error {
                    record_failure(conversation, &error);
                }
            }
            Err(StoreError::NotFound(_)) => {
                debug!("{conversation} was deleted before it was audited");
            }
            Err(error) => record_failure(conversation, &error),
        }
    }
}

/// A uniform random sample of at most `size` entries.
fn sample<T>(mut all: Vec<T>, size: usize) -> Vec<T> {
    let mut sample = Vec::new();
    while !all.is_empty() && sample.len() < size {
        let place = (jitter() * all.len() as f64) as usize;
        sample.push(all.swap_remove(place.min(all.len() - 1)));
    }
    sample
}

/// Records an audit that did not finish: a conversation that cannot be read is as bad as a
/// violation.
fn record_failure(conversation: ConversationId, error: &StoreError) {
    metrics::counter!("audits_failed_total").increment(1);
    warn!(conversation = %conversation, "could not audit {conversation}: {error}");
}

/// Logs and counts the violations of a conversation.
fn report(tenant: TenantId, conversation: ConversationId, verified: &VerifyReport) {
    metrics::counter!("audited_conversations_total").increment(1);
    for violation in &verified.violations {
        count_violations(violation.promise, 1);
        error!(
            tenant = %tenant, conversation = %conversation, promise = violation.promise,
            message_id = violation.message.0,
            "promise {} is broken in {conversation}: {}",
            violation.promise,
            violation.description
        );
    }
}

fn count_violations(promise: i32, more: u64) {
    metrics::counter!("invariant_violations_total", "promise" => promise.to_string())
        .increment(more);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_sample_has_no_duplicates_and_samples_reach_every_entry() {
        let mut seen = BTreeSet::new();
        for _ in 0..1_000 {
            let sample = sample((0..20).collect(), 4);
            assert_eq!(sample.iter().collect::<BTreeSet<_>>().len(), 4);
            seen.extend(sample);
        }
        assert_eq!(seen.len(), 20);
        assert_eq!(sample(vec![1, 2], 4).len(), 2);
        assert!(sample(Vec::<i32>::new(), 4).is_empty());
    }
}
