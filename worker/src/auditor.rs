//! The auditor: while the worker runs, it checks the stored rows of a random sample of recently
//! active conversations against the numbered promises of docs/operations.md. It reads one
//! conversation at a time, on one connection, beside the jobs.

use std::time::Duration;

use anneal_core::caller::{Caller, ConversationId, TenantId};
use anneal_store::{Store, StoreError, VerifyReport, Violation};
use tracing::{debug, error, warn};

use crate::{pause::sleep_about, settings::WorkerSettings, tenant_cursor::BEFORE_FIRST_TENANT};

/// The promises that an audit checks, by their numbers in docs/operations.md. 0 stands for figures
/// of a conversation that must agree with its messages.
const PROMISES: [i32; 9] = [0, 3, 4, 6, 7, 12, 15, 16, 17];

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
    metrics::counter!("anneal_audited_conversations_total").increment(0);
    metrics::counter!("anneal_audits_failed_total").increment(0);
    let pause = Duration::from_secs(u64::from(settings.audit_interval_seconds));
    let mut cursor = BEFORE_FIRST_TENANT;
    loop {
        sleep_about(pause).await;
        audit_sample(store, settings, &mut cursor).await;
    }
}

/// Audits a sample of the conversations of the next tenants, and looks for rows that deletions of
/// these tenants have left. Moves the cursor past those tenants. If no tenant follows the cursor,
/// audits nothing and moves the cursor back to the start.
async fn audit_sample(store: &Store, settings: &WorkerSettings, cursor: &mut TenantId) {
    let candidates = match store.find_audit_candidates(*cursor).await {
        Ok(candidates) => candidates,
        Err(error) => {
            store.log_failure(&error, || {
                warn!("could not look for conversations to audit: {error}");
            });
            return;
        }
    };
    let tenants = candidates.tenants;
    *cursor = tenants.last().copied().unwrap_or(BEFORE_FIRST_TENANT);
    if !tenants.is_empty() {
        audit_deletions(store, &tenants).await;
    }
    let conversations = candidates.conversations;
    let size = conversations.len().min(settings.audit_sample as usize);
    for (tenant, conversation) in fastrand::choose_multiple(conversations, size) {
        match store.audit(Caller::of(tenant), conversation).await {
            Ok((report, error)) => {
                record_audit(tenant, conversation, &report);
                if let Some(error) = error {
                    record_failure(store, conversation, &error);
                }
            }
            Err(StoreError::NotFound(_)) => {
                debug!("{conversation} was deleted before it was audited");
            }
            Err(error) => record_failure(store, conversation, &error),
        }
    }
}

/// Reports rows of these tenants' conversations that do not exist.
async fn audit_deletions(store: &Store, tenants: &[TenantId]) {
    match store.find_orphaned_rows(tenants).await {
        Ok(orphaned) => {
            for rows in orphaned {
                record_violation(rows.tenant, rows.conversation, &rows.violation);
            }
        }
        Err(error) => store.log_failure(&error, || {
            warn!("could not look for rows of deleted conversations: {error}");
        }),
    }
}

/// Logs and counts an audit that did not check everything.
fn record_failure(store: &Store, conversation: ConversationId, error: &StoreError) {
    metrics::counter!("anneal_audits_failed_total").increment(1);
    store.log_failure(error, || {
        warn!(conversation = %conversation, "could not audit {conversation}: {error}");
    });
}

/// Counts the audited conversation, and logs and counts its violations.
fn record_audit(tenant: TenantId, conversation: ConversationId, report: &VerifyReport) {
    metrics::counter!("anneal_audited_conversations_total").increment(1);
    for violation in &report.violations {
        record_violation(tenant, conversation, violation);
    }
}

/// Logs and counts a violation.
fn record_violation(tenant: TenantId, conversation: ConversationId, violation: &Violation) {
    count_violations(violation.promise, 1);
    error!(
        tenant = %tenant, conversation = %conversation, promise = violation.promise,
        message_id = violation.message.0,
        "promise {} is broken in {conversation}: {}",
        violation.promise,
        violation.description
    );
}

fn count_violations(promise: i32, more: u64) {
    metrics::counter!("anneal_invariant_violations_total", "promise" => promise.to_string())
        .increment(more);
}
