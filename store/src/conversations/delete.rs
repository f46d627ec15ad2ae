//! Deletes conversations, with everything derived from them: their messages and jobs by statements,
//! all other rows by a trigger on `ai_conversation` (`migrations/0023_deletion_knows_its_rows.sql`).

use anneal_core::{
    caller::{Caller, ConversationId},
    job::JobKind,
};
use uuid::Uuid;

use super::lock::lock_for_deletion;
use crate::{Store, connection::BoundedConnection, error::StoreError, failpoint};

impl Store {
    /// Deletes a conversation and everything derived from it.
    pub async fn delete_conversation(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let deleted = delete_with_derived_rows(&mut db, caller, id).await;
        db.settle(deleted).await
    }

    /// Deletes a conversation if it has no message and no turn in progress. Returns whether it was
    /// deleted.
    pub async fn delete_empty_conversation(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let deleted = delete_if_empty(&mut db, caller, id).await;
        db.settle(deleted).await
    }
}

async fn delete_with_derived_rows(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    lock_for_deletion(&mut tx, caller, id).await?;
    failpoint!("delete.locked");
    let deleted = delete_messages_of(&mut tx, caller, id).await?;
    delete_rest_of(&mut tx, caller, &[id]).await?;
    subtract_usage(&mut tx, caller, deleted.freed).await?;
    failpoint!("delete.deleted");
    tx.commit().await?;
    failpoint!("delete.committed");
    Ok(())
}

/// The figures by which a deletion lowers a tenant's usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeletedRows {
    /// Deleted messages that were counted.
    counted_messages: i64,
    /// Bytes of their content, and of all withdrawn content.
    bytes: i64,
}

impl DeletedRows {
    /// Content that no longer stood, of so many bytes.
    pub(crate) const fn of_versions(bytes: i64) -> Self {
        Self {
            counted_messages: 0,
            bytes,
        }
    }

    /// Adds other deleted rows.
    pub(crate) const fn add(&mut self, more: Self) {
        self.counted_messages += more.counted_messages;
        self.bytes += more.bytes;
    }
}

/// The deleted messages of a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeletedMessages {
    /// The figures by which the tenant's usage is lowered.
    pub(crate) freed: DeletedRows,
    /// All messages.
    pub(crate) messages: i64,
    /// Versions of messages that no longer stood.
    pub(crate) versions: i64,
    /// Bytes of all their content.
    pub(crate) bytes: i64,
}

/// Deletes the messages of a conversation, which the caller has locked for deletion (`for update`).
/// The rest of the conversation goes with [`delete_rest_of`], in the same transaction, which ends
/// with [`subtract_usage`].
pub(crate) async fn delete_messages_of(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<DeletedMessages, StoreError> {
    let deleted = sqlx::query_file!("sql/delete_messages.sql", caller.tenant().0, id.0)
        .fetch_one(db)
        .await?;
    Ok(DeletedMessages {
        freed: DeletedRows {
            counted_messages: deleted.counted,
            bytes: deleted.counted_bytes,
        },
        messages: deleted.messages,
        versions: deleted.versions,
        bytes: deleted.bytes,
    })
}

/// Deletes conversations whose messages are deleted, and everything else that is derived from them.
pub(crate) async fn delete_rest_of(
    db: &mut BoundedConnection,
    caller: Caller,
    ids: &[ConversationId],
) -> Result<(), StoreError> {
    failpoint!("delete.messages");
    delete_jobs(db, caller, ids).await?;
    failpoint!("delete.jobs");
    let conversations = uuids(ids);
    sqlx::query!(
        "delete from ai_conversation where tenant_id = $1 and conversation_id = any ($2)",
        caller.tenant().0,
        &conversations,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Subtracts deleted rows from what the tenant has stored. The last statement of a transaction,
/// because other transactions of the tenant (appends, counts, deletions) whose backend has the same
/// part of the usage wait for this row's lock until the commit.
pub(crate) async fn subtract_usage(
    db: &mut BoundedConnection,
    caller: Caller,
    deleted: DeletedRows,
) -> Result<(), StoreError> {
    if deleted != DeletedRows::default() {
        sqlx::query_file!(
            "sql/subtract_tenant_usage.sql",
            caller.tenant().0,
            deleted.counted_messages,
            deleted.bytes,
        )
        .execute(db)
        .await?;
    }
    Ok(())
}

/// Deletes the jobs of locked conversations. The waiting and running jobs go first: if one of them
/// becomes a dead job meanwhile, the second statement deletes it.
async fn delete_jobs(
    db: &mut BoundedConnection,
    caller: Caller,
    ids: &[ConversationId],
) -> Result<(), StoreError> {
    let (tenant, conversations) = (caller.tenant().0, uuids(ids));
    let kinds: Vec<i16> = JobKind::ALL.iter().map(|kind| kind.code()).collect();
    sqlx::query_file!("sql/delete_jobs.sql", tenant, &kinds, &conversations)
        .execute(&mut *db)
        .await?;
    sqlx::query!(
        "delete from ai_job_dead where tenant_id = $1 and kind = any ($2) and conversation_id = any ($3)",
        tenant,
        &kinds,
        &conversations,
    )
    .execute(db)
    .await?;
    Ok(())
}

fn uuids(ids: &[ConversationId]) -> Vec<Uuid> {
    ids.iter().map(|id| id.0).collect()
}

async fn delete_if_empty(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    // Appends lock the same row, so the conversation stays empty until the commit.
    lock_for_deletion(&mut tx, caller, id).await?;
    let (tenant, conversation) = (caller.tenant().0, id.0);
    let deleted = sqlx::query!(
        "delete from ai_conversation
         where tenant_id = $1 and conversation_id = $2 and last_message_id = 0
             and not exists (select from ai_model_lease where conversation_id = $2 and lease_until_ts > now())",
        tenant,
        conversation,
    )
    .execute(&mut *tx)
    .await?;
    let is_deleted = deleted.rows_affected() > 0;
    if is_deleted {
        delete_jobs(&mut tx, caller, &[id]).await?;
    }
    tx.commit().await?;
    Ok(is_deleted)
}
