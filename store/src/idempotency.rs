//! Stores the answers to requests that a client may send again: updates of a conversation, changes
//! of messages, separators, imported checkpoints, and appends of which no message is kept. An
//! answer is stored under its `request_id` as long as the conversation exists. Other requests with
//! an id are recognized by the rows that they store: appends in `messages/append/append_one.rs`.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest::Digest,
};

use crate::{connection::BoundedConnection, error::StoreError};

/// A request for a change, which the client may send again.
pub(crate) struct IdempotentRequest<'a> {
    /// The RPC's name.
    pub(crate) method: &'static str,
    /// The client's request id; None: a repetition is executed again.
    pub(crate) id: Option<&'a str>,
    /// Digest of what was asked for.
    pub(crate) digest: Digest,
}

/// Whether the request was executed before, and the answer that it had then.
pub(crate) enum EarlierRequest {
    /// The request is new.
    None,
    /// The request was executed. The answer is a message's id, or the number of a change; None: the
    /// method records none.
    Done(Option<i64>),
}

/// Whether a repeated request asks for the same as the one with the stored digest. The digest of a
/// request that brought erased content is empty: any repetition counts as the same.
pub(crate) fn is_same_request(stored: &[u8], digest: &Digest) -> bool {
    stored.is_empty() || stored == digest
}

/// Looks for an earlier request with this id. The caller holds the conversation's row lock. Fails
/// if the earlier request asked for something else.
pub(crate) async fn find_request(
    db: &mut BoundedConnection,
    caller: Caller,
    conversation: ConversationId,
    request: &IdempotentRequest<'_>,
) -> Result<EarlierRequest, StoreError> {
    let Some(id) = request.id else {
        return Ok(EarlierRequest::None);
    };
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
        None => Ok(EarlierRequest::None),
        Some(row) if is_same_request(&row.request_digest, &request.digest) => {
            Ok(EarlierRequest::Done(row.answer))
        }
        Some(_) => Err(StoreError::RequestIdReused),
    }
}

/// Stores that a request was executed, in the transaction that executed it.
pub(crate) async fn put_request(
    db: &mut BoundedConnection,
    caller: Caller,
    conversation: ConversationId,
    request: &IdempotentRequest<'_>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_whose_digest_was_erased_is_the_same_as_any_repetition() {
        let digest = [7; 32];
        assert!(is_same_request(&digest, &digest));
        assert!(is_same_request(&[], &digest));
        assert!(!is_same_request(&[8; 32], &digest));
    }
}
