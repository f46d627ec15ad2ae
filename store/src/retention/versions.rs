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
    rules::{DayColumns, KeptDays, RetentionLimit},
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
/// Most versions that one step erases.
const ERASED_VERSIONS: i64 = 1_000;
/// Bytes of content after which a step erases no further version.
const ERASED_BYTES: i64 = 256 << 20;
/// The time for which a transaction waits for a lock. Shorter than PostgreSQL's
/// `deadlock_timeout` (1 s), so that in a deadlock this transaction ends, and not the other.
const SET_LOCK_TIMEOUT: &str = "set local lock_timeout = '100ms'";

/// A conversation that the walk has come to.
pub(super) struct WalkedConversation {
    position: ConversationPosition,
    pub(super) agent_id: String,
    /// For how many days it keeps content that no longer stands.
    days: i32,
    /// Versions that it keeps no longer, as far as they were counted.
    pub(super) old_versions: i64,
}

/// Erased versions of a conversation's messages.
#[derive(Default)]
struct Erased {
    rows: i64,
    bytes: i64,
    /// Whether a limit has kept others from being erased.
    has_more: bool,
}

impl Store {
    /// Erases content of the tenant's next conversations that no longer stands for longer than it
    /// is kept, one conversation after the other, until the step has erased enough. What other
    /// transactions use stays for the next walk.
    pub async fn erase_old_versions(
        &self,
        tenant: TenantId,
        kept: &KeptDays,
        walk: Walk,
    ) -> WalkStep {
        let mut step = WalkStep::from(walk);
        let Some(days) = kept.columns() else {
            step.walk = Walk::Ended;
            return step;
        };
        let caller = Caller::of(tenant);
        let page = match self.read_old_page(caller, &days, walk).await {
            Ok(page) => page,
            Err(error) => {
                step.interruption = Some(error);
                return step;
            }
        };
        let (mut rows, mut bytes) = (0, 0);
        for row in page.iter().filter(|row| row.old_versions > 0) {
            let rest = (ERASED_VERSIONS - rows, ERASED_BYTES - bytes);
            match self.erase_versions_of(caller, row, rest).await {
                Ok(erased) => {
                    rows += erased.rows;
                    bytes += erased.bytes;
                    step.add_deleted(RetentionLimit::WithdrawnDays, erased.rows.unsigned_abs());
                    if erased.has_more {
                        return step;
                    }
                }
                Err(error) => {
                    if !step.fail(RetentionLimit::WithdrawnDays, error) {
                        return step;
                    }
                }
            }
            step.walk = Walk::After(row.position);
            if rows >= ERASED_VERSIONS || bytes >= ERASED_BYTES {
                return step;
            }
        }
        step.walk = walk_after(&page);
        step
    }

    async fn read_old_page(
        &self,
        caller: Caller,
        days: &DayColumns,
        walk: Walk,
    ) -> Result<Vec<WalkedConversation>, StoreError> {
        let mut db = self.jobs.checkout(caller).await?;
        // Whether there is one.
        let page = read_page(&mut db, caller, days, walk, Some(1)).await;
        db.settle(page).await
    }

    /// Erases up to so many old versions of a conversation's messages, in one transaction.
    async fn erase_versions_of(
        &self,
        caller: Caller,
        row: &WalkedConversation,
        most: (i64, i64),
    ) -> Result<Erased, StoreError> {
        let mut db = self.jobs.checkout(caller).await?;
        match erase_once(&mut db, caller, row, most).await {
            // Another transaction uses the rows, or has deleted the conversation meanwhile.
            Err(StoreError::Conflict(_) | StoreError::NotFound(Entity::Conversation)) => {
                db.roll_back().await?;
                Ok(Erased::default())
            }
            erased => db.settle(erased).await,
        }
    }
}

/// Reads the next page of conversations, each with the number of its old versions, of which up to
/// `most` are counted. None: all.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    walk: Walk,
    most: Option<i64>,
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
        most,
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
pub(super) fn walk_after(page: &[WalkedConversation]) -> Walk {
    let last = page.last().map(|row| row.position);
    Walk::after_page(last, page.len() as i64 >= PAGE)
}

/// Erases old versions of a conversation's messages, and what was made from them: up to so many
/// rows, and no further one after so many bytes.
async fn erase_once(
    db: &mut BoundedConnection,
    caller: Caller,
    row: &WalkedConversation,
    (most_rows, most_bytes): (i64, i64),
) -> Result<Erased, StoreError> {
    let id = row.position.id;
    let mut tx = db.begin().await?;
    tx.execute(SET_LOCK_TIMEOUT).await?;
    keep_conversation(&mut tx, caller, id).await?;
    let erased = sqlx::query_file!(
        "sql/erase_old_versions.sql",
        caller.tenant().0,
        id.0,
        row.days,
        most_rows,
        most_bytes,
    )
    .fetch_one(&mut *tx)
    .await?;
    failpoint!("retention.versions");
    if erased.rows > 0 {
        let mut messages: Vec<MessageId> = erased.messages.into_iter().map(MessageId).collect();
        let versions: Vec<(MessageId, i32)> =
            messages.iter().copied().zip(erased.versions).collect();
        messages.dedup();
        let runs = runs_of(messages);
        blank_request_digests(&mut tx, caller, id, &runs, &versions).await?;
        blank_derived_texts(&mut tx, caller, id, &runs).await?;
        failpoint!("retention.blanked");
        subtract_usage(&mut tx, caller, DeletedRows::of_versions(erased.bytes)).await?;
    }
    tx.commit().await?;
    failpoint!("retention.erased");
    Ok(Erased {
        rows: erased.rows,
        bytes: erased.bytes,
        has_more: erased.has_more,
    })
}
