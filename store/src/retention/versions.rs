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
    walk::{Walk, WalkStep},
};
use crate::{
    Store,
    changes::{blank_derived_rows, runs_of},
    connection::BoundedConnection,
    conversations::{DeletedRows, keep_conversation, subtract_usage},
    error::{Entity, StoreError},
    failpoint,
    rows::Micros,
};

/// Versions that one step looks at.
const PAGE: i64 = 1_000;
/// Most versions that one transaction erases, all of one conversation.
const ERASED_VERSIONS: i64 = 1_000;
/// The time for which a transaction waits for a lock. Shorter than PostgreSQL's
/// `deadlock_timeout` (1 s), so that in a deadlock this transaction ends, and not the other.
const SET_LOCK_TIMEOUT: &str = "set local lock_timeout = '100ms'";

/// A version's place in the order of the times at which versions were replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionPosition {
    replaced: Micros,
    conversation: ConversationId,
    message: MessageId,
    version: i32,
}

/// A version that the walk has come to.
pub(super) struct WalkedVersion {
    position: VersionPosition,
    pub(super) agent_id: String,
    days: i32,
    pub(super) is_old: bool,
}

impl Store {
    /// Erases content of some of the tenant's conversations that no longer stands for longer than
    /// it is kept. What other transactions use stays for the next walk.
    pub async fn erase_old_versions(
        &self,
        tenant: TenantId,
        kept: &KeptDays,
        walk: Walk<VersionPosition>,
    ) -> Result<WalkStep<VersionPosition>, StoreError> {
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
            walk: walk_after(&page),
        };
        for (conversation, days) in conversations_of(&page) {
            match self.erase_versions_of(caller, conversation, days).await {
                Ok(erased) => step.deleted += erased,
                Err(error) => {
                    let is_outage = error.is_transient();
                    step.failure = Some(error);
                    if is_outage {
                        break;
                    }
                }
            }
        }
        Ok(step)
    }

    /// Erases all old versions of a conversation's messages, in bounded transactions. Returns their
    /// number.
    async fn erase_versions_of(
        &self,
        caller: Caller,
        id: ConversationId,
        days: i32,
    ) -> Result<u64, StoreError> {
        let mut total = 0;
        loop {
            let mut db = self.jobs.checkout(caller).await?;
            let erased = match erase_once(&mut db, caller, id, days).await {
                // Another transaction uses the rows, or deletes the conversation.
                Err(StoreError::Conflict(_) | StoreError::NotFound(Entity::Conversation)) => {
                    db.roll_back().await?;
                    0
                }
                erased => db.settle(erased).await?,
            };
            total += erased.unsigned_abs();
            if erased < ERASED_VERSIONS {
                return Ok(total);
            }
        }
    }
}

/// Reads the next page of versions that may be old.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    walk: Walk<VersionPosition>,
) -> Result<Vec<WalkedVersion>, StoreError> {
    let position = walk.position();
    let rows = sqlx::query_file!(
        "sql/find_old_versions.sql",
        caller.tenant().0,
        days.general,
        &days.agents,
        &days.days,
        days.shortest,
        position.map(|position| position.replaced.0),
        position.map(|position| position.conversation.0),
        position.map(|position| position.message.0),
        position.map(|position| position.version),
        PAGE,
    )
    .fetch_all(db)
    .await?;
    let page = rows.into_iter().map(|row| WalkedVersion {
        position: VersionPosition {
            replaced: Micros(row.replaced_us),
            conversation: ConversationId(row.conversation_id),
            message: MessageId(row.message_id),
            version: row.version,
        },
        agent_id: row.agent_id,
        days: row.days,
        is_old: row.is_old,
    });
    Ok(page.collect())
}

/// Where the walk goes on after this page.
pub(super) fn walk_after(page: &[WalkedVersion]) -> Walk<VersionPosition> {
    let last = page.last().map(|row| row.position);
    Walk::after_page(last, page.len() as i64 >= PAGE)
}

/// The conversations of the old versions of a page, each once, with the days for which they keep
/// such content.
fn conversations_of(page: &[WalkedVersion]) -> Vec<(ConversationId, i32)> {
    let mut conversations: Vec<_> = page
        .iter()
        .filter(|row| row.is_old)
        .map(|row| (row.position.conversation, row.days))
        .collect();
    conversations.sort_unstable_by_key(|(conversation, _)| conversation.0);
    conversations.dedup();
    conversations
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
        blank_derived_rows(&mut tx, caller, id, &runs).await?;
        failpoint!("retention.blanked");
        subtract_usage(&mut tx, caller, DeletedRows::of_versions(erased.bytes)).await?;
    }
    tx.commit().await?;
    failpoint!("retention.erased");
    Ok(erased.rows)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_conversation_with_an_old_version_is_visited_once() {
        let version = |conversation, days, is_old| WalkedVersion {
            position: VersionPosition {
                replaced: Micros(0),
                conversation: ConversationId(Uuid::from_u128(conversation)),
                message: MessageId(1),
                version: 1,
            },
            agent_id: String::new(),
            days,
            is_old,
        };
        let page = [
            version(2, 7, true),
            version(1, 7, true),
            version(3, 0, false),
            version(2, 7, true),
        ];
        let visited: Vec<u128> = conversations_of(&page)
            .iter()
            .map(|(conversation, _)| conversation.0.as_u128())
            .collect();
        assert_eq!(visited, [1, 2]);
    }
}
