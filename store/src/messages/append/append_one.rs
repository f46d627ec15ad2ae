//! Stores one append by itself: in one statement that does not wait for locks, or under its
//! conversation's lock. Only under the lock it is certain which messages the conversation keeps,
//! and why the append is refused. Also finds an earlier append with the same request id.

use anneal_core::{caller::Caller, message::MessageId};

use super::{Append, Appended, AppendedMessage, statement};
use crate::{
    connection::{BoundedConnection, PooledConnection},
    conversations::{AppendHead, lock_for_append},
    error::{Entity, StoreError, violated},
    failpoint,
    idempotency::{self, EarlierRequest},
    policy_defaults::PolicyDefaults,
    rows::tokens,
};

/// Stores one append in one statement. Returns None if nothing was stored, because the conversation
/// could not be locked at once or because the append is refused.
pub(super) async fn store_if_lock_is_free(
    db: &mut PooledConnection,
    caller: Caller,
    append: &Append,
    policy_defaults: &PolicyDefaults,
) -> Result<Option<Appended>, StoreError> {
    failpoint!("append.alone.begun");
    let outcome = if db.is_in_transaction() {
        // A savepoint: if the request id exists already, the transaction can still be committed.
        let mut tx = db.begin().await?;
        match statement::execute_one(&mut tx, caller, append, policy_defaults).await {
            Ok(outcome) => tx.commit().await.map(|()| outcome),
            Err(error) => tx.rollback().await.and(Err(error)),
        }
    } else {
        statement::execute_one(db, caller, append, policy_defaults).await
    };
    failpoint!("append.alone.stored");
    match outcome {
        Ok(stored) => Ok(stored),
        Err(error) if violated(&error) == Some("ai_message_request_id_unique") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the lock of the append's conversation and stores the append. If the conversation keeps
/// no tool messages, stores `without_tools` instead: the append without them.
pub(super) async fn store_under_lock(
    db: &mut PooledConnection,
    caller: Caller,
    append: &Append,
    without_tools: &Append,
    policy_defaults: &PolicyDefaults,
) -> Result<Appended, StoreError> {
    let mut tx = db.begin().await?;
    let head = lock_for_append(&mut tx, caller, append.conversation, policy_defaults).await?;
    failpoint!("append.alone.locked");
    let appended = store_with_lock_held(
        &mut tx,
        caller,
        (append, without_tools),
        &head,
        policy_defaults,
    )
    .await?;
    failpoint!("append.alone.written");
    tx.commit().await?;
    Ok(appended)
}

/// Stores the append, or the append without its tool messages, in the open transaction of `db`,
/// which has locked the conversation.
pub(crate) async fn store_with_lock_held(
    db: &mut BoundedConnection,
    caller: Caller,
    (append, without_tools): (&Append, &Append),
    head: &AppendHead,
    policy_defaults: &PolicyDefaults,
) -> Result<Appended, StoreError> {
    let to_store = if head.keeps_tools {
        append
    } else {
        without_tools
    };
    let stored = if to_store.message_count() == 0 {
        None
    } else {
        statement::execute_one(db, caller, to_store, policy_defaults).await?
    };
    if let Some(stored) = stored {
        let skipped = append.skipped(stored.messages.len());
        return Ok(Appended { skipped, ..stored });
    }
    if let Some(earlier) = find_earlier_append(db, caller, append).await? {
        return Ok(earlier);
    }
    check_newest(append, head.last_message_id)?;
    if to_store.message_count() > 0 {
        // Every other reason for a refusal was checked above.
        return Err(StoreError::NotFound(Entity::Conversation));
    }
    record_empty(db, caller, append).await
}

fn check_newest(append: &Append, actual: MessageId) -> Result<(), StoreError> {
    match append.expected_last {
        Some(expected) if expected != actual => Err(StoreError::NotTheNewest { expected, actual }),
        _ => Ok(()),
    }
}

/// Records the request id of an append of which no message is kept, so that a repetition has the
/// same effect. Does not record chat turns: a repeated turn can be stored, if the model answers
/// something else or if the conversation keeps tool messages by then.
async fn record_empty(
    db: &mut BoundedConnection,
    caller: Caller,
    append: &Append,
) -> Result<Appended, StoreError> {
    if append.turn_role.is_none() && append.request_id.is_some() {
        let request = append.request();
        idempotency::put_request(db, caller, append.conversation, &request, None).await?;
        sqlx::query!(
            "update ai_conversation set has_empty_appends = true
             where tenant_id = $1 and conversation_id = $2 and not has_empty_appends",
            caller.tenant().0,
            append.conversation.0,
        )
        .execute(db)
        .await?;
    }
    Ok(append.stored_nothing(false))
}

/// Stores one append in the open transaction of `db`, in which the conversation was created.
pub(crate) async fn append_in_transaction(
    db: &mut BoundedConnection,
    caller: Caller,
    append: &Append,
    policy_defaults: &PolicyDefaults,
) -> Result<(), StoreError> {
    let stored = statement::execute_one(db, caller, append, policy_defaults).await?;
    stored
        .map(|_| ())
        .ok_or(StoreError::NotFound(Entity::Conversation))
}

/// Finds the result of an earlier append with this `request_id`.
pub(super) async fn find_earlier_append(
    db: &mut BoundedConnection,
    caller: Caller,
    append: &Append,
) -> Result<Option<Appended>, StoreError> {
    let Some(request_id) = &append.request_id else {
        return Ok(None);
    };
    let rows = sqlx::query_file!(
        "sql/append_replay.sql",
        caller.tenant().0,
        append.conversation.0,
        request_id
    )
    .fetch_all(&mut *db)
    .await?;
    let Some(first) = rows.first() else {
        let request = append.request();
        let earlier = idempotency::find_request(db, caller, append.conversation, &request).await?;
        return Ok(match earlier {
            EarlierRequest::Done(_) => Some(append.stored_nothing(true)),
            EarlierRequest::None => None,
        });
    };
    let stored_digest = first.request_digest.as_deref();
    if !stored_digest.is_some_and(|stored| idempotency::is_same_request(stored, &append.digest)) {
        return Err(StoreError::RequestIdReused);
    }
    let messages: Vec<_> = rows
        .iter()
        .map(|row| AppendedMessage {
            id: MessageId(row.message_id),
            turn: row.turn,
            tokens: tokens(row.token_estimate),
            is_counted: row.token_count == Some(row.token_estimate)
                || append.is_count(
                    row.message_id - first.message_id,
                    row.encoding,
                    row.token_estimate,
                ),
            withdrawn: row.withdrawn,
        })
        .collect();
    Ok(Some(Appended {
        skipped: append.skipped(messages.len()),
        messages,
        content_bytes: 0,
        replayed: true,
        has_work: false,
        encoding: None,
    }))
}
