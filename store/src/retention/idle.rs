//! Deletes conversations that have had no new message for long.

use std::time::Duration;

use anneal_core::caller::{Caller, ConversationId, TenantId};

use super::{
    rules::{DayColumns, KeptDays, RetentionLimit},
    walk::{ConversationPosition, Walk, WalkStep},
};
use crate::{
    Store,
    connection::{BoundedConnection, set_statement_timeout},
    conversations::{DeletedRows, delete_messages_of, delete_rest_of, subtract_usage},
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
/// Bytes of content after which a step deletes no further conversation, as in erasures.
const DELETED_BYTES: i64 = 256 << 20;
/// The time that one statement may take. PostgreSQL deletes some 300 MB of large messages in a
/// second, so this bounds a conversation that can be deleted: 70 GB. The caller's deadline is
/// longer than two such statements.
const STATEMENT_TIMEOUT: Duration = Duration::from_mins(4);

/// A conversation that the walk has come to.
pub(super) struct WalkedConversation {
    pub(super) position: ConversationPosition,
    pub(super) agent_id: String,
    pub(super) messages: i64,
    pub(super) is_idle: bool,
}

impl Store {
    /// Deletes some of the tenant's conversations that are idle for longer than they are kept. A
    /// conversation that another transaction uses stays for the next walk, and one that cannot be
    /// deleted keeps no other.
    pub async fn delete_idle_conversations(
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
        let page = match self.read_idle_page(caller, &days, walk).await {
            Ok(page) => page,
            Err(error) => {
                step.interruption = Some(error);
                return step;
            }
        };
        let batch = &page[..batch_length(&page)];
        let passed = match batch.iter().filter(|row| row.is_idle).count() {
            0 => batch.len(),
            1 => {
                self.delete_one_by_one(caller, &days, batch, &mut step)
                    .await
            }
            _ => match self.delete_batch(caller, &days, batch).await {
                Ok(deletion) => {
                    step.add_deleted(RetentionLimit::IdleDays, deletion.conversations);
                    deletion.passed
                }
                Err(error) if error.is_outage() => {
                    step.interruption = Some(error);
                    0
                }
                // One of them is the cause.
                Err(_) => {
                    self.delete_one_by_one(caller, &days, batch, &mut step)
                        .await
                }
            },
        };
        if step.interruption.is_none() {
            pass_over(&mut step, &page, passed);
        }
        step
    }

    async fn read_idle_page(
        &self,
        caller: Caller,
        days: &DayColumns,
        walk: Walk,
    ) -> Result<Vec<WalkedConversation>, StoreError> {
        let mut db = self.jobs.checkout(caller).await?;
        let page = read_page(&mut db, caller, days, walk).await;
        db.settle(page).await
    }

    /// Deletes idle ones of these conversations in one transaction.
    async fn delete_batch(
        &self,
        caller: Caller,
        days: &DayColumns,
        batch: &[WalkedConversation],
    ) -> Result<Deletion, StoreError> {
        let mut db = self.jobs.checkout(caller).await?;
        let deletion = delete_in_transaction(&mut db, caller, days, batch).await;
        db.settle(deletion).await
    }

    /// Deletes idle ones of these conversations, each in a transaction of its own. Returns how many
    /// conversations it has gone through.
    async fn delete_one_by_one(
        &self,
        caller: Caller,
        days: &DayColumns,
        batch: &[WalkedConversation],
        step: &mut WalkStep,
    ) -> usize {
        for row in batch.iter().filter(|row| row.is_idle) {
            let deleted = self
                .delete_batch(caller, days, std::slice::from_ref(row))
                .await;
            match deleted {
                Ok(deletion) => {
                    step.add_deleted(RetentionLimit::IdleDays, deletion.conversations);
                }
                Err(error) => {
                    if !step.fail(RetentionLimit::IdleDays, error) {
                        break;
                    }
                }
            }
        }
        batch.len()
    }
}

/// Reads the next page of conversations that may be idle.
pub(super) async fn read_page(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    walk: Walk,
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
pub(super) fn walk_after(page: &[WalkedConversation]) -> Walk {
    let last = page.last().map(|row| row.position);
    Walk::after_page(last, page.len() as i64 >= PAGE)
}

/// How many conversations of a page a step goes through, so that the idle ones among them are
/// within its limits together, and at least one if there is one.
fn batch_length(page: &[WalkedConversation]) -> usize {
    let (mut conversations, mut messages) = (0, 0);
    let idle = page.iter().enumerate().filter(|(_, row)| row.is_idle);
    for (index, row) in idle {
        messages += row.messages;
        let is_full = conversations == DELETED_CONVERSATIONS || messages > DELETED_MESSAGES;
        if is_full && conversations > 0 {
            return index;
        }
        conversations += 1;
    }
    page.len()
}

/// Lets the walk go on after so many conversations of the page, and counts those of them that are
/// kept.
fn pass_over(step: &mut WalkStep, page: &[WalkedConversation], passed: usize) {
    let rows = &page[..passed];
    step.kept = rows.iter().filter(|row| !row.is_idle).count() as u64;
    step.walk = match rows.last() {
        Some(last) if passed < page.len() => Walk::After(last.position),
        _ => walk_after(page),
    };
}

/// The outcome of a transaction.
struct Deletion {
    /// Deleted conversations.
    conversations: u64,
    /// Conversations of the batch that it has gone through.
    passed: usize,
}

/// Deletes those of the conversations that are still idle and that no other transaction uses, until
/// the content has enough bytes. One conversation is locked after the other, so that no call waits
/// for a conversation while another one is deleted that is larger.
async fn delete_in_transaction(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    batch: &[WalkedConversation],
) -> Result<Deletion, StoreError> {
    let mut tx = db.begin().await?;
    set_statement_timeout(&mut tx, STATEMENT_TIMEOUT).await?;
    let (mut ids, mut freed) = (Vec::new(), DeletedRows::default());
    let (mut bytes, mut passed) = (0, 0);
    for row in batch {
        passed += 1;
        let id = row.position.id;
        if !row.is_idle || !lock_if_idle(&mut tx, caller, days, id).await? {
            continue;
        }
        failpoint!("retention.locked");
        let deleted = delete_messages_of(&mut tx, caller, id).await?;
        ids.push(id);
        freed.add(deleted.freed);
        bytes += deleted.bytes;
        if bytes >= DELETED_BYTES {
            break;
        }
    }
    if !ids.is_empty() {
        delete_rest_of(&mut tx, caller, &ids).await?;
        failpoint!("retention.deleted");
        subtract_usage(&mut tx, caller, freed).await?;
    }
    tx.commit().await?;
    failpoint!("retention.committed");
    Ok(Deletion {
        conversations: ids.len() as u64,
        passed,
    })
}

/// Locks a conversation for deletion. Returns false if another transaction uses it, or if it is no
/// longer idle.
async fn lock_if_idle(
    db: &mut BoundedConnection,
    caller: Caller,
    days: &DayColumns,
    id: ConversationId,
) -> Result<bool, StoreError> {
    let locked = sqlx::query_file_scalar!(
        "sql/lock_idle_conversation.sql",
        caller.tenant().0,
        id.0,
        days.general,
        &days.agents,
        &days.days,
    )
    .fetch_optional(db)
    .await?;
    Ok(locked.is_some())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

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
    fn a_step_goes_through_conversations_up_to_its_limits() {
        assert_eq!(batch_length(&[]), 0);
        let kept = page([(true, 1), (false, 1_000_000), (true, 1)]);
        assert_eq!(batch_length(&kept), 3);
        let many = page(vec![(true, 1); 60]);
        assert_eq!(batch_length(&many), 50);
        let long = page([(true, 2_000), (false, 0), (true, 3_000), (true, 1)]);
        assert_eq!(batch_length(&long), 3);
        let huge = page([(true, 1_000_000), (true, 1)]);
        assert_eq!(batch_length(&huge), 1);
        let full = page(vec![(false, 1); 200]);
        assert_eq!(batch_length(&full), 200);
    }

    #[test]
    fn the_walk_goes_on_after_what_a_step_has_gone_through_and_counts_only_what_is_kept() {
        let passed = |page: &[WalkedConversation], passed| {
            let mut step = WalkStep::from(Walk::Start);
            pass_over(&mut step, page, passed);
            (step.kept, step.walk)
        };
        assert_eq!(passed(&[], 0), (0, Walk::Ended));
        // A conversation that the next step deletes is not kept.
        let idle = page(vec![(true, 1); 60]);
        assert_eq!(passed(&idle, 50), (0, Walk::After(position(49))));
        assert_eq!(passed(&idle, 60), (0, Walk::Ended));
        let mixed = page([(true, 1), (false, 1), (false, 1), (true, 1)]);
        assert_eq!(passed(&mixed, 2), (1, Walk::After(position(1))));
        let full = page(vec![(false, 1); 200]);
        assert_eq!(passed(&full, 200), (200, Walk::After(position(199))));
    }
}
