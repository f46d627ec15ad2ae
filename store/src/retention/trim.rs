//! Deletes the oldest rows of tables that grow with the use of conversations. No index of these
//! tables is by age, because each call that inserts a row would pay for it. The walk goes through
//! the conversations of a tenant, and finds the rows of each by key.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use uuid::Uuid;

use super::{
    rules::{RetentionLimit, TrimLimits, days_column},
    walk::{ConversationPosition, Walk},
};
use crate::{Store, connection::BoundedConnection, error::StoreError, rows::Micros};

/// Conversations whose rows one step looks at.
const PAGE: i64 = 200;
/// Most rows that one statement deletes.
const DELETED_ROWS: i64 = 1_000;

/// A step of this walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimStep {
    /// Rows that it has deleted, by the limit that kept them no longer.
    pub deleted: Vec<(RetentionLimit, u64)>,
    /// Where the walk goes on. It stays where it was if there may be more to delete there.
    pub walk: Walk<ConversationPosition>,
}

impl Store {
    /// Deletes rows of the next conversations of a tenant that the limits keep no longer.
    pub async fn trim_rows(
        &self,
        tenant: TenantId,
        limits: TrimLimits,
        walk: Walk<ConversationPosition>,
    ) -> Result<TrimStep, StoreError> {
        let caller = Caller::of(tenant);
        let mut db = self.jobs.checkout(tenant).await?;
        let step = trim_page(&mut db, caller, limits, walk).await;
        db.settle(step).await
    }
}

async fn trim_page(
    db: &mut BoundedConnection,
    caller: Caller,
    limits: TrimLimits,
    walk: Walk<ConversationPosition>,
) -> Result<TrimStep, StoreError> {
    let (ids, after) = read_page(&mut *db, caller, walk).await?;
    let tenant = caller.tenant().0;
    let mut deleted = Vec::new();
    if limits.prefix_versions > 0 {
        let kept = i64::from(limits.prefix_versions);
        let statement = sqlx::query_file!(
            "sql/trim_context_prefixes.sql",
            tenant,
            &ids,
            kept,
            DELETED_ROWS,
        );
        let rows = statement.execute(&mut *db).await?.rows_affected();
        deleted.push((RetentionLimit::PrefixVersions, rows));
    }
    // The statements differ in their table alone.
    macro_rules! trim_by_age {
        ($limit:expr, $days:expr, $file:literal) => {
            if $days > 0 {
                let days = days_column($days);
                let statement = sqlx::query_file!($file, tenant, &ids, days, DELETED_ROWS);
                let rows = statement.execute(&mut *db).await?.rows_affected();
                deleted.push(($limit, rows));
            }
        };
    }
    trim_by_age!(
        RetentionLimit::ModelCallDays,
        limits.model_call_days,
        "sql/trim_model_calls.sql"
    );
    trim_by_age!(
        RetentionLimit::RequestDays,
        limits.request_days,
        "sql/trim_requests.sql"
    );
    trim_by_age!(
        RetentionLimit::DeadJobDays,
        limits.dead_job_days,
        "sql/trim_dead_jobs.sql"
    );
    let has_more = deleted
        .iter()
        .any(|(_, rows)| *rows >= DELETED_ROWS.unsigned_abs());
    Ok(TrimStep {
        deleted,
        walk: if has_more { walk } else { after },
    })
}

/// Reads the next page of a tenant's conversations, and where the walk goes on after it.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    walk: Walk<ConversationPosition>,
) -> Result<(Vec<Uuid>, Walk<ConversationPosition>), StoreError> {
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
