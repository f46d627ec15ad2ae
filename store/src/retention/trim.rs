//! Deletes the oldest rows of tables that grow with the use of conversations. No index of these
//! tables is by age, because each call that inserts a row would pay for it. The walk goes through
//! the conversations of a tenant, and finds the rows of each by key.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use uuid::Uuid;

use super::{
    rules::{RetentionLimit, TrimLimits, days_column},
    walk::{ConversationPosition, Walk, WalkStep},
};
use crate::{Store, connection::BoundedConnection, error::StoreError, rows::Micros};

/// Conversations whose rows one step looks at.
const PAGE: i64 = 200;
/// Most rows that one statement deletes.
const DELETED_ROWS: i64 = 1_000;

impl Store {
    /// Deletes rows of the next conversations of a tenant that the limits keep no longer. The walk
    /// stays where it is if there may be more to delete there.
    pub async fn trim_rows(&self, tenant: TenantId, limits: TrimLimits, walk: Walk) -> WalkStep {
        let mut step = WalkStep::from(walk);
        let caller = Caller::of(tenant);
        let (ids, after) = match self.read_trimmed_page(caller, walk).await {
            Ok(page) => page,
            Err(error) => {
                step.interruption = Some(error);
                return step;
            }
        };
        for limit in limits.in_force() {
            self.trim_table(caller, limit, &ids, &mut step).await;
            if step.interruption.is_some() {
                return step;
            }
        }
        let most = DELETED_ROWS.unsigned_abs();
        if !step.deleted.iter().any(|(_, rows)| *rows >= most) {
            step.walk = after;
        }
        step
    }

    async fn read_trimmed_page(
        &self,
        caller: Caller,
        walk: Walk,
    ) -> Result<(Vec<Uuid>, Walk), StoreError> {
        let mut db = self.jobs.checkout(caller).await?;
        let page = read_page(&mut db, caller, walk).await;
        db.settle(page).await
    }

    /// Deletes rows of these conversations from the table of a limit. If that fails, it goes through
    /// the conversations one by one, so that one of them does not keep the others.
    async fn trim_table(
        &self,
        caller: Caller,
        (limit, kept): (RetentionLimit, u32),
        ids: &[Uuid],
        step: &mut WalkStep,
    ) {
        match self.delete_old_rows(caller, (limit, kept), ids).await {
            Ok(rows) => step.add_deleted(limit, rows),
            Err(error) if error.is_outage() => step.interruption = Some(error),
            Err(_) => {
                for id in ids {
                    let ids = std::slice::from_ref(id);
                    match self.delete_old_rows(caller, (limit, kept), ids).await {
                        Ok(rows) => step.add_deleted(limit, rows),
                        Err(error) => {
                            if !step.fail(limit, error) {
                                return;
                            }
                        }
                    }
                }
            }
        }
    }

    async fn delete_old_rows(
        &self,
        caller: Caller,
        limit: (RetentionLimit, u32),
        ids: &[Uuid],
    ) -> Result<u64, StoreError> {
        let mut db = self.jobs.checkout(caller).await?;
        let deleted = delete_old_rows(&mut db, caller, limit, ids).await;
        db.settle(deleted).await
    }
}

/// Deletes up to [`DELETED_ROWS`] rows of these conversations that the limit keeps no longer, in one
/// statement.
async fn delete_old_rows(
    db: &mut BoundedConnection,
    caller: Caller,
    (limit, kept): (RetentionLimit, u32),
    ids: &[Uuid],
) -> Result<u64, StoreError> {
    let (tenant, days) = (caller.tenant().0, days_column(kept));
    // The statements by age differ in their table alone.
    macro_rules! by_age {
        ($file:literal) => {
            sqlx::query_file!($file, tenant, ids, days, DELETED_ROWS)
                .execute(db)
                .await?
        };
    }
    let deleted = match limit {
        RetentionLimit::PrefixVersions => {
            let versions = i64::from(kept);
            sqlx::query_file!(
                "sql/trim_context_prefixes.sql",
                tenant,
                ids,
                versions,
                DELETED_ROWS
            )
            .execute(db)
            .await?
        }
        RetentionLimit::ModelCallDays => by_age!("sql/trim_model_calls.sql"),
        RetentionLimit::RequestDays => by_age!("sql/trim_requests.sql"),
        RetentionLimit::DeadJobDays => by_age!("sql/trim_dead_jobs.sql"),
        // These have walks of their own.
        RetentionLimit::IdleDays | RetentionLimit::WithdrawnDays => return Ok(0),
    };
    Ok(deleted.rows_affected())
}

/// Reads the next page of a tenant's conversations, and where the walk goes on after it.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    walk: Walk,
) -> Result<(Vec<Uuid>, Walk), StoreError> {
    let (listed, id) = walk.columns();
    let rows = sqlx::query_file!(
        "sql/walk_conversations.sql",
        caller.tenant().0,
        listed,
        id,
        PAGE
    )
    .fetch_all(db)
    .await?;
    let last = rows.last().map(|row| ConversationPosition {
        listed: Micros(row.listed_us),
        id: ConversationId(row.conversation_id),
    });
    let after = Walk::after_page(last, rows.len() as i64 >= PAGE);
    let ids = rows.into_iter().map(|row| row.conversation_id);
    Ok((ids.collect(), after))
}
