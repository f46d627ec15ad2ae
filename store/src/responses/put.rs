//! Stores a response that begins.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    message::MessageId,
};
use uuid::Uuid;

use super::response::{StoredResponse, find_response};
use crate::{
    Store,
    error::{Entity, StoreError},
    rows::Micros,
};

/// A response that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewResponse {
    /// Its id.
    pub response_id: Uuid,
    /// The conversation whose turn it is.
    pub conversation_id: ConversationId,
    /// The request id of the turn.
    pub request_id: String,
    /// The response that it continues.
    pub previous_response_id: Option<Uuid>,
    /// The newest message before its input; 0: none.
    pub after_message_id: MessageId,
    /// Whether the conversation was made for responses that name no conversation.
    pub is_chain: bool,
    /// Whether its caller does not wait for its end.
    pub background: bool,
    /// JSON of what its answers repeat of the request.
    pub request: String,
    /// Digest of the request's body.
    pub request_digest: Digest,
}

impl NewResponse {
    /// The response as it is stored at this time, in microseconds.
    fn stored_at(&self, created_us: i64) -> StoredResponse {
        StoredResponse {
            response_id: self.response_id,
            conversation_id: self.conversation_id,
            request_id: self.request_id.clone(),
            previous_response_id: self.previous_response_id,
            after_message_id: self.after_message_id,
            question_last_id: None,
            answer_message_id: None,
            is_chain: self.is_chain,
            background: self.background,
            cancelled: None,
            request: self.request.clone(),
            request_digest: self.request_digest,
            created: Micros(created_us),
            ended: None,
            outcome: None,
        }
    }
}

/// The outcome of storing a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutResponse {
    /// It is stored.
    Stored(StoredResponse),
    /// It was stored before, for a request with the same body.
    Exists(StoredResponse),
}

impl Store {
    /// Stores a response, once per id. Fails if another request has stored a response with this id.
    pub async fn put_response(
        &self,
        caller: Caller,
        response: &NewResponse,
    ) -> Result<PutResponse, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let stored = sqlx::query_file!(
            "sql/put_response.sql",
            caller.tenant().0,
            response.conversation_id.0,
            response.response_id,
            response.request_id,
            response.previous_response_id,
            response.after_message_id.0,
            response.is_chain,
            response.background,
            response.request,
            response.request_digest.as_slice(),
        )
        .fetch_optional(&mut *db)
        .await?;
        if let Some(row) = stored {
            db.release().await?;
            return Ok(PutResponse::Stored(response.stored_at(row.created_us)));
        }
        let found = find_response(&mut db, caller, response.response_id).await;
        match db.settle(found).await? {
            None => Err(StoreError::NotFound(Entity::Conversation)),
            Some(earlier) if earlier.request_digest == response.request_digest => {
                Ok(PutResponse::Exists(earlier))
            }
            Some(_) => Err(StoreError::RequestIdReused),
        }
    }

    /// Moves a response of which nothing is stored yet to another conversation, after this message.
    /// Fails if the conversation or the response does not exist.
    pub async fn move_response(
        &self,
        caller: Caller,
        id: Uuid,
        conversation: ConversationId,
        after: MessageId,
    ) -> Result<(), StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let moved = sqlx::query!(
            "update ai_response set conversation_id = c.conversation_id, after_message_id = $4
             from (
                 select conversation_id from ai_conversation
                 where tenant_id = $1 and conversation_id = $3
                 for key share
             ) as c
             where tenant_id = $1 and response_id = $2 and question_last_id is null and ended_ts is null",
            caller.tenant().0,
            id,
            conversation.0,
            after.0,
        )
        .execute(&mut *db)
        .await?;
        db.release().await?;
        if moved.rows_affected() == 0 {
            return Err(StoreError::NotFound(Entity::Response));
        }
        Ok(())
    }
}
