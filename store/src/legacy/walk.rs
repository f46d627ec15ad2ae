//! The way through the older rows, conversation by conversation: each is made and appended to, by the statements that callers'
//! conversations and messages are stored by, then given its own times.

use std::collections::HashMap;

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    limits::{MESSAGES_PER_APPEND, TITLE_BYTES},
    message::{Message, Part, Role},
};
use sqlx::{FromRow, PgConnection};

use crate::{
    append::{self, Append},
    conversations::{ConversationStatus, NewConversation},
    creation,
    error::{Entity, StoreError},
    rows,
};

/// Rows that the cursor gives at once: keys of about 100 bytes.
const FETCH: &str = "fetch 1000 from legacy_walk";
/// Bytes of content that are in memory at once, unless one message alone has more.
const BATCH_BYTES: i64 = 4 * 1024 * 1024;
/// The older tables knew no tenants.
const OWNER: Caller = Caller::of(TenantId::DEFAULT);

/// A conversation, or one row of it that is kept.
#[derive(Debug, FromRow)]
struct Step {
    conversation: i64,
    id: Option<i64>,
    fate: Option<String>,
    role: Option<String>,
    created_us: Option<i64>,
    bytes: Option<i64>,
}

/// A message that waits to be stored.
#[derive(Debug)]
struct Waiting {
    id: i64,
    role: Role,
    created_us: i64,
}

/// The conversation that is being moved.
#[derive(Debug)]
struct Open {
    legacy_id: i64,
    id: ConversationId,
    status: ConversationStatus,
    created_us: i64,
    /// Messages that are stored.
    stored: i64,
    newest_us: Option<i64>,
    waiting: Vec<Waiting>,
    waiting_bytes: i64,
    /// Separators that wait to be stored: after which message, and when they were put.
    marks: Vec<(i64, i64)>,
    /// Separators that are stored.
    marked: i64,
}

/// What is stored in the tables of today, by what the database says of each statement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrived {
    pub(super) conversations: i64,
    pub(super) messages: i64,
    pub(super) separators: i64,
}

/// Moves everything; returns what has arrived, and says how many messages as it goes.
pub(super) async fn walk(db: &mut PgConnection, watch: &(dyn Fn(i64) + Send + Sync)) -> Result<Arrived, StoreError> {
    sqlx::query(include_str!("../../sql/legacy_walk.sql")).execute(&mut *db).await?;
    let mut arrived = Arrived::default();
    let mut open: Option<Open> = None;
    loop {
        let steps: Vec<Step> = sqlx::query_as(FETCH).fetch_all(&mut *db).await?;
        if steps.is_empty() {
            break;
        }
        for step in steps {
            if open.as_ref().is_none_or(|open| open.legacy_id != step.conversation) {
                if let Some(done) = open.take() {
                    close(db, done, &mut arrived).await?;
                    watch(arrived.messages);
                }
                open = Some(begin(db, step.conversation).await?);
            }
            if let Some(open) = &mut open {
                take(db, open, &step).await?;
                watch(arrived.messages + open.stored);
            }
        }
    }
    if let Some(done) = open {
        close(db, done, &mut arrived).await?;
    }
    sqlx::query("close legacy_walk").execute(db).await?;
    Ok(arrived)
}

#[derive(Debug, FromRow)]
struct ConversationRow {
    uid: String,
    creator: String,
    title: String,
    pinned: bool,
    status: String,
    created_us: i64,
    labels: String,
}

/// Makes a conversation. Its id is derived from the old ones, so that every run gives it the same.
async fn begin(db: &mut PgConnection, legacy_id: i64) -> Result<Open, StoreError> {
    let row: ConversationRow = sqlx::query_as(
        "select uid, creator, title, pinned, status, created_us, coalesce(labels, ids)::text as labels
         from legacy_conversation where id = $1",
    )
    .bind(legacy_id)
    .fetch_one(&mut *db)
    .await?;
    let id = creation::derived_id(OWNER, [b"legacy", format!("{legacy_id}:{}", row.uid).as_bytes()]);
    let new = NewConversation {
        user_id: row.creator,
        title: fitting(row.title),
        pinned: row.pinned,
        metadata: rows::labels(Some(&row.labels))?,
        ..NewConversation::default()
    };
    creation::insert(db, OWNER, id, "", None, &new.counted()).await?;
    let status = if row.status == "active" { ConversationStatus::Active } else { ConversationStatus::Archived };
    Ok(Open {
        legacy_id,
        id: ConversationId(id),
        status,
        created_us: row.created_us,
        stored: 0,
        newest_us: None,
        waiting: Vec::new(),
        waiting_bytes: 0,
        marks: Vec::new(),
        marked: 0,
    })
}

/// The title within its limit; one that is cut says so.
fn fitting(title: String) -> String {
    const CUT: char = '…';
    if title.len() <= TITLE_BYTES {
        return title;
    }
    let mut cut = title[..title.floor_char_boundary(TITLE_BYTES - CUT.len_utf8())].to_owned();
    cut.push(CUT);
    cut
}

/// Takes one row on; what waits is stored when it is as much as an append may hold.
async fn take(db: &mut PgConnection, open: &mut Open, step: &Step) -> Result<(), StoreError> {
    // A conversation of which no row is kept.
    let (Some(id), Some(created_us)) = (step.id, step.created_us) else { return Ok(()) };
    if step.fate.as_deref() == Some("separator") {
        open.marks.push((open.stored + open.waiting.len() as i64, created_us));
        if open.marks.len() >= MESSAGES_PER_APPEND {
            put_marks(db, open).await?;
        }
        return Ok(());
    }
    let bytes = step.bytes.unwrap_or(0);
    if open.waiting.len() >= MESSAGES_PER_APPEND || open.waiting_bytes + bytes > BATCH_BYTES {
        append_waiting(db, open).await?;
    }
    open.waiting.push(Waiting { id, role: role(step.role.as_deref())?, created_us });
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
    labels: String,
}

/// Appends what waits, as a caller's append would, and gives the messages their own times.
async fn append_waiting(db: &mut PgConnection, open: &mut Open) -> Result<(), StoreError> {
    let waiting = std::mem::take(&mut open.waiting);
    open.waiting_bytes = 0;
    let Some(newest) = waiting.last() else { return Ok(()) };
    open.newest_us = Some(newest.created_us);
    let ids: Vec<i64> = waiting.iter().map(|message| message.id).collect();
    let said: Vec<ContentRow> = sqlx::query_as(
        "select id, content, coalesce(labels, ids)::text as labels from legacy_content where id = any($1)",
    )
    .bind(&ids)
    .fetch_all(&mut *db)
    .await?;
    let mut said: HashMap<i64, ContentRow> = said.into_iter().map(|row| (row.id, row)).collect();
    let messages = waiting.iter().map(|message| {
        let row = said.remove(&message.id).ok_or(StoreError::NotFound(Entity::Message))?;
        let metadata = rows::labels(Some(&row.labels))?;
        Ok(Message { role: message.role, parts: vec![Part::Text { text: row.content }], metadata })
    });
    let messages = messages.collect::<Result<Vec<_>, StoreError>>()?;
    let append = Append::new(open.id, None, None, &messages);
    append::put(db, OWNER, &append, "{}").await?;
    let times: Vec<i64> = waiting.iter().map(|message| message.created_us).collect();
    sqlx::query_file!("sql/legacy_times.sql", OWNER.tenant().0, open.id.0, open.stored, &times)
        .execute(&mut *db)
        .await?;
    open.stored += messages.len() as i64;
    Ok(())
}

/// Stores the separators that wait. Several at one place are one mark, the first of them.
async fn put_marks(db: &mut PgConnection, open: &mut Open) -> Result<(), StoreError> {
    let (places, times): (Vec<i64>, Vec<i64>) = std::mem::take(&mut open.marks).into_iter().unzip();
    let put = sqlx::query!(
        "insert into ai_separator (tenant_id, conversation_id, after_message_id, created_ts)
         select $1, $2, after_message_id, 'epoch'::timestamptz + created_us * interval '1 microsecond'
         from unnest($3::bigint[], $4::bigint[]) with ordinality as mark (after_message_id, created_us, place)
         order by place
         on conflict (conversation_id, after_message_id) do nothing",
        OWNER.tenant().0,
        open.id.0,
        &places,
        &times,
    )
    .execute(db)
    .await?;
    open.marked += put.rows_affected() as i64;
    Ok(())
}

/// Stores what waits and settles the conversation.
async fn close(db: &mut PgConnection, mut open: Open, arrived: &mut Arrived) -> Result<(), StoreError> {
    append_waiting(db, &mut open).await?;
    put_marks(db, &mut open).await?;
    let last_activity = open.newest_us.unwrap_or(open.created_us);
    let settled = sqlx::query_file!(
        "sql/legacy_settle.sql",
        OWNER.tenant().0,
        open.id.0,
        open.status.code(),
        open.created_us,
        last_activity,
    )
    .execute(db)
    .await?;
    arrived.conversations += settled.rows_affected() as i64;
    arrived.messages += open.stored;
    arrived.separators += open.marked;
    Ok(())
}
