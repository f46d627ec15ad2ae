//! Counts the tokens of new messages; the store then looks at the triggers.

use anneal_core::{
    message::{Message, MessageId, Part, Role},
    tokens::{Encoding, Tokens, count_message_while},
};
use anneal_store::{ClaimedJob, Entity, StoreError};
use tokio_util::sync::CancellationToken;

use crate::{
    outcome::{JobError, Outcome},
    run::Worker,
};

/// Messages counted in one run; more wait for the next run of the same job.
const MESSAGES: i64 = 500;
/// Bytes of text counted in one run beyond the first message.
const BYTES: i64 = 8 * 1024 * 1024;

pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let uncounted = worker.store.uncounted_messages(job, MESSAGES, BYTES).await?;
    let uncounted = uncounted.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let counted = uncounted.counted;
    let counts = count(worker, uncounted.encoding, uncounted.messages, lost.clone()).await?;
    Ok(worker.store.record_counts(job, counted, &counts).await?)
}

/// Counts on a thread of its own: a hostile message can take seconds.
async fn count(
    worker: &Worker,
    encoding: Encoding,
    messages: Vec<(MessageId, Role, Vec<Part>)>,
    lost: CancellationToken,
) -> Result<Vec<(MessageId, Tokens)>, JobError> {
    let _thread = worker.threads.acquire().await.map_err(|_| JobError::Cancelled)?;
    let counting = tokio::task::spawn_blocking(move || {
        let keep_going = || !lost.is_cancelled();
        let mut counts = Vec::with_capacity(messages.len());
        for (id, role, parts) in messages {
            let message = Message { role, parts, metadata: std::collections::BTreeMap::new() };
            counts.push((id, count_message_while(encoding, &message, &keep_going)?));
        }
        Some(counts)
    });
    counting.await.map_err(|_| JobError::Panicked)?.ok_or(JobError::Cancelled)
}
