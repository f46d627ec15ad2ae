//! The transactions that end a checkpoint job: one commits the checkpoint, the others record that
//! the job could make none.

use anneal_core::{
    caller::{Caller, ConversationId},
    cut::Trigger,
    digest::Digest,
    job::JobKind,
    message::MessageId,
    tokens::Tokens,
    trigger,
};

use super::request::record_made;
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::StoreError,
    failpoint,
    partial_summaries::delete_partial_summaries,
    queue::{
        ClaimedJob, FailOutcome, JobCommit, QueuedCompaction, finish_and_enqueue,
        finish_within_transaction, forget_compactions, record_failure,
    },
    rows::{column, trigger_code},
    summary_spec::{SummarySpec, kind_code},
    triggers::tail_stats,
};

/// A checkpoint to commit.
#[derive(Debug, Clone)]
pub struct CheckpointDraft {
    /// The last separator when the checkpoint was planned.
    pub separator: Option<MessageId>,
    /// The last message of the checkpoint that this one follows. None: it follows none.
    pub previous: Option<MessageId>,
    /// The checkpoint's boundary: the last message that it covers.
    pub last: MessageId,
    /// The checkpoint's summary.
    pub summary: SummarySpec,
    /// The first message that the summarizer read itself. Earlier ones it knows only by the
    /// previous summary.
    pub source_first: MessageId,
    /// Digest of the messages that the summarizer read itself.
    pub source_digest: Digest,
    /// Tokens of the previous summary and the tail before the checkpoint.
    pub tokens_before: Tokens,
    /// Tokens of this summary and the tail after the checkpoint.
    pub tokens_after: Tokens,
    /// How many summaries were built on each other, this one included.
    pub generation: i32,
    /// Why the checkpoint was made. None: it was imported.
    pub trigger: Option<Trigger>,
}

impl Store {
    /// Commits a checkpoint, deletes the job's partial summaries and ends the job, if the last
    /// separator and the previous checkpoint are still those with which the checkpoint was planned.
    /// Otherwise discards the draft; the job waits again.
    pub async fn commit_checkpoint(
        &self,
        job: &ClaimedJob,
        draft: &CheckpointDraft,
    ) -> Result<JobCommit, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, id).await?;
        failpoint!("checkpoint.locked");
        let results_kept = has_same_boundary(&mut tx, caller, id, draft).await?;
        let caused = if results_kept {
            insert_checkpoint(&mut tx, caller, id, draft, job.manual.as_ref()).await?;
            if let Some(manual) = &job.manual {
                record_made(&mut tx, caller, id, manual, draft.last).await?;
            }
            failpoint!("checkpoint.inserted");
            delete_partial_summaries(&mut tx, job).await?;
            trigger::due_jobs(
                &tail_stats::read_tail_state(&mut tx, caller, id, &self.policy_defaults.get())
                    .await?,
            )
        } else {
            vec![JobKind::Checkpoint]
        };
        let finished = finish_and_enqueue(&mut tx, job, &caused).await?;
        if let Some(done) = job.manual.as_ref().filter(|_| results_kept) {
            forget_compactions(&mut tx, caller, id, done).await?;
        }
        failpoint!("checkpoint.finished");
        tx.commit().await?;
        failpoint!("checkpoint.committed");
        db.release().await?;
        Ok(JobCommit {
            finished,
            caused,
            results_kept,
        })
    }

    /// Records that a checkpoint job failed because the model's answers cannot be used: it waits
    /// `delay_ms`, or is given up after `most_attempts` starts. Then triggers enqueue no other one
    /// until the tail has grown: it would fail at the same cost.
    pub async fn fail_checkpoint(
        &self,
        job: &ClaimedJob,
        error: &str,
        delay_ms: i64,
        most_attempts: i16,
    ) -> Result<FailOutcome, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(caller).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, id).await?;
        let outcome = record_failure(&mut tx, job, error, (delay_ms, most_attempts)).await?;
        if outcome == FailOutcome::Dead {
            let state =
                tail_stats::read_tail_state(&mut tx, caller, id, &self.policy_defaults.get())
                    .await?;
            put_off_compaction(&mut tx, caller, id, state.last_before_next_try()).await?;
        }
        tx.commit().await?;
        db.release().await?;
        Ok(outcome)
    }

    /// Records that no checkpoint could be made of the messages up to `last`, deletes the job's
    /// partial summaries and ends the job.
    pub async fn record_no_progress(
        &self,
        job: &ClaimedJob,
        last: MessageId,
    ) -> Result<JobCommit, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(job.caller()).await?;
        let mut tx = db.begin().await?;
        put_off_compaction(&mut tx, caller, id, last).await?;
        delete_partial_summaries(&mut tx, job).await?;
        let finished = finish_within_transaction(&mut tx, job).await?;
        if let Some(done) = &job.manual {
            forget_compactions(&mut tx, caller, id, done).await?;
        }
        tx.commit().await?;
        db.release().await?;
        Ok(JobCommit {
            finished,
            caused: Vec::new(),
            results_kept: true,
        })
    }
}

/// Puts compactions by a trigger off until a message after this one is the newest.
async fn put_off_compaction(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    until: MessageId,
) -> Result<(), StoreError> {
    sqlx::query!(
        "update ai_conversation set stalled_message_id = $3 where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
        until.0,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Whether separator and newest valid checkpoint are those with which the draft was planned.
pub(super) async fn has_same_boundary(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    draft: &CheckpointDraft,
) -> Result<bool, StoreError> {
    let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0)
        .fetch_one(db)
        .await?;
    Ok(row.separator == draft.separator.map(|id| id.0)
        && row.checkpoint_last == draft.previous.map(|id| id.0))
}

/// Deletes the prepared checkpoint of a conversation, if it has one. The caller has locked the
/// conversation's row.
pub(super) async fn delete_prepared_row(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<(), StoreError> {
    sqlx::query!(
        "delete from ai_prepared_checkpoint where tenant_id = $1 and conversation_id = $2",
        caller.tenant().0,
        id.0,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Stores a checkpoint. `manual`: the requests of callers for it; None: a trigger was reached, or
/// the checkpoint was imported. Deletes the checkpoint that was prepared.
pub(super) async fn insert_checkpoint(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    draft: &CheckpointDraft,
    manual: Option<&QueuedCompaction>,
) -> Result<(), StoreError> {
    let first = draft.separator.unwrap_or_default().next();
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
        trigger_code(draft.trigger),
        manual.map_or("", |manual| &manual.focus),
        manual.map(QueuedCompaction::first_request_id),
        draft.summary.duration_ms,
        draft.summary.spent.calls,
        column(draft.summary.spent.input),
        column(draft.summary.spent.output),
    )
    .execute(&mut *db)
    .await?;
    delete_prepared_row(db, caller, id).await
}
