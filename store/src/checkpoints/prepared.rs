//! Checkpoints that are prepared ahead. A prepared one becomes a checkpoint when a context is built
//! while the provider's cache is cold, or when a trigger is reached. A conversation has at most one.
//! Every change of messages deletes it, and so does every checkpoint.

use anneal_core::{
    caller::{Caller, ConversationId},
    message::MessageId,
    trigger,
};

use super::commit::{CheckpointDraft, delete_prepared_row, has_same_boundary};
use crate::{
    Store,
    connection::BoundedConnection,
    conversations::lock_conversation,
    error::StoreError,
    partial_summaries::delete_partial_summaries,
    queue::{ClaimedJob, JobCommit, finish_and_enqueue},
    rows::{self, column, tokens, trigger_code},
    summary_spec::{ModelSpend, SummarySpec, kind_code, kind_from_code},
    triggers::tail_stats,
};

/// What the next checkpoint of a conversation can be built on.
#[derive(Debug, Clone, Default)]
pub struct CheckpointBase {
    /// How many summaries the newest valid checkpoint was built of; 0: there is none.
    pub generation: i32,
    /// The checkpoint that is prepared for the present boundary.
    pub prepared: Option<CheckpointDraft>,
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

    /// Finds the checkpoint that is prepared for the present boundary of a job's conversation.
    pub async fn find_prepared_checkpoint(
        &self,
        job: &ClaimedJob,
    ) -> Result<Option<CheckpointDraft>, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let base = select_base(&mut db, job.caller(), job.conversation).await;
        Ok(db.settle(base).await?.prepared)
    }

    /// Stores a checkpoint as prepared in place of the one that was prepared before, deletes the
    /// job's partial summaries and ends the job. Discards the draft if the boundary is no longer the
    /// one with which it was planned.
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
            delete_prepared_row(&mut tx, caller, id).await?;
            insert_prepared_row(&mut tx, caller, id, draft).await?;
            delete_partial_summaries(&mut tx, job).await?;
        }
        let state =
            tail_stats::read_tail_state(&mut tx, caller, id, &self.policy_defaults.get()).await?;
        let caused = trigger::due_jobs(&state);
        let finished = finish_and_enqueue(&mut tx, job, &caused).await?;
        tx.commit().await?;
        db.release().await?;
        Ok(JobCommit {
            finished,
            caused,
            results_kept,
        })
    }
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
    Ok(CheckpointBase {
        generation: row.generation.unwrap_or(0),
        prepared: prepared_draft(row)?,
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
