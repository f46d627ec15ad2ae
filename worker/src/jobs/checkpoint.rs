//! Summarises the older part of the tail, and moves the boundary.

use std::time::Instant;

use anneal_core::{
    cut::{self, Cut, Trigger},
    digest,
    message::{MessageId, plain_text},
    policy::Policy,
    tokens::Tokens,
};
use anneal_llm::{Purpose, Source, SourceBody, SummaryFailure};
use anneal_store::{CheckpointDraft, CheckpointMaterial, CheckpointSource, ClaimedJob, Committed, Entity, StoreError};
use tracing::info;

use crate::{
    outcome::{JobError, Outcome},
    run::Worker,
    summarize::Material,
};

pub(super) async fn run(worker: &Worker, job: &ClaimedJob) -> Outcome {
    let material = worker.store.checkpoint_material(job).await?;
    let material = material.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let figures = cut::figures(&material.tail, material.head());
    let due = cut::due(&figures, &material.policy);
    let Some(trigger) = job.manual.as_ref().map(|_| Trigger::Manual).or(due) else {
        // Somebody else's checkpoint, a separator or a new policy has made this one needless.
        let finished = worker.store.finish_job(job).await?;
        return Ok(Committed { finished, caused: Vec::new(), kept: true });
    };
    let keep = job.manual.as_ref().and_then(|manual| manual.keep).unwrap_or(material.policy.keep_recent);
    let policy = Policy { keep_recent: keep, ..material.policy };
    let Some(cut) = cut::plan(&material.tail, &policy, trigger, material.head()) else {
        return no_progress(worker, job, &material, "no message can be cut off").await;
    };
    let before = figures.tail + material.previous.as_ref().map_or(Tokens::ZERO, |previous| previous.tokens);
    match draft(worker, job, &material, cut, trigger, before).await {
        Ok(draft) if draft.tokens_after < before => commit(worker, job, &draft).await,
        Ok(_) | Err(JobError::Summary(SummaryFailure::NotShorter | SummaryFailure::NothingSaid)) => {
            no_progress(worker, job, &material, "the summary would not be shorter").await
        }
        Err(error) => Err(error),
    }
}

/// Reads what the cut takes, has it summarised, and drafts the checkpoint. No connection is held meanwhile.
async fn draft(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    cut: Cut,
    trigger: Trigger,
    before: Tokens,
) -> Result<CheckpointDraft, JobError> {
    let previous = material.previous.as_ref();
    let separator = material.separator.unwrap_or_default();
    let after = previous.map_or(separator, |previous| previous.last);
    let sources = worker.store.checkpoint_sources(job, &material.policy, after, cut.last).await?;
    let source_digest = digest::of_sources(sources.iter().map(|source| (source.id, source.content_digest.as_slice())));
    let taken = before.less(cut.kept);
    let started = Instant::now();
    let summary = worker
        .summaries
        .make(Material {
            purpose: Purpose::Range,
            encoding: material.encoding,
            previous: previous.map(|previous| previous.summary.clone()),
            quoted: quote(&sources, &cut.quoted),
            sources: sources.into_iter().map(source).collect(),
            focus: job.manual.as_ref().map(|manual| manual.focus.clone()).unwrap_or_default(),
            target: Purpose::Range.target(taken, worker.lengths.checkpoint_tokens),
        })
        .await?;
    Ok(CheckpointDraft {
        separator: material.separator,
        previous: previous.map(|previous| previous.last),
        last: cut.last,
        tokens_before: before,
        tokens_after: cut.kept + summary.tokens,
        summary,
        source_digest,
        generation: previous.map_or(0, |previous| previous.generation) + 1,
        trigger,
        duration_ms: i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX),
    })
}

/// The opening user messages of a split turn, as one text.
fn quote(sources: &[CheckpointSource], quoted: &[MessageId]) -> Option<(MessageId, String)> {
    let first = *quoted.first()?;
    let said = sources.iter().filter(|source| quoted.contains(&source.id));
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
    let committed = worker.store.commit_checkpoint(job, draft).await?;
    if committed.kept {
        metrics::counter!("checkpoints_total", "trigger" => trigger_name(draft.trigger)).increment(1);
        info!(
            conversation = %job.conversation, last_message_id = draft.last.0, tokens_before = draft.tokens_before.get(),
            tokens_after = draft.tokens_after.get(), duration_ms = draft.duration_ms,
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
    Ok(worker.store.record_no_progress(job, material.last_message_id).await?)
}
