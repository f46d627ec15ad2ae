//! Records how far a response has come and how it has ended, and deletes it.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};
use uuid::Uuid;

use crate::{
    Store,
    error::{Entity, StoreError},
};

/// How a response has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseEnd {
    /// The message with its output; None: there is none.
    pub answer: Option<MessageId>,
    /// JSON of status, error, usage and model.
    pub outcome: String,
}

/// A response that was deleted.
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

    /// Deletes a response. Its messages stay.
    pub async fn delete_response(
        &self,
        caller: Caller,
        id: Uuid,
    ) -> Result<DeletedResponse, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let row = sqlx::query_file!("sql/delete_response.sql", caller.tenant().0, id)
            .fetch_optional(&mut *db)
            .await?;
        db.release().await?;
        let row = row.ok_or(StoreError::NotFound(Entity::Response))?;
        Ok(DeletedResponse {
            conversation: ConversationId(row.conversation_id),
            is_chain: row.is_chain,
            others: row.others,
        })
    }
}
