//! Appends the answer of a turn, only if the turn still has its lease.

use anneal_core::caller::{Caller, ConversationId};

use super::lease::{ModelLease, renew_lease};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_for_append,
    error::StoreError,
    failpoint,
    messages::{Append, Appended, append::store_with_lock_held},
    policy_defaults::PolicyDefaults,
};

impl Store {
    /// Renews the lease of a turn and appends its answer, in one transaction; once per
    /// `request_id`. None, and nothing is stored, if the lease is lost: another turn may have
    /// begun, or messages that the answer was made from were changed. `stopped`: the answer was
    /// stopped before its end.
    pub async fn append_answer(
        &self,
        caller: Caller,
        append: &Append,
        lease: &ModelLease,
        stopped: bool,
    ) -> Result<Option<Appended>, StoreError> {
        let in_trace = append.in_current_trace();
        let append: &Append = &in_trace;
        // Prepared before the lock is taken, because others wait for the lock.
        let without_tools = append.without_tools().await?;
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.writes.checkout(caller).await?;
        let appended = append_under_lease(
            &mut db,
            caller,
            (append, &without_tools),
            (lease, stopped),
            &policy_defaults,
        )
        .await;
        db.settle(appended).await
    }
}

async fn append_under_lease(
    db: &mut BoundedConnection,
    caller: Caller,
    (append, without_tools): (&Append, &Append),
    (lease, stopped): (&ModelLease, bool),
    policy_defaults: &PolicyDefaults,
) -> Result<Option<Appended>, StoreError> {
    let mut tx = db.begin().await?;
    let conversation = append.conversation();
    let head = lock_for_append(&mut tx, caller, conversation, policy_defaults).await?;
    failpoint!("answer.locked");
    // Under the conversation's lock: a change of messages deletes the lease under the same lock.
    // The renewal also locks the lease, so that no other turn is admitted before the commit.
    if !renew_lease(&mut tx, lease).await? {
        tx.rollback().await?;
        return Ok(None);
    }
    let appends = (append, without_tools);
    let appended = store_with_lock_held(&mut tx, caller, appends, &head, policy_defaults).await?;
    if stopped && !appended.replayed {
        mark_as_stop(&mut tx, caller, conversation, &appended).await?;
    }
    failpoint!("answer.written");
    tx.commit().await?;
    failpoint!("answer.committed");
    Ok(Some(appended))
}

/// Marks the stored answer as stopped before its end.
async fn mark_as_stop(
    db: &mut BoundedConnection,
    caller: Caller,
    conversation: ConversationId,
    appended: &Appended,
) -> Result<(), StoreError> {
    for message in &appended.messages {
        sqlx::query!(
            "update ai_message set stopped = true
             where tenant_id = $1 and conversation_id = $2 and message_id = $3",
            caller.tenant().0,
            conversation.0,
            message.id.0,
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}
