//! Summarises the large messages of a tail that lack a summary.

use anneal_core::tokens::Encoding;
use anneal_llm::{Purpose, Source, SourceBody, SummaryFailure};
use anneal_store::{ClaimedJob, MessageSummary, ModelSpend, SummaryKind, SummarySpec, UnsummarizedMessage, failpoint};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    outcome::{JobError, Outcome},
    patience::{answered, stored},
    run::Worker,
    summarize::Material,
};

/// Messages summarised in one run; more wait for the next run of the same job. One message is in memory at a time.
const MESSAGES: i64 = 8;

pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let waiting = answered(worker.store.unsummarized_messages(job, MESSAGES + 1)).await?;
    let mut summaries = Vec::new();
    let mut failed = None;
    for id in waiting.iter().copied().take(MESSAGES as usize) {
        let Some(message) = answered(worker.store.unsummarized_message(job, id)).await? else { continue };
        match summarize(worker, job, message, lost).await {
            Ok(summary) => summaries.push(MessageSummary { message: id, summary }),
            Err(error) => {
                warn!(conversation = %job.conversation, message_id = id.0, "no summary of message {id}: {error}");
                // A model that is not to be had now is not to be had for the next message either.
                let enough = error.is_about_the_model();
                failed = Some(error);
                if enough {
                    break;
                }
            }
        }
    }
    // What could be made is kept; what could not be is tried again, and in the end given up visibly.
    if let Some(error) = failed {
        stored(|| worker.store.keep_summaries(job, &summaries)).await?;
        return Err(error);
    }
    failpoint!("summary.made");
    let more = waiting.len() as i64 > MESSAGES;
    let committed = stored(|| worker.store.record_summaries(job, &summaries, more)).await?;
    info!(conversation = %job.conversation, "summarised {} large messages of {}", summaries.len(), job.conversation);
    Ok(committed)
}

/// The summary of one message; None when none would be shorter, which trying again does not change.
async fn summarize(
    worker: &Worker,
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
        sources: vec![Source { message_id: message.id, role: message.role, body: SourceBody::Original(message.parts) }],
        focus: String::new(),
        target: Purpose::Message.target(message.tokens, worker.lengths.message_tokens),
    };
    match worker.summaries.make(job, material, lost).await {
        Err(JobError::Summary(SummaryFailure::NothingSaid)) => Ok(Some(blank(encoding))),
        Err(JobError::Summary(SummaryFailure::NotShorter | SummaryFailure::NoRoom(_))) => Ok(None),
        made => made.map(Some),
    }
}

/// Nothing but white space can be said about nothing but white space.
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
