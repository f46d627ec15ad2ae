//! What the checkpoint job reads, and the transaction that commits a checkpoint (or the finding that there is no progress)
//! and ends the job.

use anneal_core::{
    caller::{Caller, ConversationId},
    cut::{TailItem, Trigger},
    digest::Digest,
    job::JobKind,
    message::{MessageId, Part, Role},
    policy::{Policy, PolicyOverrides},
    tokens::{Encoding, Tokens},
    trigger,
};
use sqlx::{Connection as _, PgConnection};

use crate::{
    Store,
    claims::{ClaimedJob, Committed, ManualCompaction, finish, finish_causing},
    conversations::locked,
    error::{Entity, StoreError},
    failpoint, parts,
    rows::{self, column, json, tokens},
    rules::Rules,
    summaries::{SummarySpec, kind_code},
    tail,
};

/// What a checkpoint is planned from.
#[derive(Debug, Clone)]
pub struct CheckpointMaterial {
    /// The settings in force.
    pub policy: Policy,
    /// What the conversation's tokens are counted in.
    pub encoding: Encoding,
    /// Tokens of the system prompt.
    pub system_prompt: Tokens,
    /// The last separator.
    pub separator: Option<MessageId>,
    /// The newest checkpoint that holds.
    pub previous: Option<PreviousCheckpoint>,
    /// The newest message.
    pub last_message_id: MessageId,
    /// The messages after the boundary, without content.
    pub tail: Vec<TailItem>,
}

impl CheckpointMaterial {
    /// Tokens before the tail: system prompt and the newest checkpoint's summary.
    pub fn head(&self) -> Tokens {
        self.system_prompt + self.previous.as_ref().map_or(Tokens::ZERO, |previous| previous.tokens)
    }
}

/// The checkpoint whose summary is fed forward.
#[derive(Debug, Clone)]
pub struct PreviousCheckpoint {
    /// Its boundary.
    pub last: MessageId,
    /// Its summary.
    pub summary: String,
    /// Tokens of the summary.
    pub tokens: Tokens,
    /// How many summaries were fed forward into it, plus one.
    pub generation: i32,
}

/// One message as a checkpoint's summariser reads it.
#[derive(Debug, Clone)]
pub struct CheckpointSource {
    /// Its id.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said, or the summary of a large message.
    pub body: Result<Vec<Part>, String>,
    /// Digest of the stored content.
    pub content_digest: Vec<u8>,
}

/// A checkpoint to commit.
#[derive(Debug, Clone)]
pub struct CheckpointDraft {
    /// The separator that it was planned with.
    pub separator: Option<MessageId>,
    /// The checkpoint that it follows.
    pub previous: Option<MessageId>,
    /// Its boundary.
    pub last: MessageId,
    /// Its summary.
    pub summary: SummarySpec,
    /// The first message that its summariser read itself.
    pub source_first: MessageId,
    /// Digest of what was read.
    pub source_digest: Digest,
    /// Tokens of the previous summary and the tail before.
    pub tokens_before: Tokens,
    /// Tokens of this summary and the tail after.
    pub tokens_after: Tokens,
    /// Summaries fed forward into it, plus one.
    pub generation: i32,
    /// Why it was made; None: it was imported.
    pub trigger: Option<Trigger>,
}

impl Store {
    /// What a job's checkpoint is planned from. None when the conversation is gone.
    pub async fn checkpoint_material(&self, job: &ClaimedJob) -> Result<Option<CheckpointMaterial>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let material =
            material(&mut db, &self.rules, job.caller(), job.conversation, &PolicyOverrides::default()).await;
        failpoint!("checkpoint.planned");
        db.settle(material).await
    }

    /// What a checkpoint would be planned from, under the overrides of a preview.
    pub async fn checkpoint_preview(
        &self,
        caller: Caller,
        id: ConversationId,
        preview: &PolicyOverrides,
    ) -> Result<CheckpointMaterial, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let material = material(&mut db, &self.rules, caller, id, preview).await;
        db.settle(material).await?.ok_or(StoreError::NotFound(Entity::Conversation))
    }

    /// Bytes of content after `after` up to `last`, where they are more than `most` at least so many: what a summary of it all
    /// would read.
    pub async fn content_bytes(
        &self,
        job: &ClaimedJob,
        after: MessageId,
        last: MessageId,
        most: u64,
    ) -> Result<u64, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let bytes = sqlx::query_file_scalar!(
            "sql/content_bytes.sql",
            job.tenant.0,
            job.conversation.0,
            after.0,
            last.0,
            most as i64,
        )
        .fetch_one(&mut *db)
        .await?;
        db.release().await?;
        Ok(bytes.unsigned_abs())
    }

    /// The messages after `after` up to `last`, large ones as their summaries where they have one.
    pub async fn checkpoint_sources(
        &self,
        job: &ClaimedJob,
        policy: &Policy,
        after: MessageId,
        last: MessageId,
    ) -> Result<Vec<CheckpointSource>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let rows = sqlx::query_file!(
            "sql/checkpoint_sources.sql",
            job.tenant.0,
            job.conversation.0,
            after.0,
            last.0,
            column(policy.large_message_threshold),
        )
        .fetch_all(&mut *db)
        .await?;
        db.release().await?;
        failpoint!("checkpoint.read");
        let sources = rows.into_iter().map(|row| {
            let body = match (row.content, row.summary_cache) {
                (Some(content), _) => Ok(rows::parts(&content)?),
                (None, summary) => Err(summary.ok_or(StoreError::Unreadable("content"))?),
            };
            Ok(CheckpointSource {
                id: MessageId(row.message_id),
                role: rows::role(row.role)?,
                body,
                content_digest: row.content_digest,
            })
        });
        sources.collect()
    }

    /// Commits a checkpoint if separator and previous checkpoint are still those it was planned with, and ends the job.
    /// Otherwise the draft is discarded and the job waits again.
    pub async fn commit_checkpoint(&self, job: &ClaimedJob, draft: &CheckpointDraft) -> Result<Committed, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        locked(&mut tx, caller, id).await?;
        failpoint!("checkpoint.locked");
        #[cfg(feature = "sabotage")]
        let draft = &crate::sabotage::redrafted(&mut tx, id, draft).await?;
        let kept = still_there(&mut tx, caller, id, draft).await?;
        let caused = if kept {
            insert(&mut tx, caller, id, draft, job.manual.as_ref()).await?;
            failpoint!("checkpoint.inserted");
            parts::forget(&mut tx, job).await?;
            trigger::jobs(&tail::state(&mut tx, caller, id, &self.rules).await?)
        } else {
            vec![JobKind::Checkpoint]
        };
        let finished = finish_causing(&mut tx, job, &caused).await?;
        failpoint!("checkpoint.finished");
        tx.commit().await?;
        failpoint!("checkpoint.committed");
        db.release().await?;
        Ok(Committed { finished, caused, kept })
    }

    /// Records that compaction could make no progress with the messages up to `last`, and ends the job.
    pub async fn record_no_progress(&self, job: &ClaimedJob, last: MessageId) -> Result<Committed, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        sqlx::query!(
            "update ai_conversation set stalled_message_id = $3 where tenant_id = $1 and conversation_id = $2",
            caller.tenant().0,
            id.0,
            last.0,
        )
        .execute(&mut *tx)
        .await?;
        parts::forget(&mut tx, job).await?;
        let finished = finish(&mut tx, job).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(Committed { finished, caused: Vec::new(), kept: true })
    }
}

/// What a checkpoint is planned from, in one snapshot.
pub(crate) async fn material(
    db: &mut PgConnection,
    rules: &Rules,
    caller: Caller,
    id: ConversationId,
    preview: &PolicyOverrides,
) -> Result<Option<CheckpointMaterial>, StoreError> {
    let mut rows =
        sqlx::query_file!("sql/checkpoint_material.sql", caller.tenant().0, id.0, rules.bases(), json(preview),)
            .fetch_all(db)
            .await?;
    rows.sort_by_key(|row| row.message_id);
    let mut rows = rows.into_iter();
    let Some(head) = rows.next() else { return Ok(None) };
    let policy = rules.policy(head.policy.as_deref().unwrap_or("{}"), preview, head.window_tokens)?;
    let previous = head.checkpoint_last.map(|last| PreviousCheckpoint {
        last: MessageId(last),
        summary: head.summary.unwrap_or_default(),
        tokens: tokens(head.tokens),
        generation: head.generation.unwrap_or(0),
    });
    let tail = rows.map(|row| {
        let outline = row.tool_outline.as_deref().map(serde_json::from_str).transpose();
        Ok(TailItem {
            id: MessageId(row.message_id),
            role: rows::role(row.role.unwrap_or(0))?,
            turn: row.turn,
            tokens: tokens(row.tokens),
            bytes: row.bytes.unwrap_or(0).unsigned_abs(),
            outline: outline.map_err(|_| StoreError::Unreadable("tool outline"))?.unwrap_or_default(),
        })
    });
    Ok(Some(CheckpointMaterial {
        policy,
        system_prompt: tokens(head.bytes.unwrap_or(0)),
        encoding: rows::encoding(head.encoding.unwrap_or(0))?,
        separator: head.separator.map(MessageId),
        previous,
        last_message_id: MessageId(head.newest.unwrap_or(0)),
        tail: tail.collect::<Result<_, StoreError>>()?,
    }))
}

/// Whether separator and newest valid checkpoint are those that the draft was planned with.
async fn still_there(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    draft: &CheckpointDraft,
) -> Result<bool, StoreError> {
    let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0).fetch_one(db).await?;
    Ok(row.separator == draft.separator.map(|id| id.0) && row.checkpoint_last == draft.previous.map(|id| id.0))
}

/// Stores a checkpoint; `manual` is what a caller asked for.
pub(crate) async fn insert(
    db: &mut PgConnection,
    caller: Caller,
    id: ConversationId,
    draft: &CheckpointDraft,
    manual: Option<&ManualCompaction>,
) -> Result<(), StoreError> {
    let first = draft.separator.unwrap_or_default().next();
    let trigger = match draft.trigger {
        Some(Trigger::Tokens) => 1,
        Some(Trigger::Messages) => 2,
        Some(Trigger::Manual) => 3,
        None => 4,
    };
    sqlx::query_file!(
        "sql/insert_checkpoint.sql",
        caller.tenant().0,
        id.0,
        first.0,
        draft.last.0,
        draft.previous.map(|id| id.0),
        draft.summary.text,
        column(draft.summary.tokens),
        kind_code(&draft.summary),
        draft.summary.model,
        draft.summary.prompt_version,
        draft.source_first.0,
        draft.source_digest.as_slice(),
        column(draft.tokens_before),
        column(draft.tokens_after),
        draft.generation,
        trigger,
        manual.map_or("", |manual| &manual.focus),
        manual.map(|manual| &manual.request_id),
        draft.summary.duration_ms,
        draft.summary.spent.calls,
        column(draft.summary.spent.input),
        column(draft.summary.spent.output),
    )
    .execute(db)
    .await?;
    Ok(())
}
