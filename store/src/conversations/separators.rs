//! Separators: a user inserts one to make contexts start after the newest message.

use anneal_core::{
    caller::{Caller, ConversationId},
    digest,
    limits::TOOL_PAIR_WINDOW,
    message::{MessageId, ToolMark},
    tool_pairs, trigger,
};

use super::lock::lock_conversation;
use crate::{
    Store,
    connection::BoundedConnection,
    error::{Entity, StoreError},
    failpoint,
    idempotency::{self, EarlierRequest, IdempotentRequest},
    policy_defaults::PolicyDefaults,
    queue::enqueue_jobs,
    rows::Micros,
    triggers::tail_stats,
};

/// A separator: contexts start after this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separator {
    /// The message after which contexts start.
    pub after: MessageId,
    /// Time of creation; None if the separator has been deleted since.
    pub created: Option<Micros>,
}

/// Whether a separator may part a tool call of the newest turn from its result, which has not come
/// yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenToolCalls {
    /// It may not: the separator is refused.
    Refuse,
    /// It may: contexts leave the result out.
    Part,
}

impl Store {
    /// Inserts a separator after the newest message. If there is one already, it stays as it is.
    /// Fails if the newest message is not `expected_last`; None: any message.
    pub async fn insert_separator(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
        expected_last: Option<MessageId>,
        open_calls: OpenToolCalls,
    ) -> Result<Separator, StoreError> {
        let request = IdempotentRequest {
            method: "insert_separator",
            id: request_id,
            digest: digest::of_fields([]),
        };
        let mut db = self.writes.checkout(caller).await?;
        let position = (expected_last, open_calls);
        let inserted = insert_once(&mut db, caller, id, &request, position).await;
        db.settle(inserted).await
    }

    /// Deletes the separator after the message `after`. Returns the message after which contexts
    /// start now. The tail may have become longer, so this enqueues the jobs that are due.
    pub async fn delete_separator(
        &self,
        caller: Caller,
        id: ConversationId,
        request_id: Option<&str>,
        after: MessageId,
    ) -> Result<MessageId, StoreError> {
        let digest = digest::of_fields([after.0.to_be_bytes().as_slice()]);
        let request = IdempotentRequest {
            method: "delete_separator",
            id: request_id,
            digest,
        };
        let mut db = self.writes.checkout(caller).await?;
        let boundary = delete_once(
            &mut db,
            caller,
            id,
            &request,
            after,
            &self.policy_defaults.get(),
        )
        .await;
        db.settle(boundary).await
    }
}

async fn insert_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    request: &IdempotentRequest<'_>,
    (expected_last, open_calls): (Option<MessageId>, OpenToolCalls),
) -> Result<Separator, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, id).await?;
    failpoint!("separator.locked");
    let after = match idempotency::find_request(&mut tx, caller, id, request).await? {
        EarlierRequest::Done(answer) => answer.unwrap_or(0),
        EarlierRequest::None => {
            let after = newest_message(&mut tx, caller, id, expected_last).await?;
            if open_calls == OpenToolCalls::Refuse {
                check_open_calls(&mut tx, caller, id).await?;
            }
            put_separator(&mut tx, caller, id, after).await?;
            failpoint!("separator.put");
            idempotency::put_request(&mut tx, caller, id, request, Some(after)).await?;
            after
        }
    };
    let found =
        select_separators(&mut tx, caller, id, MessageId(after - 1), MessageId(after)).await?;
    tx.commit().await?;
    failpoint!("separator.committed");
    Ok(found.into_iter().next().unwrap_or(Separator {
        after: MessageId(after),
        created: None,
    }))
}

async fn delete_once(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    request: &IdempotentRequest<'_>,
    after: MessageId,
    policy_defaults: &PolicyDefaults,
) -> Result<MessageId, StoreError> {
    let mut tx = db.begin().await?;
    lock_conversation(&mut tx, caller, id).await?;
    if let EarlierRequest::None = idempotency::find_request(&mut tx, caller, id, request).await? {
        let deleted = sqlx::query!(
            "delete from ai_separator where tenant_id = $1 and conversation_id = $2 and after_message_id = $3",
            caller.tenant().0,
            id.0,
            after.0,
        )
        .execute(&mut *tx)
        .await?;
        if deleted.rows_affected() == 0 {
            return Err(StoreError::NotFound(Entity::Separator));
        }
        // The tail becomes longer without a new message.
        // - `stalled_message_id` was the newest message when compaction last made no progress. 0
        //   lets compaction try again.
        // - `quiet_message_id` is one of the bounds below which no trigger is reached. Null clears
        //   the bounds, which were computed for the shorter tail.
        sqlx::query!(
            "update ai_conversation set stalled_message_id = 0, quiet_message_id = null
             where tenant_id = $1 and conversation_id = $2",
            caller.tenant().0,
            id.0,
        )
        .execute(&mut *tx)
        .await?;
        failpoint!("separator.deleted");
        let state = tail_stats::read_tail_state(&mut tx, caller, id, policy_defaults).await?;
        let due = trigger::due_jobs(&state);
        let traceparent = anneal_trace::current_traceparent();
        enqueue_jobs(&mut tx, caller, id, &due, traceparent.as_deref()).await?;
        idempotency::put_request(&mut tx, caller, id, request, None).await?;
    }
    let boundary = tail_stats::read_boundary(&mut tx, caller, id)
        .await?
        .after();
    tx.commit().await?;
    failpoint!("separator.joined");
    Ok(boundary)
}

/// Reads the newest message. Fails if it is not `expected_last`; None: any message.
async fn newest_message(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    expected_last: Option<MessageId>,
) -> Result<i64, StoreError> {
    let newest = sqlx::query_scalar!(
        "select last_message_id from ai_conversation where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .fetch_one(db)
    .await?;
    if let Some(expected) = expected_last.filter(|expected| expected.0 != newest) {
        return Err(StoreError::NotTheNewest {
            expected,
            actual: MessageId(newest),
        });
    }
    Ok(newest)
}

/// Fails if a call of the newest turn has no result yet. A call of an earlier turn gets none: the
/// contexts after it hold a result that says so.
async fn check_open_calls(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<(), StoreError> {
    let rows = sqlx::query_file!(
        "sql/newest_turn_outlines.sql",
        caller.tenant().0,
        id.0,
        TOOL_PAIR_WINDOW,
    )
    .fetch_all(db)
    .await?;
    let marks = rows.into_iter().map(|row| {
        let outline: Vec<ToolMark> = serde_json::from_str(&row.outline)
            .map_err(|_| StoreError::Unreadable("tool outline"))?;
        Ok((MessageId(row.message_id), outline))
    });
    let marks: Vec<_> = marks.collect::<Result<_, StoreError>>()?;
    if tool_pairs::has_open_call(&marks) {
        return Err(StoreError::ToolCallOpen);
    }
    Ok(())
}

async fn put_separator(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    after: i64,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into ai_separator (tenant_id, conversation_id, after_message_id) values ($1, $2, $3)
         on conflict (conversation_id, after_message_id) do nothing",
        caller.tenant().0,
        id.0,
        after,
    )
    .execute(&mut *db)
    .await?;
    // The tail is empty now.
    // - Null clears the bounds below which no trigger is reached: they were computed for the old
    //   tail.
    // - A compaction of the old tail may have been put off beyond the newest message. The new tail
    //   does not wait for that.
    sqlx::query!(
        "update ai_conversation
         set quiet_message_id = null, stalled_message_id = least(stalled_message_id, last_message_id)
         where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Reads the separators whose message is after `from` and not after `to`, in order. At most 501:
/// the largest page of messages, and one separator before its first message.
pub(crate) async fn select_separators(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    from: MessageId,
    to: MessageId,
) -> Result<Vec<Separator>, StoreError> {
    let rows = sqlx::query!(
        r#"select after_message_id, (extract(epoch from created_ts) * 1000000)::bigint as "created_us!"
           from ai_separator
           where tenant_id = $1 and conversation_id = $2 and after_message_id > $3 and after_message_id <= $4
           order by after_message_id limit 501"#,
        caller.tenant().0,
        id.0,
        from.0,
        to.0,
    )
    .fetch_all(db)
    .await?;
    let separators = rows.into_iter().map(|row| Separator {
        after: MessageId(row.after_message_id),
        created: Some(Micros(row.created_us)),
    });
    Ok(separators.collect())
}
