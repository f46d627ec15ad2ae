//! Deletes a response of which nothing is kept, so that its id is free for another try, and
//! conversations that were made for such responses.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};

use super::{
    end::{MAX_TRIES, find_conversation},
    response::ResponseTurn,
};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::{delete_messages_of, delete_rest_of, lock_for_deletion, subtract_usage},
    error::StoreError,
};

impl Store {
    /// Deletes a response, if it is still that of this turn. A conversation that was made for
    /// responses goes with its last one, if nothing stands in it but what precedes the response.
    /// Returns whether the response was there.
    pub async fn discard_response(
        &self,
        caller: Caller,
        turn: ResponseTurn<'_>,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let discarded = discard_in_its_conversation(&mut db, caller, turn).await;
        db.settle(discarded).await
    }

    /// Deletes a conversation that was made for a response which is not stored, if no response has
    /// it, nothing stands in it after this message, and no turn is in progress. Returns whether it
    /// was deleted.
    pub async fn delete_unused_conversation(
        &self,
        caller: Caller,
        id: ConversationId,
        after: MessageId,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let beginning = Beginning {
            conversation: id,
            after,
            request_id: "",
        };
        let deleted = try_delete_conversation(&mut db, caller, beginning).await;
        db.settle(deleted).await
    }
}

/// The beginning of a response of which nothing is kept.
#[derive(Clone, Copy)]
struct Beginning<'a> {
    conversation: ConversationId,
    /// The newest message before its input.
    after: MessageId,
    /// The request id of its turn; empty: it has none.
    request_id: &'a str,
}

async fn discard_in_its_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    turn: ResponseTurn<'_>,
) -> Result<bool, StoreError> {
    let mut tried = None;
    for _ in 0..MAX_TRIES {
        let found = find_conversation(db, caller, turn.response_id).await?;
        // In the same conversation again: it is that of another turn.
        let Some(conversation) = found.filter(|_| found != tried) else {
            break;
        };
        tried = found;
        if discard_under_lock(db, caller, conversation, turn).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Discards the response under its conversation's lock, so that nothing is appended meanwhile.
/// False: it is not in this conversation, or it is that of another turn.
async fn discard_under_lock(
    db: &mut BoundedConnection,
    caller: Caller,
    conversation: ConversationId,
    turn: ResponseTurn<'_>,
) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    match lock_for_deletion(&mut tx, caller, conversation).await {
        Ok(()) => {}
        Err(StoreError::NotFound(_)) => {
            tx.rollback().await?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    let row = sqlx::query!(
        "delete from ai_response
         where tenant_id = $1 and response_id = $3 and (conversation_id = $2) is true and request_id = $4
         returning is_chain, after_message_id",
        caller.tenant().0,
        conversation.0,
        turn.response_id,
        turn.request_id,
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(row) = row.as_ref().filter(|row| row.is_chain) {
        let beginning = Beginning {
            conversation,
            after: MessageId(row.after_message_id),
            request_id: turn.request_id,
        };
        try_delete_under_lock(&mut tx, caller, beginning).await?;
    }
    tx.commit().await?;
    Ok(row.is_some())
}

async fn try_delete_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    beginning: Beginning<'_>,
) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    lock_for_deletion(&mut tx, caller, beginning.conversation).await?;
    let is_deleted = try_delete_under_lock(&mut tx, caller, beginning).await?;
    tx.commit().await?;
    Ok(is_deleted)
}

/// Deletes a conversation, which the caller has locked for deletion, if nothing uses it but the turn
/// that has begun there. The end of its transaction (see [`subtract_usage`]).
async fn try_delete_under_lock(
    db: &mut BoundedConnection,
    caller: Caller,
    beginning: Beginning<'_>,
) -> Result<bool, StoreError> {
    let id = beginning.conversation;
    let is_unused = sqlx::query_file_scalar!(
        "sql/is_conversation_unused.sql",
        caller.tenant().0,
        id.0,
        beginning.after.0,
        beginning.request_id,
    )
    .fetch_one(&mut *db)
    .await?;
    if is_unused {
        let deleted = delete_messages_of(db, caller, id).await?;
        delete_rest_of(db, caller, &[id]).await?;
        subtract_usage(db, caller, deleted.freed).await?;
    }
    Ok(is_unused)
}
