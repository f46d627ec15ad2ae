//! Checkpoints that are prepared ahead. A prepared one becomes a checkpoint when a context is built
//! while the provider's cache is cold, or when a trigger is reached. A conversation has at most
//! one. Every change of messages deletes it, and so does every checkpoint. A row without a summary
//! says that none could be prepared; its last message is the last one before that is tried again.

use anneal_core::{
    caller::{Caller, ConversationId},
    cut::Trigger,
    job::JobKind,
    message::MessageId,
    tokens::Tokens,
    trigger,
};

use super::commit::{CheckpointDraft, delete_prepared_row, has_same_boundary};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::StoreError,
    partial_summaries::delete_partial_summaries,
    policy_defaults::PolicyDefaults,
    queue::{ClaimedJob, FinishOutcome, JobCommit, finish_and_enqueue},
    rows::{self, column, tokens, trigger_code},
    summary_spec::{ModelSpend, SummaryKind, SummarySpec, kind_code, kind_from_code},
    triggers::tail_stats,
};

/// What the next checkpoint of a conversation can be built on.
#[derive(Debug, Clone, Default)]
pub struct CheckpointBase {
    /// How many summaries the newest valid checkpoint was built of; 0: there is none.
    pub generation: i32,
    /// The checkpoint that is prepared for the present boundary.
    pub prepared: Option<CheckpointDraft>,
    /// None could be prepared for the present boundary, and that is not tried again until a message
    /// after this one is the newest. None: no preparation has failed.
    pub unprepared_until: Option<MessageId>,
}

impl Store {
    /// Finds what the next checkpoint of a conversation can be built on.
    pub async fn find_checkpoint_base(
        &self,
        caller: Caller,
        id: ConversationId,
    ) -> Result<CheckpointBase, StoreError> {
        let mut db = self.reads.checkout(caller).await?;
        let base = select_base(&mut db, caller, id).await;
        db.settle(base).await
    }

    /// Finds what the checkpoint of a job can be built on.
    pub async fn find_checkpoint_base_of_job(
        &self,
        job: &ClaimedJob,
    ) -> Result<CheckpointBase, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let base = select_base(&mut db, job.caller(), job.conversation).await;
        db.settle(base).await
    }

    /// Stores a checkpoint as prepared in place of the one that was prepared before, deletes the
    /// job's partial summaries and ends the job. Discards the draft if the boundary is no longer
    /// the one with which it was planned.
    pub async fn put_prepared_checkpoint(
        &self,
        job: &ClaimedJob,
        draft: &CheckpointDraft,
    ) -> Result<JobCommit, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let mut db = self.jobs.checkout(caller).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, id).await?;
        let results_kept = has_same_boundary(&mut tx, caller, id, draft).await?;
        if results_kept {
            replace_prepared_row(&mut tx, caller, id, draft).await?;
            delete_partial_summaries(&mut tx, job).await?;
        }
        let (finished, caused) = end_job(&mut tx, job, &self.policy_defaults.get()).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(JobCommit {
            finished,
            caused,
            results_kept,
        })
    }

    /// Records that no checkpoint could be prepared after this separator and this checkpoint, and
    /// ends the job. That is tried again when the tail has grown, or when the boundary or a message
    /// changes. Compactions by a trigger do not wait for it. Partial summaries stay, because the
    /// next summary may need them. Records nothing if the boundary is another one meanwhile.
    pub async fn record_failed_preparation(
        &self,
        job: &ClaimedJob,
        (separator, previous): (Option<MessageId>, Option<MessageId>),
    ) -> Result<JobCommit, StoreError> {
        let (caller, id) = (job.caller(), job.conversation);
        let policy_defaults = self.policy_defaults.get();
        let mut db = self.jobs.checkout(caller).await?;
        let mut tx = db.begin().await?;
        lock_conversation(&mut tx, caller, id).await?;
        let state = tail_stats::read_tail_state(&mut tx, caller, id, &policy_defaults).await?;
        let failed = failed_draft(separator, previous, state.last_before_next_try());
        let results_kept = has_same_boundary(&mut tx, caller, id, &failed).await?;
        if results_kept {
            replace_prepared_row(&mut tx, caller, id, &failed).await?;
        }
        let (finished, caused) = end_job(&mut tx, job, &policy_defaults).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(JobCommit {
            finished,
            caused,
            results_kept,
        })
    }
}

/// The row of a preparation without a result: a checkpoint without a summary.
const fn failed_draft(
    separator: Option<MessageId>,
    previous: Option<MessageId>,
    until: MessageId,
) -> CheckpointDraft {
    CheckpointDraft {
        separator,
        previous,
        last: until,
        summary: SummarySpec {
            text: String::new(),
            tokens: Tokens::ZERO,
            kind: SummaryKind::Extractive,
            model: String::new(),
            prompt_version: 0,
            spent: ModelSpend {
                calls: 0,
                input: Tokens::ZERO,
                output: Tokens::ZERO,
            },
            duration_ms: 0,
        },
        source_first: until,
        source_digest: [0; 32],
        tokens_before: Tokens::ZERO,
        tokens_after: Tokens::ZERO,
        generation: 0,
        trigger: Some(Trigger::Idle),
    }
}

/// Ends a job within the transaction that has stored what it prepared, and enqueues the jobs that
/// are due then. Returns them.
async fn end_job(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
    policy_defaults: &PolicyDefaults,
) -> Result<(FinishOutcome, Vec<JobKind>), StoreError> {
    let (caller, id) = (job.caller(), job.conversation);
    let state = tail_stats::read_tail_state(&mut *db, caller, id, policy_defaults).await?;
    let caused = trigger::due_jobs(&state);
    let finished = finish_and_enqueue(db, job, &caused).await?;
    Ok((finished, caused))
}

/// Stores a prepared checkpoint in place of the one that was prepared before.
async fn replace_prepared_row(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    draft: &CheckpointDraft,
) -> Result<(), StoreError> {
    delete_prepared_row(&mut *db, caller, id).await?;
    insert_prepared_row(db, caller, id, draft).await
}

async fn insert_prepared_row(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    draft: &CheckpointDraft,
) -> Result<(), StoreError> {
    let first = draft.separator.unwrap_or_default().next();
    sqlx::query_file!(
        "sql/put_prepared_checkpoint.sql",
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
        draft.summary.duration_ms,
        draft.summary.spent.calls,
        column(draft.summary.spent.input),
        column(draft.summary.spent.output),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A row of find_checkpoint_base.sql. All columns but the first are those of the prepared
/// checkpoint; they are None if there is none.
struct BaseRow {
    generation: Option<i32>,
    first_message_id: Option<i64>,
    last_message_id: Option<i64>,
    previous_message_id: Option<i64>,
    summary: Option<String>,
    token_usage: Option<i64>,
    kind: Option<i16>,
    model: Option<String>,
    prompt_version: Option<i32>,
    source_first_message_id: Option<i64>,
    source_digest: Option<Vec<u8>>,
    tokens_before: Option<i64>,
    tokens_after: Option<i64>,
    prepared_generation: Option<i32>,
    trigger_kind: Option<i16>,
    duration_ms: Option<i64>,
    model_calls: Option<i32>,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
}

async fn select_base(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
) -> Result<CheckpointBase, StoreError> {
    let row = sqlx::query_file_as!(
        BaseRow,
        "sql/find_checkpoint_base.sql",
        caller.tenant().0,
        id.0
    )
    .fetch_optional(db)
    .await?;
    let Some(row) = row else {
        return Ok(CheckpointBase::default());
    };
    let has_failed = row.summary.as_deref() == Some("");
    let unprepared_until = row.last_message_id.filter(|_| has_failed).map(MessageId);
    let generation = row.generation.unwrap_or(0);
    let prepared = if has_failed {
        None
    } else {
        prepared_draft(row)?
    };
    Ok(CheckpointBase {
        generation,
        prepared,
        unprepared_until,
    })
}

fn prepared_draft(row: BaseRow) -> Result<Option<CheckpointDraft>, StoreError> {
    let (Some(first), Some(last), Some(text)) =
        (row.first_message_id, row.last_message_id, row.summary)
    else {
        return Ok(None);
    };
    let count = |column: Option<i64>| tokens(column.unwrap_or(0));
    let digest = row.source_digest.unwrap_or_default();
    Ok(Some(CheckpointDraft {
        separator: (first > 1).then_some(MessageId(first - 1)),
        previous: row.previous_message_id.map(MessageId),
        last: MessageId(last),
        summary: SummarySpec {
            text,
            tokens: count(row.token_usage),
            kind: kind_from_code(row.kind.unwrap_or(0)),
            model: row.model.unwrap_or_default(),
            prompt_version: row.prompt_version.unwrap_or(0),
            spent: ModelSpend {
                calls: row.model_calls.unwrap_or(0),
                input: count(row.input_tokens),
                output: count(row.output_tokens),
            },
            duration_ms: row.duration_ms.unwrap_or(0),
        },
        source_first: MessageId(row.source_first_message_id.unwrap_or(first)),
        source_digest: digest
            .try_into()
            .map_err(|_| StoreError::Unreadable("prepared checkpoint"))?,
        tokens_before: count(row.tokens_before),
        tokens_after: count(row.tokens_after),
        generation: row.prepared_generation.unwrap_or(1),
        trigger: row.trigger_kind.and_then(rows::trigger),
    }))
}
