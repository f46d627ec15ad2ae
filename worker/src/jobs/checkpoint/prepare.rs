//! Prepares a checkpoint ahead: its summary is written when the tail has half of the token threshold,
//! and stored. It becomes a checkpoint when the provider's cache is cold, or when a trigger is
//! reached.

use anneal_core::{
    cut::{self, Trigger},
    policy::TailFigures,
    trigger,
};
use anneal_llm::SummaryFailure;
use anneal_store::{CheckpointDraft, CheckpointMaterial, ClaimedJob, FinishOutcome, JobCommit};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{Plan, record_no_progress, tokens_before, write_draft};
use crate::{
    deadline::retry_while_busy,
    retry_policy::{JobError, Outcome},
    worker::Worker,
};

/// Prepares a checkpoint, if the policy says so, the tail is long enough, and none is prepared.
/// Otherwise only ends the job: a checkpoint, a separator or a new policy has made it unnecessary
/// since it was enqueued.
pub(super) async fn run_if_due(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    figures: &TailFigures,
    lost: &CancellationToken,
) -> Outcome {
    if !trigger::prepares_checkpoint(figures, &material.policy)
        || worker.store.find_prepared_checkpoint(job).await?.is_some()
    {
        return Ok(ended(worker.store.finish_job(job).await?));
    }
    let head = material.head_tokens();
    let Some(cut) = cut::plan(&material.tail, &material.policy, Trigger::Idle, head) else {
        return record_no_progress(worker, job, material, "nothing can be prepared").await;
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
        )) => record_no_progress(worker, job, material, "the summary would not be shorter").await,
        Err(error) => Err(error),
    }
}

/// Finds the prepared checkpoint, if it can be committed because of this trigger: what it keeps must
/// fit as what a checkpoint keeps that is made now.
pub(super) async fn find_usable(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    figures: &TailFigures,
    trigger: Trigger,
) -> Result<Option<CheckpointDraft>, JobError> {
    let Some(prepared) = worker.store.find_prepared_checkpoint(job).await? else {
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
