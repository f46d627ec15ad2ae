//! The row locks of a conversation, and the order in which transactions take locks.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
};

use crate::{
    connection::BoundedConnection,
    error::{Entity, StoreError},
    policy_defaults::PolicyDefaults,
    rows::Micros,
};

/// Takes the conversation's row lock and returns its revision.
///
/// Lock order: a transaction that locks rows of more than one of these kinds locks an erasure
/// first, then the conversation, then messages, versions of messages, checkpoints, jobs, and the
/// lease of a turn. So such transactions do not deadlock. Two kinds may be written at any time:
/// checkpoints that no longer hold, which are locked under this lock only, and the receipt of an
/// erasure, which is a new row. A response is locked alone or after its conversation. The lock does
/// not block inserts of rows that only refer to the conversation, which lock it `for key share`.
pub(crate) async fn lock_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<i64, StoreError> {
    sqlx::query_scalar!(
        "select revision from ai_conversation where tenant_id = $1 and conversation_id = $2 for no key update",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))
}

/// The columns of a locked conversation on which an append depends.
pub(crate) struct AppendHead {
    /// The newest message; 0: none.
    pub(crate) last_message_id: MessageId,
    /// Whether the conversation keeps tool messages.
    pub(crate) keeps_tools: bool,
}

/// Takes the conversation's row lock and returns the columns on which an append depends.
/// `sql/append.sql` has the same rule for tool messages.
pub(crate) async fn lock_for_append(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    policy_defaults: &PolicyDefaults,
) -> Result<AppendHead, StoreError> {
    let row = sqlx::query!(
        r#"select last_message_id, not coalesce(policy ->> 'store_tool_messages' = 'false',
                  coalesce(policy ->> 'profile', '') = any ($3::text[])) as "keeps_tools!"
           from ai_conversation where tenant_id = $1 and conversation_id = $2 for no key update"#,
        caller.tenant().0,
        id.0,
        policy_defaults.profiles_without_tool_messages() as &[&str],
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    Ok(AppendHead {
        last_message_id: MessageId(row.last_message_id),
        keeps_tools: row.keeps_tools,
    })
}

/// The columns of a locked conversation on which a change of its messages depends.
pub(crate) struct ChangeHead {
    /// The conversation's revision.
    pub(crate) revision: i64,
    /// The newest message; 0: none.
    pub(crate) last: MessageId,
    /// Every message up to this one is counted.
    pub(crate) counted: MessageId,
    /// The id of the newest summary, checkpoint or change of messages.
    pub(crate) change_id: i64,
    /// Whether a caller has given the title. Otherwise it is made from messages.
    pub(crate) title_given: bool,
    /// When the conversation was created. It tells it from an earlier one with the same id.
    pub(crate) created: Micros,
}

/// Takes the conversation's row lock and returns the columns on which a change of its messages
/// depends.
pub(crate) async fn lock_for_change(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<ChangeHead, StoreError> {
    let row = sqlx::query!(
        r#"select revision, last_message_id, counted_message_id, change_id, title_given,
               (extract(epoch from created_ts) * 1000000)::bigint as "created_us!"
           from ai_conversation where tenant_id = $1 and conversation_id = $2 for no key update"#,
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?
    .ok_or(StoreError::NotFound(Entity::Conversation))?;
    Ok(ChangeHead {
        revision: row.revision,
        last: MessageId(row.last_message_id),
        counted: MessageId(row.counted_message_id),
        change_id: row.change_id,
        title_given: row.title_given,
        created: Micros(row.created_us),
    })
}

/// Keeps the conversation from being deleted until the end of the transaction, and returns the id
/// of its newest message. Only a deletion waits for this lock, not appends and changes.
pub(crate) async fn keep_conversation(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<MessageId, StoreError> {
    let last = sqlx::query_scalar!(
        "select last_message_id from ai_conversation where tenant_id = $1 and conversation_id = $2 for key share",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(db)
    .await?;
    last.map(MessageId)
        .ok_or(StoreError::NotFound(Entity::Conversation))
}

/// Takes the lock under which a conversation can be deleted. It also blocks inserts of rows that
/// refer to the conversation: their statements lock it at least `for key share`. The rest of the
/// transaction is not bound: the trigger deletes rows of a conversation that is no longer there, and
/// policies would hide them from a bound caller.
pub(crate) async fn lock_for_deletion(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<(), StoreError> {
    let row = sqlx::query_scalar!(
        "select conversation_id from ai_conversation where tenant_id = $1 and conversation_id = $2 for update",
        caller.tenant().0,
        id.0,
    )
    .fetch_optional(&mut *db)
    .await?;
    row.ok_or(StoreError::NotFound(Entity::Conversation))?;
    lift_binding(db, caller).await
}

/// Lifts the binding of a bound caller for the rest of the transaction. The transaction has locked a
/// conversation that the caller sees, and names only rows of that one and of one that it creates.
pub(crate) async fn lift_binding(
    db: &mut BoundedConnection,
    caller: Caller,
) -> Result<(), StoreError> {
    if caller.bound().is_some() {
        sqlx::query("set local anneal.bound = ''")
            .execute(db)
            .await?;
    }
    Ok(())
}
