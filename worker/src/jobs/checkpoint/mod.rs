//! Summarizes the older part of the tail and commits the summary as a checkpoint, which moves the
//! boundary. `prepare` writes summaries ahead.

mod prepare;

use anneal_core::{
    cut::{self, Cut, MAX_GENERATIONS, Trigger},
    digest,
    message::{MessageId, plain_text},
    policy::{Policy, TailFigures},
    tokens::Tokens,
};
use anneal_llm::{Purpose, Source, SourceBody, SummaryFailure};
use anneal_store::{
    CheckpointDraft, CheckpointMaterial, CheckpointSource, CheckpointSourceBody, ClaimedJob,
    Entity, PreviousCheckpoint, StoreError, failpoint,
};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::JobSpec;
use crate::{
    deadline::retry_while_busy,
    retry_policy::{JobError, Outcome},
    summarize::Material,
    worker::Worker,
};

/// A checkpoint job may take minutes, so one tenant gets at most half of a claim, but at least one
/// job.
pub(super) const SPEC: JobSpec = JobSpec {
    batch: |settings| settings.summary_concurrency,
    concurrency: |settings| settings.summary_concurrency,
    per_tenant: |limit| (limit / 2).max(1),
};

pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let material = worker.store.read_checkpoint_material(job).await?;
    let material = material.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let figures = cut::tail_figures(&material.tail, material.head_tokens());
    let due = cut::due_trigger(&figures, &material.policy);
    let Some(trigger) = job.manual.as_ref().map(|_| Trigger::Manual).or(due) else {
        return prepare::run_if_due(worker, job, &material, &figures, lost).await;
    };
    if trigger != Trigger::Manual
        && let Some(draft) = prepare::find_usable(worker, job, &material, &figures, trigger).await?
    {
        return commit(worker, job, &draft).await;
    }
    let keep = job
        .manual
        .as_ref()
        .and_then(|manual| manual.keep)
        .unwrap_or(material.policy.keep_recent);
    let policy = Policy {
        keep_recent: keep,
        ..material.policy
    };
    let Some(cut) = cut::plan(&material.tail, &policy, trigger, material.head_tokens()) else {
        return record_no_progress(worker, job, &material, "no message can be cut off").await;
    };
    let tokens_before = tokens_before(&material, &figures);
    let plan = Plan {
        cut,
        trigger,
        tokens_before,
    };
    match write_draft(worker, job, &material, plan, lost).await {
        Ok(draft) if draft.tokens_after < tokens_before => commit(worker, job, &draft).await,
        Ok(_)
        | Err(JobError::Summary(
            SummaryFailure::NotShorter
            | SummaryFailure::EmptySource
            | SummaryFailure::TargetTooSmall(_),
        )) => record_no_progress(worker, job, &material, "the summary would not be shorter").await,
        Err(error) => Err(error),
    }
}

/// Tokens of the previous summary and the tail.
fn tokens_before(material: &CheckpointMaterial, figures: &TailFigures) -> Tokens {
    let previous = material.previous.as_ref();
    figures.tail + previous.map_or(Tokens::ZERO, |previous| previous.tokens)
}

/// Which messages to summarize, and why.
struct Plan {
    cut: Cut,
    trigger: Trigger,
    /// Tokens of the previous summary and the tail, before this checkpoint.
    tokens_before: Tokens,
}

/// Most bytes of content that the rebuild after [`MAX_GENERATIONS`] may read. If there are more,
/// the next summary is built on the previous one after all.
const MAX_REBUILD_BYTES: u64 = 32 * 1024 * 1024;

/// Finds the previous checkpoint whose summary is the base of the new one. None when there is none,
/// or when the summary is rebuilt from the messages.
async fn find_base_checkpoint<'a>(
    worker: &Worker,
    job: &ClaimedJob,
    material: &'a CheckpointMaterial,
) -> Result<Option<&'a PreviousCheckpoint>, JobError> {
    let Some(previous) = &material.previous else {
        return Ok(None);
    };
    if previous.generation < MAX_GENERATIONS {
        return Ok(Some(previous));
    }
    let after = material.separator.unwrap_or_default();
    let bytes = worker
        .store
        .measure_content(job, after, previous.last, MAX_REBUILD_BYTES)
        .await?;
    Ok((bytes > MAX_REBUILD_BYTES).then_some(previous))
}

/// Reads the messages before the cut, summarizes them and drafts the checkpoint. No database
/// connection is held while the summary is written.
async fn write_draft(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    Plan {
        cut,
        trigger,
        tokens_before,
    }: Plan,
    lost: &CancellationToken,
) -> Result<CheckpointDraft, JobError> {
    let base = find_base_checkpoint(worker, job, material).await?;
    let separator = material.separator.unwrap_or_default();
    let after = base.map_or(separator, |base| base.last);
    let sources = worker
        .store
        .read_checkpoint_sources(job, &material.policy, after, cut.last)
        .await?;
    let source_digest = digest::of_sources(
        sources
            .iter()
            .map(|source| (source.id, source.content_digest.as_slice())),
    );
    let replaced_tokens = tokens_before.less(cut.kept);
    let setup = worker.summarizers.setup();
    let to_summarize = Material {
        purpose: Purpose::Range,
        encoding: material.encoding,
        previous: base.map(|base| base.summary.clone()),
        quoted: quote(&sources, &cut.quoted),
        sources: sources.into_iter().filter(stands).map(source).collect(),
        focus: job
            .manual
            .as_ref()
            .map(|manual| manual.focus.clone())
            .unwrap_or_default(),
        target: Purpose::Range.target(replaced_tokens, setup.settings.checkpoint_tokens),
    };
    let summary = worker
        .summarizers
        .summarize(&setup, job, to_summarize, lost)
        .await?;
    failpoint!("checkpoint.summarized");
    Ok(CheckpointDraft {
        separator: material.separator,
        previous: material.previous.as_ref().map(|previous| previous.last),
        source_first: after.next(),
        last: cut.last,
        tokens_before,
        tokens_after: cut.kept + summary.tokens,
        summary,
        source_digest,
        generation: base.map_or(0, |base| base.generation) + 1,
        trigger: Some(trigger),
    })
}

/// If the cut splits a turn: the user messages that open the turn, as one text that the summary
/// quotes, and the id of the first one.
fn quote(sources: &[CheckpointSource], ids: &[MessageId]) -> Option<(MessageId, String)> {
    let first = *ids.first()?;
    let quoted = sources
        .iter()
        .filter(|source| ids.binary_search(&source.id).is_ok());
    let texts: Vec<String> = quoted
        .map(|source| match &source.body {
            CheckpointSourceBody::Content(parts) => plain_text(parts),
            CheckpointSourceBody::Summary(summary) => summary.clone(),
        })
        .collect();
    Some((first, texts.join("\n\n")))
}

/// Whether the message stands. A withdrawn one has no content. It is a part of the digest, but the
/// summarizer does not read it.
fn stands(source: &CheckpointSource) -> bool {
    !matches!(&source.body, CheckpointSourceBody::Content(parts) if parts.is_empty())
}

fn source(source: CheckpointSource) -> Source {
    let body = match source.body {
        CheckpointSourceBody::Content(parts) => SourceBody::Original(parts),
        CheckpointSourceBody::Summary(summary) => SourceBody::CachedSummary(summary),
    };
    Source {
        message_id: source.id,
        role: source.role,
        body,
    }
}

async fn commit(worker: &Worker, job: &ClaimedJob, draft: &CheckpointDraft) -> Outcome {
    let committed = retry_while_busy(|| worker.store.commit_checkpoint(job, draft)).await?;
    if committed.results_kept {
        metrics::counter!("anneal_checkpoints_total", "trigger" => draft.trigger.map_or("imported", trigger_name))
            .increment(1);
        info!(
            conversation = %job.conversation, last_message_id = draft.last.0, tokens_before = draft.tokens_before.get(),
            tokens_after = draft.tokens_after.get(), duration_ms = draft.summary.duration_ms,
            "checkpoint of {} at message {}: {} tokens became {}",
            job.conversation, draft.last, draft.tokens_before, draft.tokens_after
        );
    } else {
        info!(conversation = %job.conversation, "the boundary of {} moved while the summary was written, starting again", job.conversation);
    }
    Ok(committed)
}

const fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Tokens => "tokens",
        Trigger::Messages => "messages",
        Trigger::Manual => "manual",
        Trigger::Idle => "idle",
    }
}

/// Records that no checkpoint was made. Triggers enqueue no further job until new messages arrive,
/// the policy changes or a separator is deleted.
async fn record_no_progress(
    worker: &Worker,
    job: &ClaimedJob,
    material: &CheckpointMaterial,
    why: &str,
) -> Outcome {
    metrics::counter!("anneal_checkpoint_no_progress_total").increment(1);
    info!(conversation = %job.conversation, "no checkpoint of {}: {why}", job.conversation);
    Ok(worker
        .store
        .record_no_progress(job, material.last_message_id)
        .await?)
}
