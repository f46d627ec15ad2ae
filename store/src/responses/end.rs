//! Records how far a response has come and how it has ended, and deletes it.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};
use uuid::Uuid;

use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::{Entity, StoreError},
};

/// Most tries of one deletion. Each failed try means that the response was moved to another
/// conversation meanwhile, or that this conversation was deleted.
const MAX_TRIES: usize = 8;

/// How a response has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseEnd {
    /// The message with its output; None: there is none.
    pub answer: Option<MessageId>,
    /// JSON of status, error, usage and model.
    pub outcome: String,
}

/// A response that was deleted.
///
/// The only response of a conversation that was made for responses (`is_chain` and not `others`)
/// stays: the caller deletes the conversation, and the response goes with it. So a deletion that
/// ends in between can be repeated, and no messages are left that no response leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedResponse {
    /// Its conversation, whose messages stay.
    pub conversation: ConversationId,
    /// Whether the conversation was made for responses that name no conversation.
    pub is_chain: bool,
    /// Whether the conversation has other responses.
    pub others: bool,
}

impl Store {
    /// Records the last message of a response's input.
    pub async fn note_question(
        &self,
        caller: Caller,
        id: Uuid,
        last: MessageId,
    ) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        sqlx::query!(
            "update ai_response set question_last_id = $3 where tenant_id = $1 and response_id = $2",
            caller.tenant().0,
            id,
            last.0,
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// Stores how a response has ended. False, and nothing is stored, if its end is stored already
    /// or it was deleted.
    pub async fn end_response(
        &self,
        caller: Caller,
        id: Uuid,
        end: &ResponseEnd,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let ended = sqlx::query!(
            "update ai_response
             set answer_message_id = $3, outcome = $4::text::json, ended_ts = now()
             where tenant_id = $1 and response_id = $2 and ended_ts is null",
            caller.tenant().0,
            id,
            end.answer.map(|answer| answer.0),
            end.outcome,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(ended.rows_affected() > 0)
    }

    /// Records that a response was told to end, unless it has ended.
    pub async fn cancel_response(&self, caller: Caller, id: Uuid) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        sqlx::query!(
            "update ai_response set cancelled_ts = coalesce(cancelled_ts, now())
             where tenant_id = $1 and response_id = $2 and ended_ts is null",
            caller.tenant().0,
            id,
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// Deletes a response that has ended, if its turn has this request id. False: another response
    /// has its id, or none.
    pub async fn delete_ended_response(
        &self,
        caller: Caller,
        id: Uuid,
        request_id: &str,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let deleted = sqlx::query!(
            "delete from ai_response
             where tenant_id = $1 and response_id = $2 and request_id = $3 and ended_ts is not null",
            caller.tenant().0,
            id,
            request_id,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// Deletes a response, except the only one of a conversation that was made for responses (see
    /// [`DeletedResponse`]). Its messages stay.
    pub async fn delete_response(
        &self,
        caller: Caller,
        id: Uuid,
    ) -> Result<DeletedResponse, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let deleted = delete_in_its_conversation(&mut db, caller, id).await;
        db.settle(deleted).await
    }
}

async fn delete_in_its_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<DeletedResponse, StoreError> {
    for _ in 0..MAX_TRIES {
        let Some(conversation) = find_conversation(db, caller, id).await? else {
            break;
        };
        if let Some(deleted) = delete_under_lock(db, caller, (conversation, id)).await? {
            return Ok(deleted);
        }
    }
    Err(StoreError::NotFound(Entity::Response))
}

async fn find_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<Option<ConversationId>, StoreError> {
    let found = sqlx::query_scalar!(
        "select conversation_id from ai_response where tenant_id = $1 and response_id = $2",
        caller.tenant().0,
        id,
    )
    .fetch_optional(db)
    .await?;
    Ok(found.map(ConversationId))
}

/// Deletes the response under its conversation's lock: of two calls that delete the last two
/// responses, the second one sees that it deletes the last. None: it is not in this conversation.
async fn delete_under_lock(
    db: &mut BoundedConnection,
    caller: Caller,
    (conversation, id): (ConversationId, Uuid),
) -> Result<Option<DeletedResponse>, StoreError> {
    let mut tx = db.begin().await?;
    match lock_conversation(&mut tx, caller, conversation).await {
        Ok(_) => {}
        Err(StoreError::NotFound(_)) => {
            tx.rollback().await?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let row = sqlx::query_file!(
        "sql/delete_response.sql",
        caller.tenant().0,
        conversation.0,
        id
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(row.map(|row| DeletedResponse {
        conversation,
        is_chain: row.is_chain,
        others: row.others,
    }))
}
