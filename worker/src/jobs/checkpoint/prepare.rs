//! Prepares a checkpoint ahead: its summary is written when the tail has half of the token
//! threshold, and stored. It becomes a checkpoint when the provider's cache is cold, or when a
//! trigger is reached.
//!
//! Nobody waits for a preparation, so it is not repeated as other jobs are: a failed one is
//! recorded, and the next try comes when the tail has grown. A checkpoint that is due never waits
//! for that.

use anneal_core::{
    cut::{self, Trigger},
    policy::TailFigures,
    trigger,
};
use anneal_llm::SummaryFailure;
use anneal_store::{CheckpointDraft, CheckpointMaterial, ClaimedJob, FinishOutcome, JobCommit};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Plan, tokens_before, write_draft};
use crate::{
    deadline::retry_while_busy,
    retry_policy::{JobError, Outcome, RetryDecision},
    worker::Worker,
};

/// Prepares a checkpoint, if the policy says so, the tail is long enough, none is prepared, and
/// none has failed lately. Otherwise only ends the job: a checkpoint, a separator, a new policy or
/// an earlier run has made it unnecessary since it was enqueued.
pub(super) async fn run_if_due(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    figures: &TailFigures,
    lost: &CancellationToken,
) -> Outcome {
    if !trigger::prepares_checkpoint(figures, &material.policy)
        || !is_missing(worker, job, material).await?
    {
        return Ok(ended(worker.store.finish_job(job).await?));
    }
    let head = material.head_tokens();
    let Some(cut) = cut::plan(&material.tail, &material.policy, Trigger::Idle, head) else {
        return record_failure(worker, job, material, "no message can be cut off").await;
    };
    let plan = Plan {
        cut,
        trigger: Trigger::Idle,
        tokens_before: tokens_before(material, figures),
    };
    match write_draft(worker, job, material, plan, lost).await {
        Ok(draft) if draft.tokens_after < draft.tokens_before => store(worker, job, &draft).await,
        Ok(_)
        | Err(JobError::Summary(
            SummaryFailure::NotShorter
            | SummaryFailure::EmptySource
            | SummaryFailure::TargetTooSmall(_),
        )) => record_failure(worker, job, material, "the summary would not be shorter").await,
        // Other jobs would be started again, which would delay a checkpoint that becomes due.
        Err(error @ (JobError::Summary(_) | JobError::Panicked))
            if matches!(error.decision(), RetryDecision::Retry { .. }) =>
        {
            metrics::counter!("anneal_jobs_failed_total", "kind" => job.kind.name()).increment(1);
            warn!(
                conversation = %job.conversation,
                "the next checkpoint of {} could not be prepared: {error}", job.conversation
            );
            record_failure(worker, job, material, "its preparation failed").await
        }
        Err(error) => Err(error),
    }
}

/// Whether no checkpoint is prepared, and none was tried to be prepared lately.
async fn is_missing(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
) -> Result<bool, JobError> {
    let base = worker.store.find_checkpoint_base_of_job(job).await?;
    let waits = base
        .unprepared_until
        .is_some_and(|until| until >= material.last_message_id);
    Ok(base.prepared.is_none() && !waits)
}

/// Finds the prepared checkpoint, if it can be committed because of this trigger: what it keeps
/// must fit as what a checkpoint keeps that is made now.
pub(super) async fn find_usable(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    figures: &TailFigures,
    trigger: Trigger,
) -> Result<Option<CheckpointDraft>, JobError> {
    let base = worker.store.find_checkpoint_base_of_job(job).await?;
    let Some(prepared) = base.prepared else {
        return Ok(None);
    };
    let head = material.head_tokens();
    let cut = cut::plan_after(
        &material.tail,
        &material.policy,
        trigger,
        head,
        prepared.last,
    );
    Ok(cut.map(|cut| CheckpointDraft {
        tokens_before: tokens_before(material, figures),
        tokens_after: cut.kept + prepared.summary.tokens,
        trigger: Some(trigger),
        ..prepared
    }))
}

/// The outcome of a job that had nothing to do.
fn ended(finished: FinishOutcome) -> JobCommit {
    JobCommit {
        finished,
        caused: Vec::new(),
        results_kept: true,
    }
}

async fn store(worker: &Worker, job: &ClaimedJob, draft: &CheckpointDraft) -> Outcome {
    let stored = retry_while_busy(|| worker.store.put_prepared_checkpoint(job, draft)).await?;
    if stored.results_kept {
        info!(
            conversation = %job.conversation, last_message_id = draft.last.0,
            duration_ms = draft.summary.duration_ms,
            "prepared a checkpoint of {} at message {}", job.conversation, draft.last
        );
    }
    Ok(stored)
}

/// Records that nothing was prepared. Triggers enqueue no other preparation until the tail has
/// grown, but the checkpoint when it is due.
async fn record_failure(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    why: &str,
) -> Outcome {
    info!(
        conversation = %job.conversation,
        "no checkpoint of {} is prepared: {why}", job.conversation
    );
    let previous = material.previous.as_ref().map(|previous| previous.last);
    let boundary = (material.separator, previous);
    Ok(retry_while_busy(|| worker.store.record_failed_preparation(job, boundary)).await?)
}
