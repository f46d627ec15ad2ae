//! Deletes conversations that have had no new message for long.

use anneal_core::caller::{Caller, ConversationId, TenantId};
use uuid::Uuid;

use super::{
    rules::{DayColumns, KeptDays},
    walk::{ConversationPosition, Walk, WalkStep},
};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::{delete_rows_of, subtract_usage},
    error::StoreError,
    failpoint,
    rows::Micros,
};

/// Conversations that one step looks at.
const PAGE: i64 = 200;
/// Most conversations that one step deletes.
const DELETED_CONVERSATIONS: usize = 50;
/// Most messages that one step deletes, unless its first conversation alone has more.
const DELETED_MESSAGES: i64 = 5_000;

/// A conversation that the walk has come to.
pub(super) struct WalkedConversation {
    pub(super) position: ConversationPosition,
    pub(super) agent_id: String,
    pub(super) messages: i64,
    pub(super) is_idle: bool,
}

impl Store {
    /// Deletes some of the tenant's conversations that are idle for longer than they are kept. A
    /// conversation that another transaction uses stays for the next walk.
    pub async fn delete_idle_conversations(
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
        let page = read_page(&mut db, caller, &days, walk).await?;
        let (batch, walk) = choose_batch(&page);
        let deleted = if batch.is_empty() {
            Ok(0)
        } else {
            delete_batch(&mut db, caller, &days, &batch).await
        };
        let (deleted, failure) = match db.settle(deleted).await {
            Ok(deleted) => (deleted, None),
            Err(error) => (0, Some(error)),
        };
        Ok(WalkStep {
            read: page.len() as u64,
            deleted,
            failure,
            is_busy: deleted < batch.len() as u64,
            walk,
        })
    }
}

/// Reads the next page of conversations that may be idle.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    walk: Walk<ConversationPosition>,
) -> Result<Vec<WalkedConversation>, StoreError> {
    let (listed, id) = walk.columns();
    let rows = sqlx::query_file!(
        "sql/find_idle_conversations.sql",
        caller.tenant().0,
        days.general,
        &days.agents,
        &days.days,
        days.shortest,
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
        messages: row.last_message_id,
        is_idle: row.is_idle,
    });
    Ok(page.collect())
}

/// Where the walk goes on after this page.
pub(super) fn walk_after(page: &[WalkedConversation]) -> Walk<ConversationPosition> {
    let last = page.last().map(|row| row.position);
    Walk::after_page(last, page.len() as i64 >= PAGE)
}

/// The first idle conversations of a page that are within the limits of a step together, at least
/// one if there is one; and where the walk goes on after them.
fn choose_batch(page: &[WalkedConversation]) -> (Vec<Uuid>, Walk<ConversationPosition>) {
    let (mut batch, mut messages, mut last) = (Vec::new(), 0, None);
    for row in page {
        if row.is_idle {
            messages += row.messages;
            let is_full = batch.len() == DELETED_CONVERSATIONS || messages > DELETED_MESSAGES;
            if is_full && let Some(last) = last.filter(|_| !batch.is_empty()) {
                return (batch, Walk::After(last));
            }
            batch.push(row.position.id.0);
        }
        last = Some(row.position);
    }
    (batch, walk_after(page))
}

/// Deletes those of the conversations that are still idle and that no other transaction uses.
/// Returns their number.
async fn delete_batch(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    batch: &[Uuid],
) -> Result<u64, StoreError> {
    let mut tx = db.begin().await?;
    let ids = sqlx::query_file_scalar!(
        "sql/lock_idle_conversations.sql",
        caller.tenant().0,
        batch,
        days.general,
        &days.agents,
        &days.days,
    )
    .fetch_all(&mut *tx)
    .await?;
    failpoint!("retention.locked");
    let ids: Vec<ConversationId> = ids.into_iter().map(ConversationId).collect();
    let deleted = delete_rows_of(&mut tx, caller, &ids).await?;
    failpoint!("retention.deleted");
    subtract_usage(&mut tx, caller, deleted).await?;
    tx.commit().await?;
    failpoint!("retention.committed");
    Ok(ids.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(conversations: impl IntoIterator<Item = (bool, i64)>) -> Vec<WalkedConversation> {
        let rows = conversations.into_iter().enumerate();
        rows.map(|(index, (is_idle, messages))| WalkedConversation {
            position: position(index),
            agent_id: String::new(),
            messages,
            is_idle,
        })
        .collect()
    }

    fn position(index: usize) -> ConversationPosition {
        ConversationPosition {
            listed: Micros(index as i64),
            id: ConversationId(Uuid::from_u128(index as u128)),
        }
    }

    #[test]
    fn a_step_deletes_idle_conversations_up_to_its_limits_and_the_walk_goes_on_after_them() {
        let chosen = |page: &[WalkedConversation]| {
            let (batch, walk) = choose_batch(page);
            (batch.len(), walk)
        };
        assert_eq!(chosen(&[]), (0, Walk::Ended));
        let kept = page([(true, 1), (false, 1_000_000), (true, 1)]);
        assert_eq!(chosen(&kept), (2, Walk::Ended));
        let many = page(vec![(true, 1); 60]);
        assert_eq!(chosen(&many), (50, Walk::After(position(49))));
        let long = page([(true, 2_000), (false, 0), (true, 3_000), (true, 1)]);
        assert_eq!(chosen(&long), (2, Walk::After(position(2))));
        let huge = page([(true, 1_000_000), (true, 1)]);
        assert_eq!(chosen(&huge), (1, Walk::After(position(0))));
        let full = page(vec![(false, 1); 200]);
        assert_eq!(chosen(&full), (0, Walk::After(position(199))));
    }
}
