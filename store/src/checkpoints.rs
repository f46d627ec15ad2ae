//! Checkpoints, read, and compactions that callers ask for.

use anneal_core::{
    caller::{Caller, ConversationId},
    cut::Trigger,
    job::JobKind,
    limits::PAGE_CONTENT_BYTES,
    message::MessageId,
    tokens::Tokens,
};
use sqlx::{Connection as _, PgConnection};

use crate::{
    Store,
    claims::ManualCompaction,
    conversations::locked,
    error::StoreError,
    jobs::enqueue_manual_checkpoint,
    rows::{Micros, json, tokens},
    summaries::{self, ModelSpend, SummaryKind},
};

/// A stored checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first message that its chain covers.
    pub first: MessageId,
    /// Its boundary.
    pub last: MessageId,
    /// The summary.
    pub summary: String,
    /// Tokens of the summary.
    pub token_usage: Tokens,
    /// How it came to be.
    pub kind: SummaryKind,
    /// The model's or summariser's name.
    pub model: String,
    /// Version of the prompt or rules.
    pub prompt_version: i32,
    /// The first message that its summariser read itself.
    pub source_first: MessageId,
    /// Digest of what was read.
    pub source_digest: Vec<u8>,
    /// Tokens of the previous summary and the tail before.
    pub tokens_before: Tokens,
    /// Tokens of this summary and the tail after.
    pub tokens_after: Tokens,
    /// Summaries fed forward into it, plus one.
    pub generation: i32,
    /// Why it was made; None: it was imported.
    pub trigger: Option<Trigger>,
    /// What a manual compaction asked to keep.
    pub focus: String,
    /// What language models did for it.
    pub spent: ModelSpend,
    /// How long its summariser took.
    pub duration_ms: i64,
    /// When it was committed.
    pub created: Micros,
    /// Whether it holds under the present separators.
    pub valid: bool,
}

/// Checkpoints, newest boundary first.
#[derive(Debug, Clone)]
pub struct CheckpointPage {
    /// The entries; at most 4 MiB of summaries beyond the first.
    pub checkpoints: Vec<Checkpoint>,
    /// Whether more follow.
    pub more: bool,
}

/// What has become of a compaction that a caller asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compaction {
    /// It made this checkpoint.
    Created(Box<Checkpoint>),
    /// Queued or running.
    Pending,
    /// It ended without a checkpoint.
    NoProgress,
    /// It was given up.
    Failed,
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
    found: i64,
}

impl From<CheckpointRow> for Checkpoint {
    fn from(row: CheckpointRow) -> Self {
        Self {
            first: MessageId(row.first_message_id),
            last: MessageId(row.last_message_id),
            summary: row.summary,
            token_usage: tokens(row.token_usage),
            kind: summaries::kind(row.kind),
            model: row.model,
            prompt_version: row.prompt_version,
            source_first: MessageId(row.source_first_message_id),
            source_digest: row.source_digest,
            tokens_before: tokens(row.tokens_before),
            tokens_after: tokens(row.tokens_after),
            generation: row.generation,
            trigger: trigger(row.trigger_kind),
            focus: row.focus,
            spent: ModelSpend {
                calls: row.model_calls,
                input: tokens(row.input_tokens),
                output: tokens(row.output_tokens),
            },
            duration_ms: row.duration_ms,
            created: Micros(row.created_us),
            valid: row.valid,
        }
    }
}

/// The trigger stored as `code`; None: another system made the checkpoint.
pub(crate) const fn trigger(code: i16) -> Option<Trigger> {
    match code {
        1 => Some(Trigger::Tokens),
        2 => Some(Trigger::Messages),
        4 => None,
        _ => Some(Trigger::Manual),
    }
}

impl Store {
    /// Checkpoints of a conversation, newest boundary first, from below the place `before` (last, first) on.
    pub async fn list_checkpoints(
        &self,
        caller: Caller,
        id: ConversationId,
        before: Option<(MessageId, MessageId)>,
        limit: i64,
    ) -> Result<CheckpointPage, StoreError> {
        self.conversation(caller, id).await?;
        let mut db = self.reads.checkout(caller).await?;
        let rows = rows(&mut db, caller, id, before, None, limit + 1).await?;
        db.release().await?;
        let found = rows.first().map_or(0, |row| row.found);
        let checkpoints: Vec<_> = rows.into_iter().take(limit.max(0) as usize).map(Checkpoint::from).collect();
        Ok(CheckpointPage { more: found > checkpoints.len() as i64, checkpoints })
    }

    /// Queues a compaction, unless this request has its checkpoint already. Returns that checkpoint, or the newest valid
    /// boundary before the compaction.
    pub async fn request_compaction(
        &self,
        caller: Caller,
        id: ConversationId,
        manual: &ManualCompaction,
    ) -> Result<Result<Checkpoint, MessageId>, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let outcome = request(&mut db, caller, id, manual).await;
        db.settle(outcome).await
    }

    /// Queues a compaction that nobody waits for: not beside one that somebody asked for, not once it is made, and not after
    /// one that made no progress with the same messages. Returns whether it was queued.
    pub async fn compact_under_pressure(
        &self,
        caller: Caller,
        id: ConversationId,
        manual: &ManualCompaction,
    ) -> Result<bool, StoreError> {
        let mut db = self.writes.checkout(caller).await?;
        let queued = under_pressure(&mut db, caller, id, manual).await;
        db.settle(queued).await
    }

    /// What has become of a compaction that was queued when the newest valid boundary was `before`.
    pub async fn compaction(
        &self,
        caller: Caller,
        id: ConversationId,
        before: MessageId,
    ) -> Result<Compaction, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let waiting = sqlx::query!(
            "select exists (select from ai_job where kind = $2 and conversation_id = $3 and tenant_id = $1) as \"queued!\",
                    exists (select from ai_job_dead where kind = $2 and conversation_id = $3 and tenant_id = $1)
                        as \"dead!\"",
            caller.tenant().0,
            JobKind::Checkpoint.code(),
            id.0,
        )
        .fetch_one(&mut *db)
        .await?;
        let newest = select(&mut db, caller, id, None, None, 1).await?.pop();
        db.release().await?;
        Ok(match newest.filter(|newest| newest.valid && newest.last > before) {
            Some(created) => Compaction::Created(Box::new(created)),
            None if waiting.queued => Compaction::Pending,
            None if waiting.dead => Compaction::Failed,
            None => Compaction::NoProgress,
        })
    }
}

async fn under_pressure(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    manual: &ManualCompaction,
) -> Result<bool, StoreError> {
    let mut tx = db.begin().await?;
    locked(&mut tx, caller, id).await?;
    let waiting = sqlx::query_scalar!(
        r#"select (c.stalled_message_id = c.last_message_id or exists (
                select from ai_job as j
                where j.tenant_id = $1 and j.conversation_id = $2 and j.kind = $3 and j.argument is not null
            )) as "waiting!"
           from ai_conversation as c where c.tenant_id = $1 and c.conversation_id = $2"#,
        caller.tenant().0,
        id.0,
        JobKind::Checkpoint.code(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let needless = waiting || !select(&mut tx, caller, id, None, Some(&manual.request_id), 1).await?.is_empty();
    if !needless {
        enqueue_manual_checkpoint(&mut tx, caller, id, json(manual)).await?;
    }
    tx.commit().await?;
    Ok(!needless)
}

async fn request(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    manual: &ManualCompaction,
) -> Result<Result<Checkpoint, MessageId>, StoreError> {
    let mut tx = db.begin().await?;
    locked(&mut tx, caller, id).await?;
    let done = select(&mut tx, caller, id, None, Some(&manual.request_id), 1).await?.pop();
    let outcome = if let Some(done) = done {
        Ok(done)
    } else {
        let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0).fetch_one(&mut *tx).await?;
        enqueue_manual_checkpoint(&mut tx, caller, id, json(manual)).await?;
        Err(MessageId(row.checkpoint_last.unwrap_or(0)))
    };
    tx.commit().await?;
    Ok(outcome)
}

pub(crate) async fn select(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    before: Option<(MessageId, MessageId)>,
    request_id: Option<&str>,
    limit: i64,
) -> Result<Vec<Checkpoint>, StoreError> {
    let rows = rows(db, caller, id, before, request_id, limit).await?;
    Ok(rows.into_iter().map(Checkpoint::from).collect())
}

async fn rows(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    before: Option<(MessageId, MessageId)>,
    request_id: Option<&str>,
    limit: i64,
) -> Result<Vec<CheckpointRow>, StoreError> {
    let rows = sqlx::query_file_as!(
        CheckpointRow,
        "sql/list_checkpoints.sql",
        caller.tenant().0,
        id.0,
        before.map(|(last, _)| last.0),
        before.map(|(_, first)| first.0),
        request_id,
        limit,
        PAGE_CONTENT_BYTES,
    )
    .fetch_all(db)
    .await?;
    Ok(rows)
}
