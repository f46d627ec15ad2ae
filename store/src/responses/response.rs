//! A stored response.

use std::ops::RangeInclusive;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
    limits::CHANGE_MESSAGES,
    message::MessageId,
};
use uuid::Uuid;

use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    rows::Micros,
};

/// A response as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
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
    /// The last message of its input; None: not stored yet.
    pub question_last_id: Option<MessageId>,
    /// The message with its answer; None: there is none. Of a response without output it is
    /// withdrawn.
    pub answer_message_id: Option<MessageId>,
    /// Whether the conversation was made for responses that name no conversation.
    pub is_chain: bool,
    /// Whether its caller did not wait for its end.
    pub background: bool,
    /// When it was told to end; None: it was not.
    pub cancelled: Option<Micros>,
    /// JSON of what its answers repeat of the request, as it was stored.
    pub request: String,
    /// Digest of the request's body.
    pub request_digest: Digest,
    /// When it was created.
    pub created: Micros,
    /// When its end was stored; None: it is under way, or its server has stopped.
    pub ended: Option<Micros>,
    /// JSON that says how it has ended; None as for `ended`.
    pub outcome: Option<String>,
}

/// A response while it is that of one turn: another try of it may get its id later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTurn<'a> {
    /// Its id.
    pub response_id: Uuid,
    /// The request id of the turn.
    pub request_id: &'a str,
}

/// How the appends of a response's input are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputAppends<'a> {
    /// The newest message before the input.
    pub after: MessageId,
    /// The request id of the turn, and so of the append of its question.
    pub request_id: &'a str,
    /// The beginning of the request ids of the appends before it.
    pub earlier_prefix: &'a str,
}

impl StoredResponse {
    /// The response, as that of its turn.
    #[must_use]
    pub fn turn(&self) -> ResponseTurn<'_> {
        ResponseTurn {
            response_id: self.response_id,
            request_id: &self.request_id,
        }
    }
}

impl Store {
    /// Reads a response.
    pub async fn get_response(
        &self,
        caller: Caller,
        id: Uuid,
    ) -> Result<StoredResponse, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = find_response(&mut db, caller, id).await;
        db.settle(found)
            .await?
            .ok_or(StoreError::NotFound(Entity::Response))
    }

    /// Finds the id of a response within a range of ids.
    pub async fn find_response_id(
        &self,
        caller: Caller,
        range: RangeInclusive<Uuid>,
    ) -> Result<Option<Uuid>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let found = sqlx::query_scalar!(
            "select response_id from ai_response
             where tenant_id = $1 and response_id between $2 and $3
             order by response_id
             limit 1",
            caller.tenant().0,
            range.start(),
            range.end(),
        )
        .fetch_optional(&mut *db)
        .await?;
        db.release().await?;
        Ok(found)
    }

    /// Whether the turn with this request id is under way: its lease has not ended.
    pub async fn is_turn_running(
        &self,
        caller: Caller,
        conversation: ConversationId,
        request_id: &str,
    ) -> Result<bool, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let running = sqlx::query_scalar!(
            r#"select exists (
                   select from ai_model_lease
                   where tenant_id = $1 and conversation_id = $2 and turn and request_id = $3
                       and lease_until_ts > now()
               ) as "running!""#,
            caller.tenant().0,
            conversation.0,
            request_id,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(running)
    }

    /// The last message of a response's input, as far as it is stored, withdrawn or not. None:
    /// nothing is.
    pub async fn find_input_end(
        &self,
        caller: Caller,
        conversation: ConversationId,
        appends: InputAppends<'_>,
    ) -> Result<Option<MessageId>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let last = sqlx::query_file_scalar!(
            "sql/find_input_end.sql",
            caller.tenant().0,
            conversation.0,
            appends.after.0,
            appends.request_id,
            appends.earlier_prefix,
            CHANGE_MESSAGES as i64,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(last.map(MessageId))
    }
}

/// Reads a response; None: it does not exist.
pub(super) async fn find_response(
    db: &mut BoundedConnection,
    caller: Caller,
    id: Uuid,
) -> Result<Option<StoredResponse>, StoreError> {
    let row = sqlx::query_file!("sql/find_response.sql", caller.tenant().0, id)
        .fetch_optional(db)
        .await?;
    row.map(|row| {
        Ok(StoredResponse {
            response_id: row.response_id,
            conversation_id: ConversationId(row.conversation_id),
            request_id: row.request_id,
            previous_response_id: row.previous_response_id,
            after_message_id: MessageId(row.after_message_id),
            question_last_id: row.question_last_id.map(MessageId),
            answer_message_id: row.answer_message_id.map(MessageId),
            is_chain: row.is_chain,
            background: row.background,
            cancelled: row.cancelled_us.map(Micros),
            request: row.request,
            request_digest: row
                .request_digest
                .try_into()
                .map_err(|_| StoreError::Unreadable("digest of a response"))?,
            created: Micros(row.created_us),
            ended: row.ended_us.map(Micros),
            outcome: row.outcome,
        })
    })
    .transpose()
}
