//! Idempotency of changes other than append: what a `request_id` did, for the conversation's life.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
};
use sqlx::PgConnection;

use crate::error::StoreError;

/// A change that may be repeated.
pub(crate) struct Request<'a> {
    /// The call.
    pub(crate) method: &'static str,
    /// The caller's id; None: not repeatable.
    pub(crate) id: Option<&'a str>,
    /// What was asked for.
    pub(crate) digest: Digest,
}

/// Whether the request was done before, and what it answered then.
pub(crate) enum Earlier {
    /// It is new.
    None,
    /// It was done, with this answer.
    Done(Option<i64>),
}

/// Looks for an earlier request. The caller holds the conversation's row lock.
pub(crate) async fn find(
    db: &mut PgConnection,
    caller: Caller,
    conversation: ConversationId,
    request: &Request<'_>,
) -> Result<Earlier, StoreError> {
    let Some(id) = request.id else { return Ok(Earlier::None) };
    let row = sqlx::query!(
        "select request_digest, answer from ai_request
         where tenant_id = $1 and conversation_id = $2 and method = $3 and request_id = $4",
        caller.tenant().0,
        conversation.0,
        request.method,
        id,
    )
    .fetch_optional(db)
    .await?;
    match row {
        None => Ok(Earlier::None),
        Some(row) if row.request_digest == request.digest => Ok(Earlier::Done(row.answer)),
        Some(_) => Err(StoreError::RequestIdReused),
    }
}

/// Remembers a request, in the transaction that did it.
pub(crate) async fn put(
    db: &mut PgConnection,
    caller: Caller,
    conversation: ConversationId,
    request: &Request<'_>,
    answer: Option<i64>,
) -> Result<(), StoreError> {
    let Some(id) = request.id else { return Ok(()) };
    sqlx::query!(
        "insert into ai_request (tenant_id, conversation_id, method, request_id, request_digest, answer)
         values ($1, $2, $3, $4, $5, $6)",
        caller.tenant().0,
        conversation.0,
        request.method,
        id,
        request.digest.as_slice(),
        answer,
    )
    .execute(db)
    .await?;
    Ok(())
}
