//! Stored checkpoints, listed or found by request id.

use anneal_core::{
    caller::{Caller, ConversationId},
    cut::Trigger,
    limits::PAGE_CONTENT_BYTES,
    message::MessageId,
    tokens::Tokens,
};

use crate::{
    Store,
    connection::BoundedConnection,
    error::StoreError,
    rows::{self, Micros, tokens},
    summary_spec::{ModelSpend, SummaryKind, kind_from_code},
};

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first message that the checkpoint covers, through its own summary and earlier ones.
    pub first: MessageId,
    /// The checkpoint's boundary: the last message that it covers.
    pub last: MessageId,
    /// The text of the summary.
    pub summary: String,
    /// Tokens of the summary.
    pub token_usage: Tokens,
    /// How the summary was made.
    pub kind: SummaryKind,
    /// Name of the model or summarizer.
    pub model: String,
    /// Version of the model's prompt, or of the built-in summarizer's rules.
    pub prompt_version: i32,
    /// The first message that the summarizer read itself. Earlier ones it knew only by the previous
    /// summary.
    pub source_first: MessageId,
    /// Digest of the messages that the summarizer read itself.
    pub source_digest: Vec<u8>,
    /// Tokens of the previous summary and the tail before the checkpoint.
    pub tokens_before: Tokens,
    /// Tokens of this summary and the tail after the checkpoint.
    pub tokens_after: Tokens,
    /// How many summaries were built on each other, this one included.
    pub generation: i32,
    /// Why the checkpoint was made. None: it was imported.
    pub trigger: Option<Trigger>,
    /// The subject that the summary preserves because a manual compaction asked for it; empty:
    /// none.
    pub focus: String,
    /// The model calls and tokens that the summary took.
    pub spent: ModelSpend,
    /// How long writing the summary took, in milliseconds.
    pub duration_ms: i64,
    /// When the checkpoint was committed.
    pub created: Micros,
    /// Whether contexts may use the checkpoint: the last separator is the one that was the last
    /// when the checkpoint was made.
    pub valid: bool,
    /// The change because of which it no longer holds. None: it holds.
    pub void: Option<VoidSince>,
}

/// Since when a checkpoint no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoidSince {
    /// The number of the change among the changes of the conversation.
    pub change: i64,
    /// When it was made.
    pub time: Micros,
}

/// A position in the list of a conversation's checkpoints. The list is in descending order of
/// `last`, of `first` among checkpoints with the same `last`, and of `void_change` among those that
/// no longer hold and were made of the same messages. One that holds comes before these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPosition {
    /// The last message that a checkpoint at this position covers.
    pub last: MessageId,
    /// The first message that a checkpoint at this position covers.
    pub first: MessageId,
    /// The change because of which a checkpoint at this position no longer holds. None: it holds.
    pub void_change: Option<i64>,
}

/// Which checkpoints are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointSelection {
    /// Those that hold.
    Holding,
    /// Those that no longer hold, too.
    All,
}

/// A page of checkpoints, newest boundary first.
#[derive(Debug, Clone)]
pub struct CheckpointPage {
    /// The checkpoints. Their summaries have together at most 4 MiB, unless the first one alone has
    /// more.
    pub checkpoints: Vec<Checkpoint>,
    /// Whether more checkpoints follow.
    pub more: bool,
}

struct CheckpointRow {
    first_message_id: i64,
    last_message_id: i64,
    summary: String,
    token_usage: i64,
    kind: i16,
    model: String,
    prompt_version: i32,
    source_first_message_id: i64,
    source_digest: Vec<u8>,
    tokens_before: i64,
    tokens_after: i64,
    generation: i32,
    trigger_kind: i16,
    focus: String,
    model_calls: i32,
    input_tokens: i64,
    output_tokens: i64,
    duration_ms: i64,
    created_us: i64,
    valid: bool,
    void_change_id: Option<i64>,
    void_us: Option<i64>,
    /// How many checkpoints the page would have without its limit of bytes.
    found: i64,
}

impl From<CheckpointRow> for Checkpoint {
    fn from(row: CheckpointRow) -> Self {
        Self {
            first: MessageId(row.first_message_id),
            last: MessageId(row.last_message_id),
            summary: row.summary,
            token_usage: tokens(row.token_usage),
            kind: kind_from_code(row.kind),
            model: row.model,
            prompt_version: row.prompt_version,
            source_first: MessageId(row.source_first_message_id),
            source_digest: row.source_digest,
            tokens_before: tokens(row.tokens_before),
            tokens_after: tokens(row.tokens_after),
            generation: row.generation,
            trigger: rows::trigger(row.trigger_kind),
            focus: row.focus,
            spent: ModelSpend {
                calls: row.model_calls,
                input: tokens(row.input_tokens),
                output: tokens(row.output_tokens),
            },
            duration_ms: row.duration_ms,
            created: Micros(row.created_us),
            valid: row.valid,
            void: row
                .void_change_id
                .zip(row.void_us)
                .map(|(change, void_us)| VoidSince {
                    change,
                    time: Micros(void_us),
                }),
        }
    }
}

impl Store {
    /// Lists up to `limit` checkpoints of a conversation, newest boundary first. The page starts
    /// after the position `start`; None: with the newest checkpoint.
    pub async fn list_checkpoints(
        &self,
        caller: Caller,
        id: ConversationId,
        (selection, start): (CheckpointSelection, Option<CheckpointPosition>),
        limit: i64,
    ) -> Result<CheckpointPage, StoreError> {
        // Fails if there is no such conversation.
        self.get_conversation(caller, id).await?;
        let mut db = self.reads.checkout(caller).await?;
        let list = CheckpointList {
            selection,
            start,
            request_id: None,
            limit: limit + 1,
        };
        let rows = select_rows(&mut db, caller, id, list).await?;
        db.release().await?;
        let found = rows.first().map_or(0, |row| row.found);
        let checkpoints: Vec<_> = rows
            .into_iter()
            .take(limit.max(0) as usize)
            .map(Checkpoint::from)
            .collect();
        Ok(CheckpointPage {
            more: found > checkpoints.len() as i64,
            checkpoints,
        })
    }

    /// Finds the newest checkpoint with this boundary, also one that no longer holds. None: there
    /// is none, or no such conversation.
    pub async fn find_checkpoint(
        &self,
        caller: Caller,
        id: ConversationId,
        last: MessageId,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let newest_only = CheckpointList {
            selection: CheckpointSelection::All,
            start: Some(CheckpointPosition {
                last: MessageId(last.0.saturating_add(1)),
                first: MessageId::NONE,
                void_change: None,
            }),
            request_id: None,
            limit: 1,
        };
        let mut rows = select_rows(&mut db, caller, id, newest_only).await?;
        db.release().await?;
        let newest = rows.pop().map(Checkpoint::from);
        Ok(newest.filter(|newest| newest.last == last))
    }
}

/// Reads up to `limit` checkpoints that hold after the position `start`, newest boundary first;
/// None: from the newest one on. `request_id`: only those that this request has made.
pub(super) async fn select_checkpoints(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    start: Option<CheckpointPosition>,
    request_id: Option<&str>,
    limit: i64,
) -> Result<Vec<Checkpoint>, StoreError> {
    let list = CheckpointList {
        selection: CheckpointSelection::Holding,
        start,
        request_id,
        limit,
    };
    let rows = select_rows(db, caller, id, list).await?;
    Ok(rows.into_iter().map(Checkpoint::from).collect())
}

/// The arguments of `sql/list_checkpoints.sql`.
#[derive(Clone, Copy)]
struct CheckpointList<'a> {
    selection: CheckpointSelection,
    start: Option<CheckpointPosition>,
    request_id: Option<&'a str>,
    limit: i64,
}

async fn select_rows(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    list: CheckpointList<'_>,
) -> Result<Vec<CheckpointRow>, StoreError> {
    let start = list.start;
    let rows = sqlx::query_file_as!(
        CheckpointRow,
        "sql/list_checkpoints.sql",
        caller.tenant().0,
        id.0,
        start.map(|start| start.last.0),
        start.map(|start| start.first.0),
        list.request_id,
        list.limit,
        PAGE_CONTENT_BYTES,
        list.selection == CheckpointSelection::All,
        start.and_then(|start| start.void_change),
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}
