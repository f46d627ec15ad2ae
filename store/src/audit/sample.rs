//! Audits: the promises, checked now and then on recent messages, at a bounded cost. `verify`
//! checks everything on request.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
    trigger,
};

use super::verify::{VerifyReport, check_conversation};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::StoreError,
    policy_defaults::PolicyDefaults,
    triggers::tail_stats,
};

/// Most messages of a conversation that an audit checks, the newest ones: its snapshot ends within
/// a second.
const MAX_MESSAGES: i64 = 2_000;

/// Most bytes of their content, without the newest message.
const MAX_BYTES: i64 = 16 * 1024 * 1024;

/// Tenants whose conversations one round considers.
const TENANTS_PER_ROUND: i64 = 16;

/// Most conversations of each tenant.
const CONVERSATIONS_PER_TENANT: i64 = 256;

/// Hours for which a conversation counts as recently active.
const RECENT_HOURS: i32 = 24;

/// Conversations to choose from for an audit.
#[derive(Debug, Clone, Default)]
pub struct AuditCandidates {
    /// Tenants and conversations.
    pub conversations: Vec<(TenantId, ConversationId)>,
    /// The last tenant that was considered. None: there is none after the cursor.
    pub last: Option<TenantId>,
}

impl Store {
    /// Finds the newest recently active conversations of the next tenants after `cursor`.
    pub async fn find_audit_candidates(
        &self,
        cursor: TenantId,
    ) -> Result<AuditCandidates, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let tenants = sqlx::query_scalar!(
            "select tenant_id from tenant where tenant_id > $1 order by tenant_id limit $2",
            cursor.0,
            TENANTS_PER_ROUND,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let last = tenants.last().copied().map(TenantId);
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
            last,
        })
    }

    /// Checks the newest messages of a conversation, up to 2,000 or 16 MiB, as [`Store::verify`]
    /// does, in one snapshot; sums and turns only if these are all messages. Also checks that its
    /// work is done or a job exists for it (promise 4). If that check fails with an error, the
    /// error is returned beside what was found before.
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
        let mut verified = check_conversation(&mut db, caller, id, after).await?;
        let asked = check_work(&mut db, caller, id, &self.policy_defaults, &mut verified).await;
        Ok((verified, db.settle(asked).await.err()))
    }
}

/// Finds work that is due but that no job will do. A job that an operator has discarded is reported
/// until the next message.
async fn check_work(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    policy_defaults: &PolicyDefaults,
    verified: &mut VerifyReport,
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
        let missing = format!(
            "no job counts the messages after {}",
            row.counted_message_id
        );
        verified.add_violation(4, row.counted_message_id + 1, missing);
        return Ok(());
    }
    let state = tail_stats::read_tail_state(&mut *db, caller, id, policy_defaults).await?;
    // Work that became due by changed settings, or by a window that a provider has reported since,
    // waits for the next message.
    if !row.same_rules || state.policy.goes_by_window() {
        return Ok(());
    }
    for kind in trigger::due_jobs(&state)
        .into_iter()
        .filter(|kind| !has(*kind))
    {
        verified.add_violation(
            4,
            row.last_message_id,
            format!("{} is due, and no job is there that does it", kind.name()),
        );
    }
    Ok(())
}
