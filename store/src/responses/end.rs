//! Records how far a response has come and how it has ended, and deletes it.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};
use uuid::Uuid;

use super::response::ResponseTurn;
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::{Entity, StoreError},
};

/// Most tries of one deletion. Each failed try means that the response was moved to another
/// conversation meanwhile, or that this conversation was deleted.
pub(super) const MAX_TRIES: usize = 8;

/// How a response has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseEnd {
    /// The last message of its input; None: nothing of it is stored, or it is recorded already.
    pub question: Option<MessageId>,
    /// The message with its answer; None: there is none.
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
    /// Records the last message of a response's input, unless the response is that of another turn.
    pub async fn note_question(
        &self,
        caller: Caller,
        turn: ResponseTurn<'_>,
        last: MessageId,
    ) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        sqlx::query!(
            "update ai_response set question_last_id = $4
             where tenant_id = $1 and response_id = $2 and request_id = $3",
            caller.tenant().0,
            turn.response_id,
            turn.request_id,
            last.0,
        )
        .execute(&mut *db)
        .await?;
        db.release().await
    }

    /// Stores how a response has ended. False, and nothing is stored, if its end is stored already,
    /// it was deleted, or it is that of another turn.
    pub async fn end_response(
        &self,
        caller: Caller,
        turn: ResponseTurn<'_>,
        end: &ResponseEnd,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let ended = sqlx::query!(
            "update ai_response
             set question_last_id = greatest(question_last_id, $4), answer_message_id = $5,
                 outcome = $6::text::json, ended_ts = now()
             where tenant_id = $1 and response_id = $2 and request_id = $3 and ended_ts is null",
            caller.tenant().0,
            turn.response_id,
            turn.request_id,
            end.question.map(|question| question.0),
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

pub(super) async fn find_conversation(
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
