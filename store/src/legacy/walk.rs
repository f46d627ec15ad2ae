//! Moves the rows of the older tables, conversation by conversation. Creates each conversation and
//! appends its messages with the statements that also serve clients, and then sets the original
//! times.

use std::{collections::HashMap, sync::LazyLock};

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    limits::{MESSAGES_PER_APPEND, TITLE_BYTES},
    message::{Message, Part, Role},
    policy::SessionSettings,
};
use sqlx::FromRow;

use crate::{
    connection::BoundedConnection,
    conversations::{
        ConversationStatus, NewConversation,
        insert::{derived_id, insert_conversation},
    },
    error::{Entity, StoreError},
    messages::append::{Append, append_in_transaction},
    policy_defaults::PolicyDefaults,
    rows,
};

/// Fetches the next rows of `sql/legacy_walk.sql`. A row has no content and takes about 100 bytes.
const FETCH: &str = "fetch 1000 from legacy_walk";
/// Most bytes of content in one append, unless one message alone has more.
const BATCH_BYTES: i64 = 4 * 1024 * 1024;
/// Appends use settings only for tool messages and for trigger bounds. There are none of either here.
static POLICY_DEFAULTS: LazyLock<PolicyDefaults> =
    LazyLock::new(|| PolicyDefaults::new(SessionSettings::default()));
/// The older tables have no tenants, so all rows go to the default tenant.
const DEFAULT_CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// A message or separator that is moved, and its conversation. For a conversation without such rows
/// there is one row in which all other columns are null.
#[derive(Debug, FromRow)]
struct LegacyRow {
    conversation: i64,
    id: Option<i64>,
    /// The kind of row that is stored: `message` or `separator`.
    fate: Option<String>,
    role: Option<String>,
    created_us: Option<i64>,
    bytes: Option<i64>,
}

/// A message to be stored with the next append.
#[derive(Debug)]
struct PendingMessage {
    legacy_id: i64,
    role: Role,
    created_us: i64,
}

/// The conversation that is being moved.
#[derive(Debug)]
struct OpenConversation {
    legacy_id: i64,
    id: ConversationId,
    status: ConversationStatus,
    created_us: i64,
    /// Messages stored so far.
    stored_messages: i64,
    /// The original time of the newest stored message, in microseconds.
    newest_us: Option<i64>,
    /// Messages to be stored with the next append.
    waiting: Vec<PendingMessage>,
    waiting_bytes: i64,
    /// Separators to be stored: the id of the message before each, and the separator's time in
    /// microseconds.
    separators: Vec<(i64, i64)>,
    /// Separators stored so far.
    stored_separators: i64,
}

/// How many rows were stored in the present tables.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MovedRows {
    pub(super) conversations: i64,
    pub(super) messages: i64,
    pub(super) separators: i64,
}

/// Moves all rows and returns how many. Calls `on_progress` with the number of messages that have
/// been moved so far.
pub(super) async fn move_conversations(
    db: &mut BoundedConnection,
    on_progress: &(dyn Fn(i64) + Send + Sync),
) -> Result<MovedRows, StoreError> {
    sqlx::query(include_str!("../../sql/legacy_walk.sql"))
        .execute(&mut *db)
        .await?;
    let mut moved = MovedRows::default();
    let mut open: Option<OpenConversation> = None;
    loop {
        let fetched: Vec<LegacyRow> = sqlx::query_as(FETCH).fetch_all(&mut *db).await?;
        if fetched.is_empty() {
            break;
        }
        for row in fetched {
            if open
                .as_ref()
                .is_none_or(|open| open.legacy_id != row.conversation)
            {
                if let Some(done) = open.take() {
                    finish_conversation(db, done, &mut moved).await?;
                    on_progress(moved.messages);
                }
                open = Some(begin_conversation(db, row.conversation).await?);
            }
            if let Some(open) = &mut open {
                add_row(db, open, &row).await?;
                on_progress(moved.messages + open.stored_messages);
            }
        }
    }
    if let Some(done) = open {
        finish_conversation(db, done, &mut moved).await?;
    }
    sqlx::query("close legacy_walk").execute(db).await?;
    Ok(moved)
}

#[derive(Debug, FromRow)]
struct ConversationRow {
    uid: String,
    creator: String,
    title: String,
    pinned: bool,
    status: String,
    created_us: i64,
    /// As JSON; only the old ids if all labels together exceed the limits.
    labels: String,
}

/// Creates a conversation. Its id is derived from the old ids, so that another run of the move
/// gives it the same id.
async fn begin_conversation(
    db: &mut BoundedConnection,
    legacy_id: i64,
) -> Result<OpenConversation, StoreError> {
    let row: ConversationRow = sqlx::query_as(
        "select uid, creator, title, pinned, status, created_us, coalesce(labels, ids)::text as labels
         from legacy_conversation where id = $1",
    )
    .bind(legacy_id)
    .fetch_one(&mut *db)
    .await?;
    let id = derived_id(
        DEFAULT_CALLER,
        [b"legacy", format!("{legacy_id}:{}", row.uid).as_bytes()],
    );
    let new = NewConversation {
        user_id: row.creator,
        title: shortened(row.title),
        pinned: row.pinned,
        metadata: rows::labels(Some(&row.labels))?,
        ..NewConversation::default()
    };
    insert_conversation(db, DEFAULT_CALLER, id, "", None, &new.counted()).await?;
    let status = if row.status == "active" {
        ConversationStatus::Active
    } else {
        ConversationStatus::Archived
    };
    Ok(OpenConversation {
        legacy_id,
        id: ConversationId(id),
        status,
        created_us: row.created_us,
        stored_messages: 0,
        newest_us: None,
        waiting: Vec::new(),
        waiting_bytes: 0,
        separators: Vec::new(),
        stored_separators: 0,
    })
}

/// Shortens a title to its limit if necessary. A shortened title ends in an ellipsis.
fn shortened(title: String) -> String {
    const ELLIPSIS: char = '…';
    if title.len() <= TITLE_BYTES {
        return title;
    }
    let mut cut = title[..title.floor_char_boundary(TITLE_BYTES - ELLIPSIS.len_utf8())].to_owned();
    cut.push(ELLIPSIS);
    cut
}

/// Adds one row to those that wait to be stored. Stores the ones that wait when they are too many.
async fn add_row(
    db: &mut BoundedConnection,
    open: &mut OpenConversation,
    row: &LegacyRow,
) -> Result<(), StoreError> {
    // The conversation has no message and no separator that is moved.
    let (Some(id), Some(created_us)) = (row.id, row.created_us) else {
        return Ok(());
    };
    if row.fate.as_deref() == Some("separator") {
        open.separators
            .push((open.stored_messages + open.waiting.len() as i64, created_us));
        if open.separators.len() >= MESSAGES_PER_APPEND {
            store_separators(db, open).await?;
        }
        return Ok(());
    }
    let bytes = row.bytes.unwrap_or(0);
    if open.waiting.len() >= MESSAGES_PER_APPEND || open.waiting_bytes + bytes > BATCH_BYTES {
        append_waiting(db, open).await?;
    }
    open.waiting.push(PendingMessage {
        legacy_id: id,
        role: role(row.role.as_deref())?,
        created_us,
    });
    open.waiting_bytes += bytes;
    Ok(())
}

fn role(word: Option<&str>) -> Result<Role, StoreError> {
    match word {
        Some("USER") => Ok(Role::User),
        Some("ASSISTANT") => Ok(Role::Assistant),
        Some("SYSTEM") => Ok(Role::System),
        _ => Err(StoreError::Unreadable("role")),
    }
}

#[derive(Debug, FromRow)]
struct ContentRow {
    id: i64,
    content: String,
    /// As JSON; only the old ids if all labels together exceed the limits.
    labels: String,
}

/// Appends the waiting messages as a client's append would, and then sets their original times.
async fn append_waiting(
    db: &mut BoundedConnection,
    open: &mut OpenConversation,
) -> Result<(), StoreError> {
    let waiting = std::mem::take(&mut open.waiting);
    open.waiting_bytes = 0;
    let Some(newest) = waiting.last() else {
        return Ok(());
    };
    open.newest_us = Some(newest.created_us);
    let ids: Vec<i64> = waiting.iter().map(|message| message.legacy_id).collect();
    let contents: Vec<ContentRow> = sqlx::query_as(
        "select id, content, coalesce(labels, ids)::text as labels from legacy_content where id = any($1)",
    )
    .bind(&ids)
    .fetch_all(&mut *db)
    .await?;
    let mut contents: HashMap<i64, ContentRow> =
        contents.into_iter().map(|row| (row.id, row)).collect();
    let messages = waiting.iter().map(|message| {
        let row = contents
            .remove(&message.legacy_id)
            .ok_or(StoreError::NotFound(Entity::Message))?;
        let metadata = rows::labels(Some(&row.labels))?;
        Ok(Message {
            role: message.role,
            parts: vec![Part::Text { text: row.content }],
            metadata,
        })
    });
    let messages = messages.collect::<Result<Vec<_>, StoreError>>()?;
    let append = Append::new(open.id, None, None, &messages, None);
    append_in_transaction(db, DEFAULT_CALLER, &append, &POLICY_DEFAULTS).await?;
    let times: Vec<i64> = waiting.iter().map(|message| message.created_us).collect();
    sqlx::query_file!(
        "sql/legacy_times.sql",
        DEFAULT_CALLER.tenant().0,
        open.id.0,
        open.stored_messages,
        &times
    )
    .execute(&mut *db)
    .await?;
    open.stored_messages += messages.len() as i64;
    Ok(())
}

/// Stores the waiting separators. Of several at one position, only the first is stored.
async fn store_separators(
    db: &mut BoundedConnection,
    open: &mut OpenConversation,
) -> Result<(), StoreError> {
    let (after_ids, times): (Vec<i64>, Vec<i64>) =
        std::mem::take(&mut open.separators).into_iter().unzip();
    let inserted = sqlx::query!(
        "insert into ai_separator (tenant_id, conversation_id, after_message_id, created_ts)
         select $1, $2, after_message_id, 'epoch'::timestamptz + created_us * interval '1 microsecond'
         from unnest($3::bigint[], $4::bigint[]) with ordinality as mark (after_message_id, created_us, place)
         order by place
         on conflict (conversation_id, after_message_id) do nothing",
        DEFAULT_CALLER.tenant().0,
        open.id.0,
        &after_ids,
        &times,
    )
    .execute(db)
    .await?;
    open.stored_separators += inserted.rows_affected() as i64;
    Ok(())
}

/// Stores the rows that still wait, and then sets the conversation's original status and times.
async fn finish_conversation(
    db: &mut BoundedConnection,
    mut open: OpenConversation,
    moved: &mut MovedRows,
) -> Result<(), StoreError> {
    append_waiting(db, &mut open).await?;
    store_separators(db, &mut open).await?;
    let last_activity = open.newest_us.unwrap_or(open.created_us);
    let updated = sqlx::query_file!(
        "sql/legacy_settle.sql",
        DEFAULT_CALLER.tenant().0,
        open.id.0,
        open.status.code(),
        open.created_us,
        last_activity,
    )
    .execute(db)
    .await?;
    moved.conversations += updated.rows_affected() as i64;
    moved.messages += open.stored_messages;
    moved.separators += open.stored_separators;
    Ok(())
}
