//! Summarizes the large messages of a tail that have no summary yet.

use anneal_core::tokens::Encoding;
use anneal_llm::{Purpose, Source, SourceBody, SummaryFailure};
use anneal_store::{
    ClaimedJob, MessageSummary, ModelSpend, SummaryKind, SummarySpec, UnsummarizedMessage,
    failpoint,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::JobSpec;
use crate::{
    deadline::retry_while_busy,
    retry_policy::{JobError, Outcome},
    summarize::{Material, SummarySetup},
    worker::Worker,
};

/// A job that summarizes messages may take minutes, so one tenant gets at most half of a claim, but
/// at least one job.
pub(super) const SPEC: JobSpec = JobSpec {
    batch: |settings| settings.summary_concurrency,
    concurrency: |settings| settings.summary_concurrency,
    per_tenant: |limit| (limit / 2).max(1),
};

/// Most messages that one run summarizes; the others wait for the next run of the same job. One
/// message is in memory at a time.
const MAX_MESSAGES: i64 = 8;

pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let waiting = worker
        .store
        .find_unsummarized_messages(job, MAX_MESSAGES + 1)
        .await?;
    let setup = worker.summarizers.setup();
    let mut summaries = Vec::new();
    let mut failed = None;
    for id in waiting.iter().copied().take(MAX_MESSAGES as usize) {
        let Some(message) = worker.store.find_unsummarized_message(job, id).await? else {
            continue;
        };
        match summarize(worker, &setup, job, message, lost).await {
            Ok(summary) => summaries.push(MessageSummary {
                message: id,
                summary,
            }),
            Err(error) => {
                warn!(conversation = %job.conversation, message_id = id.0, "no summary of message {id}: {error}");
                // The model would fail for the next message as well, or must not be called.
                let no_more_calls = error.rules_out_other_calls();
                failed = Some(error);
                if no_more_calls {
                    break;
                }
            }
        }
    }
    // If a message has failed, stores the summaries of the others. The job then fails, and its next
    // run tries the messages without a summary again.
    if let Some(error) = failed {
        retry_while_busy(|| worker.store.store_summaries(job, &summaries)).await?;
        return Err(error);
    }
    failpoint!("summary.made");
    let more = waiting.len() as i64 > MAX_MESSAGES;
    let committed =
        retry_while_busy(|| worker.store.record_summaries(job, &summaries, more)).await?;
    let summarized = summaries.iter().filter(|one| one.summary.is_some()).count();
    info!(conversation = %job.conversation, "summarized {summarized} of {} large messages of {}", summaries.len(), job.conversation);
    Ok(committed)
}

/// Summarizes one message. None if no summary would be shorter than the message; another try would
/// not change that.
async fn summarize(
    worker: &Worker,
    setup: &SummarySetup,
    job: &ClaimedJob,
    message: UnsummarizedMessage,
    lost: &CancellationToken,
) -> Result<Option<SummarySpec>, JobError> {
    let encoding = message.encoding;
    let material = Material {
        purpose: Purpose::Message,
        encoding,
        previous: None,
        quoted: None,
        sources: vec![Source {
            message_id: message.id,
            role: message.role,
            body: SourceBody::Original(message.parts),
        }],
        focus: String::new(),
        target: Purpose::Message.target(message.tokens, setup.settings.message_tokens),
    };
    let summarized = worker.summarizers.summarize(setup, job, material, lost);
    match summarized.await {
        Err(JobError::Summary(SummaryFailure::EmptySource)) => Ok(Some(blank(encoding))),
        Err(JobError::Summary(SummaryFailure::NotShorter | SummaryFailure::TargetTooSmall(_))) => {
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// The summary of a message that holds only white space.
fn blank(encoding: Encoding) -> SummarySpec {
    let text = "[blank]".to_owned();
    SummarySpec {
        tokens: encoding.counter().count(&text),
        text,
        kind: SummaryKind::Extractive,
        model: "blank".into(),
        prompt_version: 1,
        spent: ModelSpend::default(),
        duration_ms: 0,
    }
}
