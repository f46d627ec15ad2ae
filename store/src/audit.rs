//! Audits: the promises, checked now and then on what was said lately, at a bounded cost. `verify` checks everything, when it
//! is asked to.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    job::JobKind,
    trigger,
};
use sqlx::PgConnection;

use crate::{
    Store,
    error::StoreError,
    rules::Rules,
    scope::Scope,
    tail,
    verify::{self, Verified},
};

/// Messages of a conversation that an audit looks at, the newest: its snapshot is over within a second.
const MESSAGES: i64 = 2_000;
/// Bytes of their content, beside the newest message.
const BYTES: i64 = 16 * 1024 * 1024;
/// Tenants whose conversations are candidates of one round.
const TENANTS: i64 = 16;
/// Conversations of each.
const CONVERSATIONS: i64 = 256;
/// A conversation is recently active for so long.
const HOURS: i32 = 24;

/// Conversations that may be audited.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    /// Of whom, and which.
    pub conversations: Vec<(TenantId, ConversationId)>,
    /// The last tenant that was looked at; None: there is none after the cursor.
    pub last: Option<TenantId>,
}

impl Store {
    /// The newest recently active conversations of the next tenants after `cursor`.
    pub async fn audit_candidates(&self, cursor: TenantId) -> Result<Candidates, StoreError> {
        let mut db = self.jobs.checkout(Scope::Nobody).await?;
        let tenants = sqlx::query_scalar!(
            "select tenant_id from tenant where tenant_id > $1 order by tenant_id limit $2",
            cursor.0,
            TENANTS,
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        let last = tenants.last().copied().map(TenantId);
        let mut db = self.jobs.checkout(Scope::of(tenants.iter().copied().map(TenantId))).await?;
        let rows =
            sqlx::query_file!("sql/audit_candidates.sql", &tenants, CONVERSATIONS, HOURS).fetch_all(&mut *db).await?;
        db.release().await?;
        let conversations = rows.into_iter().map(|row| (TenantId(row.tenant_id), ConversationId(row.conversation_id)));
        Ok(Candidates { conversations: conversations.collect(), last })
    }

    /// Checks the newest messages of a conversation as [`Store::verify`] does, 2,000 or 16 MiB, in one snapshot; sums and
    /// turns of the whole where that is the whole. And that its work is done or in somebody's hands (4): where that could not
    /// be asked, the error stands beside what was found before.
    pub async fn audit(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<(Verified, Option<StoreError>), StoreError> {
        let mut db = self.jobs.snapshot(caller).await?;
        let after = sqlx::query_file_scalar!("sql/audit_window.sql", caller.tenant().0, id.0, MESSAGES, BYTES)
            .fetch_one(&mut *db)
            .await?;
        let mut verified = verify::checked(&mut db, caller, id, after).await?;
        let asked = check_work(&mut db, caller, id, &self.rules, &mut verified).await;
        Ok((verified, db.settle(asked).await.err()))
    }
}

/// Success without effect: what is stored calls for work that no job will do. A job that an operator has discarded is seen
/// here until something new is said.
async fn check_work(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    rules: &Rules,
    verified: &mut Verified,
) -> Result<(), StoreError> {
    let row = sqlx::query_file!("sql/audit_work.sql", caller.tenant().0, id.0, rules.fingerprint())
        .fetch_one(&mut *db)
        .await?;
    let has = |kind: JobKind| row.kinds.contains(&kind.code());
    if has(JobKind::CountTokens) {
        // It looks at the triggers when it ends.
        return Ok(());
    }
    if row.counted_message_id < row.last_message_id {
        let missing = format!("no job counts the messages after {}", row.counted_message_id);
        verified.broken(4, row.counted_message_id + 1, missing);
        return Ok(());
    }
    let state = tail::state(&mut *db, caller, id, rules).await?;
    // What has become due by other settings, or by a window that a provider has named since, waits for the next message.
    if !row.same_rules || state.policy.goes_by_window() {
        return Ok(());
    }
    for kind in trigger::jobs(&state).into_iter().filter(|kind| !has(*kind)) {
        verified.broken(4, row.last_message_id, format!("{} is due, and no job is there that does it", kind.name()));
    }
    Ok(())
}
