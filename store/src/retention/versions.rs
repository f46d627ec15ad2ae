//! Erases content that no longer stands: of withdrawn messages, and earlier versions of edited
//! ones. What was made from it goes with it, as in an erasure of the messages.
//!
//! Such a transaction holds no lock for which an append waits: it only keeps the conversation from
//! being deleted. A change of the same messages may wait for the rows. The transaction itself gives
//! up soon, so that it never holds up a change for long, and no deadlock is detected at the change.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    message::MessageId,
};
use sqlx::Executor as _;

use super::{
    rules::{DayColumns, KeptDays},
    walk::{ConversationPosition, Walk, WalkStep},
};
use crate::{
    Store,
    changes::{blank_derived_texts, blank_request_digests, runs_of},
    connection::BoundedConnection,
    conversations::{DeletedRows, keep_conversation, subtract_usage},
    error::{Entity, StoreError},
    failpoint,
    rows::Micros,
};

/// Conversations whose versions one step looks at.
const PAGE: i64 = 200;
/// Most versions that one transaction erases, all of one conversation.
const ERASED_VERSIONS: i64 = 1_000;
/// The time for which a transaction waits for a lock. Shorter than PostgreSQL's
/// `deadlock_timeout` (1 s), so that in a deadlock this transaction ends, and not the other.
const SET_LOCK_TIMEOUT: &str = "set local lock_timeout = '100ms'";

/// A conversation that the walk has come to.
pub(super) struct WalkedConversation {
    position: ConversationPosition,
    pub(super) agent_id: String,
    /// For how many days it keeps content that no longer stands.
    days: i32,
    /// Versions that it keeps no longer.
    pub(super) old_versions: i64,
}

impl Store {
    /// Erases content of the tenant's next conversations that no longer stands for longer than it
    /// is kept. What other transactions use stays for the next walk.
    pub async fn erase_old_versions(
        &self,
        tenant: TenantId,
        kept: &KeptDays,
        walk: Walk<ConversationPosition>,
    ) -> Result<WalkStep<ConversationPosition>, StoreError> {
        let Some(days) = kept.columns() else {
            return Ok(WalkStep::nothing());
        };
        let caller = Caller::of(tenant);
        let mut db = self.jobs.checkout(tenant).await?;
        let page = read_page(&mut db, caller, &days, walk).await;
        let page = db.settle(page).await?;
        let mut step = WalkStep {
            read: page.len() as u64,
            deleted: 0,
            failure: None,
            is_busy: false,
            walk: walk_after(&page),
        };
        for row in page.iter().filter(|row| row.old_versions > 0) {
            if let Err(error) = self.erase_versions_of(caller, row, &mut step).await {
                let is_outage = error.is_transient();
                step.failure = Some(error);
                if is_outage {
                    break;
                }
            }
        }
        Ok(step)
    }

    /// Erases all old versions of a conversation's messages, in bounded transactions.
    async fn erase_versions_of(
        &self,
        caller: Caller,
        row: &WalkedConversation,
        step: &mut WalkStep<ConversationPosition>,
    ) -> Result<(), StoreError> {
        loop {
            let mut db = self.jobs.checkout(caller).await?;
            let erased = match erase_once(&mut db, caller, row.position.id, row.days).await {
                Err(StoreError::Conflict(_)) => {
                    step.is_busy = true;
                    db.roll_back().await?;
                    0
                }
                // It was deleted meanwhile.
                Err(StoreError::NotFound(Entity::Conversation)) => {
                    db.roll_back().await?;
                    0
                }
                erased => db.settle(erased).await?,
            };
            step.deleted += erased.unsigned_abs();
            if erased < ERASED_VERSIONS {
                return Ok(());
            }
        }
    }
}

/// Reads the next page of conversations, each with the number of its old versions.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    walk: Walk<ConversationPosition>,
) -> Result<Vec<WalkedConversation>, StoreError> {
    let (listed, id) = walk.columns();
    let rows = sqlx::query_file!(
        "sql/find_old_versions.sql",
        caller.tenant().0,
        days.general,
        &days.agents,
        &days.days,
        listed,
        id,
        PAGE,
    )
    .fetch_all(db)
    .await?;
    let page = rows.into_iter().map(|row| WalkedConversation {
        position: ConversationPosition {
            listed: Micros(row.listed_us),
            id: ConversationId(row.conversation_id),
        },
        agent_id: row.agent_id,
        days: row.days,
        old_versions: row.old_versions,
    });
    Ok(page.collect())
}

/// Where the walk goes on after this page.
pub(super) fn walk_after(page: &[WalkedConversation]) -> Walk<ConversationPosition> {
    let last = page.last().map(|row| row.position);
    Walk::after_page(last, page.len() as i64 >= PAGE)
}

/// Erases up to [`ERASED_VERSIONS`] old versions of a conversation's messages, and what was made
/// from them. Returns their number.
async fn erase_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    days: i32,
) -> Result<i64, StoreError> {
    let mut tx = db.begin().await?;
    tx.execute(SET_LOCK_TIMEOUT).await?;
    keep_conversation(&mut tx, caller, id).await?;
    let erased = sqlx::query_file!(
        "sql/erase_old_versions.sql",
        caller.tenant().0,
        id.0,
        days,
        ERASED_VERSIONS,
    )
    .fetch_one(&mut *tx)
    .await?;
    failpoint!("retention.versions");
    if erased.rows > 0 {
        let runs = runs_of(erased.messages.into_iter().map(MessageId));
        blank_request_digests(&mut tx, caller, id, &runs).await?;
        blank_derived_texts(&mut tx, caller, id, &runs).await?;
        failpoint!("retention.blanked");
        subtract_usage(&mut tx, caller, DeletedRows::of_versions(erased.bytes)).await?;
    }
    tx.commit().await?;
    failpoint!("retention.erased");
    Ok(erased.rows)
}
