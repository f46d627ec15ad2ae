//! Audits. The worker regularly checks whether recent messages keep the promises that
//! docs/operations.md lists under "The auditor", and whether work that is due has a job. The cost
//! is bounded. `verify` checks all messages on request, but no jobs.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
    trigger,
};

use super::{checked_rows::Extent, report::VerifyReport, verify::check_conversation};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::StoreError,
    policy_defaults::PolicyDefaults,
    triggers::tail_stats,
};

/// An audit checks at most this many messages of a conversation, the newest ones, so that its
/// snapshot ends within a second.
const MAX_MESSAGES: i64 = 2_000;

/// The messages that an audit checks have together at most this many bytes of content, unless the
/// newest one alone has more.
const MAX_BYTES: i64 = 16 * 1024 * 1024;

/// Most tenants whose conversations one list of candidates has.
const TENANTS_PER_LIST: i64 = 16;

/// Most conversations of each tenant in a list of candidates.
const CONVERSATIONS_PER_TENANT: i64 = 256;

/// Hours for which a conversation counts as recently active.
const RECENT_HOURS: i32 = 24;

/// Conversations to choose from for an audit.
#[derive(Debug, Clone, Default)]
pub struct AuditCandidates {
    /// The conversations, each with its tenant.
    pub conversations: Vec<(TenantId, ConversationId)>,
    /// The tenants whose conversations were looked at, in order, also those that have none to
    /// choose from. Empty: there is no tenant after the cursor.
    pub tenants: Vec<TenantId>,
}

impl Store {
    /// Finds the most recently active conversations of the next tenants after `cursor`.
    pub async fn find_audit_candidates(
        &self,
        cursor: TenantId,
    ) -> Result<AuditCandidates, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let tenants = sqlx::query_scalar!(
            "select tenant_id from tenant where tenant_id > $1 order by tenant_id limit $2",
            cursor.0,
            TENANTS_PER_LIST,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let mut db = self
            .jobs
            .checkout(Scope::of(tenants.iter().copied().map(TenantId)))
            .await?;
        let rows = sqlx::query_file!(
            "sql/audit_candidates.sql",
            &tenants,
            CONVERSATIONS_PER_TENANT,
            RECENT_HOURS
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let conversations = rows
            .into_iter()
            .map(|row| (TenantId(row.tenant_id), ConversationId(row.conversation_id)));
        Ok(AuditCandidates {
            conversations: conversations.collect(),
            tenants: tenants.into_iter().map(TenantId).collect(),
        })
    }

    /// Checks the newest messages of a conversation (up to 2,000, or 16 MiB) in one snapshot, as
    /// [`Store::verify`] does. The sum of tokens is checked only if these are all messages, and a
    /// checkpoint's source digest only if they include its sources. Of the changes of messages it
    /// checks the newest 100, and of earlier versions no content. Then checks promise 4: work that
    /// is due has a job. If this second check fails with an error, the error is returned beside
    /// what the first one found.
    pub async fn audit(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<(VerifyReport, Option<StoreError>), StoreError> {
        let mut db = self.jobs.checkout_snapshot(caller).await?;
        let after = sqlx::query_file_scalar!(
            "sql/audit_window.sql",
            caller.tenant().0,
            id.0,
            MAX_MESSAGES,
            MAX_BYTES
        )
        .fetch_one(&mut *db)
        .await?;
        let mut report = check_conversation(&mut db, caller, id, Extent::Newest(after)).await?;
        let work_checked = check_work(
            &mut db,
            caller,
            id,
            &self.policy_defaults.get(),
            &mut report,
        )
        .await;
        Ok((report, db.settle(work_checked).await.err()))
    }
}

/// Reports work that is due but has no job. After an operator has discarded a job, its work is
/// reported until the next message.
async fn check_work(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    policy_defaults: &PolicyDefaults,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let row = sqlx::query_file!(
        "sql/audit_work.sql",
        caller.tenant().0,
        id.0,
        policy_defaults.fingerprint()
    )
    .fetch_one(&mut *db)
    .await?;
    let has = |kind: JobKind| row.kinds.contains(&kind.code());
    if has(JobKind::CountTokens) {
        // The counting job checks the triggers when it ends.
        return Ok(());
    }
    if row.counted_message_id < row.last_message_id {
        let description = format!(
            "no job counts the messages after {}",
            row.counted_message_id
        );
        report.add_violation(4, row.counted_message_id + 1, description);
        return Ok(());
    }
    let state = tail_stats::read_tail_state(&mut *db, caller, id, policy_defaults).await?;
    // Changed settings, or a context window that a provider has reported since, can make work due
    // that has no job before the next message. That is no violation.
    if !row.same_rules || state.policy.depends_on_window() {
        return Ok(());
    }
    for kind in trigger::due_jobs(&state)
        .into_iter()
        .filter(|kind| !has(*kind))
    {
        report.add_violation(
            4,
            row.last_message_id,
            format!("{} is due, but has no job", kind.name()),
        );
    }
    Ok(())
}
