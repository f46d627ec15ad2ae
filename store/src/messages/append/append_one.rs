//! One append by itself: it waits for its conversation's row lock, finds an earlier append with its
//! request id, and says why it was refused.

use anneal_core::{caller::Caller, message::MessageId};
use sqlx::{Connection as _, PgConnection};

use super::{
    Append, Appended, AppendedMessage,
    statement::{self, AppendOutcome},
};
use crate::{
    connection::{PooledConnection, pool::is_in_transaction},
    conversations::lock_conversation,
    error::{Entity, StoreError, violated},
    failpoint,
    idempotency::{self, EarlierRequest},
    rows::tokens,
};

/// Stores one append; waits if another transaction holds its conversation.
pub(super) async fn append_one(
    db: &mut PooledConnection,
    caller: Caller,
    append: &Append,
    bases: &str,
) -> Result<Appended, StoreError> {
    failpoint!("append.alone.begun");
    let mut done = insert_one(db, caller, append, bases).await;
    if matches!(done, Ok(AppendOutcome::LockBusy)) {
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, append.conversation).await?;
        failpoint!("append.alone.locked");
        done = insert_one(&mut tx, caller, append, bases).await;
        failpoint!("append.alone.written");
        if done.is_ok() {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
    }
    failpoint!("append.alone.stored");
    match done {
        Ok(AppendOutcome::Stored(appended)) => Ok(appended),
        Ok(AppendOutcome::Refused | AppendOutcome::LockBusy) => {
            explain_refusal(db, caller, append, bases).await
        }
        Err(error) if violated(&error) == Some("ai_message_request_id_unique") => {
            let earlier = find_earlier_append(db, caller, append).await?;
            earlier.ok_or(StoreError::NotFound(Entity::Conversation))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn record_empty(
    db: &mut PooledConnection,
    caller: Caller,
    append: &Append,
) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, append.conversation).await?;
    if let EarlierRequest::None =
        idempotency::find_request(&mut tx, caller, append.conversation, &append.request()).await?
    {
        idempotency::put_request(
            &mut tx,
            caller,
            append.conversation,
            &append.request(),
            None,
        )
        .await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Executes the statement for one append.
async fn insert_one(
    db: &mut PgConnection,
    caller: Caller,
    append: &Append,
    bases: &str,
) -> Result<AppendOutcome, sqlx::Error> {
    let asked = [(caller, append)];
    let done = if is_in_transaction(db) {
        // A savepoint: if the request id exists already, the caller continues in the same
        // transaction.
        let mut tx = db.begin().await?;
        match statement::execute(&mut tx, &asked, bases).await {
            Ok(done) => tx.commit().await.map(|()| done)?,
            Err(error) => return tx.rollback().await.and(Err(error)),
        }
    } else {
        statement::execute(db, &asked, bases).await?
    };
    Ok(done.into_iter().next().unwrap_or(AppendOutcome::LockBusy))
}

/// Stores one append in a transaction that the caller ends. None: it was not stored.
#[cfg(feature = "sabotage")]
pub(super) async fn try_append_in_transaction(
    db: &mut PgConnection,
    caller: Caller,
    append: &Append,
    bases: &str,
) -> Option<Appended> {
    match insert_one(db, caller, append, bases).await {
        Ok(AppendOutcome::Stored(appended)) => Some(appended),
        _ => None,
    }
}

/// Stores one append in the caller's transaction, to a conversation that nothing else can see yet.
pub(crate) async fn append_in_transaction(
    db: &mut PgConnection,
    caller: Caller,
    append: &Append,
    bases: &str,
) -> Result<(), StoreError> {
    match insert_one(db, caller, append, bases).await? {
        AppendOutcome::Stored(_) => Ok(()),
        AppendOutcome::Refused | AppendOutcome::LockBusy => {
            Err(StoreError::NotFound(Entity::Conversation))
        }
    }
}

/// Finds out why nothing was stored: the append is a repetition, the conversation does not exist or
/// has moved on, or it keeps no tool messages.
async fn explain_refusal(
    db: &mut PooledConnection,
    caller: Caller,
    append: &Append,
    bases: &str,
) -> Result<Appended, StoreError> {
    if let Some(done) = find_earlier_append(db, caller, append).await? {
        return Ok(done);
    }
    let row = sqlx::query!(
        r#"select last_message_id, coalesce(policy ->> 'store_tool_messages',
                  $3::text::jsonb -> coalesce(policy ->> 'profile', '') ->> 'store_tool_messages')
                  is distinct from 'false' as "keeps_tools!"
           from ai_conversation where tenant_id = $1 and conversation_id = $2"#,
        caller.tenant().0,
        append.conversation.0,
        bases,
    )
    .fetch_optional(&mut **db)
    .await?;
    let row = row.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let actual = MessageId(row.last_message_id);
    match append.expected_last {
        Some(expected) if expected != actual => Err(StoreError::NotTheNewest { expected, actual }),
        // The policy may have changed between the two statements. If no newest message was
        // expected, nothing else can have refused the append.
        expected if append.tools && (expected.is_none() || !row.keeps_tools) => {
            Err(StoreError::ToolsNotKept)
        }
        // Another append was committed between the two statements; the expectation holds only now.
        Some(expected) => Err(StoreError::NotTheNewest { expected, actual }),
        None => Err(StoreError::NotFound(Entity::Conversation)),
    }
}

/// Finds the result of an earlier append with this `request_id`.
pub(super) async fn find_earlier_append(
    db: &mut PooledConnection,
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
    .fetch_all(&mut **db)
    .await?;
    let Some(first) = rows.first() else {
        let request = append.request();
        let earlier = idempotency::find_request(db, caller, append.conversation, &request).await?;
        return Ok(match earlier {
            EarlierRequest::Done(_) => Some(Appended {
                messages: Vec::new(),
                replayed: true,
            }),
            EarlierRequest::None => None,
        });
    };
    let is_same = first.request_digest.as_deref() == Some(append.digest.as_slice());
    #[cfg(feature = "sabotage")]
    let is_same = is_same || crate::sabotage::breaks(crate::sabotage::Sabotage::AnyBody);
    if !is_same {
        return Err(StoreError::RequestIdReused);
    }
    let messages = rows
        .iter()
        .map(|row| AppendedMessage {
            id: MessageId(row.message_id),
            turn: row.turn,
            estimate: tokens(row.token_estimate),
        })
        .collect();
    Ok(Some(Appended {
        messages,
        replayed: true,
    }))
}
