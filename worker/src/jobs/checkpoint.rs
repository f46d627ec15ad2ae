//! Summarises the older part of the tail, and moves the boundary.

use anneal_core::{
    cut::{self, Cut, Trigger},
    digest,
    message::{MessageId, plain_text},
    policy::Policy,
    tokens::Tokens,
};
use anneal_llm::{Purpose, Source, SourceBody, SummaryFailure};
use anneal_store::{
    CheckpointDraft, CheckpointMaterial, CheckpointSource, ClaimedJob, Committed, Entity, PreviousCheckpoint,
    StoreError, failpoint,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    outcome::{JobError, Outcome},
    patience::{answered, stored},
    run::Worker,
    summarize::Material,
};

pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let material = answered(worker.store.checkpoint_material(job)).await?;
    let material = material.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let figures = cut::figures(&material.tail, material.head());
    let due = cut::due(&figures, &material.policy);
    let Some(trigger) = job.manual.as_ref().map(|_| Trigger::Manual).or(due) else {
        // Somebody else's checkpoint, a separator or a new policy has made this one needless.
        let finished = answered(worker.store.finish_job(job)).await?;
        return Ok(Committed { finished, caused: Vec::new(), kept: true });
    };
    let keep = job.manual.as_ref().and_then(|manual| manual.keep).unwrap_or(material.policy.keep_recent);
    let policy = Policy { keep_recent: keep, ..material.policy };
    let Some(cut) = cut::plan(&material.tail, &policy, trigger, material.head()) else {
        return no_progress(worker, job, &material, "no message can be cut off").await;
    };
    let before = figures.tail + material.previous.as_ref().map_or(Tokens::ZERO, |previous| previous.tokens);
    let plan = Plan { cut, trigger, before };
    match draft(worker, job, &material, plan, lost).await {
        Ok(draft) if draft.tokens_after < before => commit(worker, job, &draft).await,
        Ok(_)
        | Err(JobError::Summary(
            SummaryFailure::NotShorter | SummaryFailure::NothingSaid | SummaryFailure::NoRoom(_),
        )) => no_progress(worker, job, &material, "the summary would not be shorter").await,
        Err(error) => Err(error),
    }
}

/// What is to be summarised, and why.
struct Plan {
    cut: Cut,
    trigger: Trigger,
    /// Tokens of the previous summary and the tail.
    before: Tokens,
}

/// Summaries fed forward in a row before one is made from the messages again: each copy of a copy loses something.
const GENERATIONS: i32 = 5;
/// Bytes of content that such a rebuilding may read; beyond, the chain goes on.
const REBUILT_BYTES: u64 = 32 * 1024 * 1024;

/// The previous checkpoint if its summary is to be fed forward; None when there is none, or the messages are to be read again.
async fn fed_forward<'a>(
    worker: &Worker,
    job: &ClaimedJob,
    material: &'a CheckpointMaterial,
) -> Result<Option<&'a PreviousCheckpoint>, JobError> {
    let Some(previous) = &material.previous else { return Ok(None) };
    if previous.generation < GENERATIONS {
        return Ok(Some(previous));
    }
    let after = material.separator.unwrap_or_default();
    let bytes = answered(worker.store.content_bytes(job, after, previous.last, REBUILT_BYTES)).await?;
    Ok((bytes > REBUILT_BYTES).then_some(previous))
}

/// Reads what the cut takes, has it summarised, and drafts the checkpoint. No connection is held meanwhile.
async fn draft(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    Plan { cut, trigger, before }: Plan,
    lost: &CancellationToken,
) -> Result<CheckpointDraft, JobError> {
    let previous = fed_forward(worker, job, material).await?;
    let separator = material.separator.unwrap_or_default();
    let after = previous.map_or(separator, |previous| previous.last);
    let sources = answered(worker.store.checkpoint_sources(job, &material.policy, after, cut.last)).await?;
    let source_digest = digest::of_sources(sources.iter().map(|source| (source.id, source.content_digest.as_slice())));
    let taken = before.less(cut.kept);
    let ask = Material {
        purpose: Purpose::Range,
        encoding: material.encoding,
        previous: previous.map(|previous| previous.summary.clone()),
        quoted: quote(&sources, &cut.quoted),
        sources: sources.into_iter().map(source).collect(),
        focus: job.manual.as_ref().map(|manual| manual.focus.clone()).unwrap_or_default(),
        target: Purpose::Range.target(taken, worker.lengths.checkpoint_tokens),
    };
    let summary = worker.summaries.make(job, ask, lost).await?;
    failpoint!("checkpoint.summarized");
    Ok(CheckpointDraft {
        separator: material.separator,
        previous: material.previous.as_ref().map(|previous| previous.last),
        source_first: after.next(),
        last: cut.last,
        tokens_before: before,
        tokens_after: cut.kept + summary.tokens,
        summary,
        source_digest,
        generation: previous.map_or(0, |previous| previous.generation) + 1,
        trigger: Some(trigger),
    })
}

/// The opening user messages of a split turn, as one text.
fn quote(sources: &[CheckpointSource], quoted: &[MessageId]) -> Option<(MessageId, String)> {
    let first = *quoted.first()?;
    let said = sources.iter().filter(|source| quoted.binary_search(&source.id).is_ok());
    let texts: Vec<String> = said
        .map(|source| match &source.body {
            Ok(parts) => plain_text(parts),
            Err(summary) => summary.clone(),
        })
        .collect();
    Some((first, texts.join("\n\n")))
}

fn source(source: CheckpointSource) -> Source {
    let body = match source.body {
        Ok(parts) => SourceBody::Original(parts),
        Err(summary) => SourceBody::Digest(summary),
    };
    Source { message_id: source.id, role: source.role, body }
}

async fn commit(worker: &Worker, job: &ClaimedJob, draft: &CheckpointDraft) -> Outcome {
    let committed = stored(|| worker.store.commit_checkpoint(job, draft)).await?;
    if committed.kept {
        metrics::counter!("checkpoints_total", "trigger" => draft.trigger.map_or("imported", trigger_name))
            .increment(1);
        info!(
            conversation = %job.conversation, last_message_id = draft.last.0, tokens_before = draft.tokens_before.get(),
            tokens_after = draft.tokens_after.get(), duration_ms = draft.summary.duration_ms,
            "checkpoint of {} at message {}: {} tokens became {}",
            job.conversation, draft.last, draft.tokens_before, draft.tokens_after
        );
    } else {
        info!(conversation = %job.conversation, "{} moved while it was summarised, starting again", job.conversation);
    }
    Ok(committed)
}

const fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Tokens => "tokens",
        Trigger::Messages => "messages",
        Trigger::Manual => "manual",
    }
}

/// Recorded, and not tried again until new messages arrive.
async fn no_progress(worker: &Worker, job: &ClaimedJob, material: &CheckpointMaterial, why: &str) -> Outcome {
    metrics::counter!("checkpoint_no_progress_total").increment(1);
    info!(conversation = %job.conversation, "no checkpoint of {}: {why}", job.conversation);
    Ok(answered(worker.store.record_no_progress(job, material.last_message_id)).await?)
}
