//! Counts the tokens of new messages; the store then looks at the triggers. Conversations are counted together, many in one
//! transaction. Those that would hold up the others, or fail with them, are counted by themselves.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anneal_core::{
    caller::ConversationId,
    job::LEASE_SECONDS,
    message::{Message, MessageId},
    tokens::{Tokens, count_message_while},
};
use anneal_store::{ClaimedJob, Committed, CountedMessages, Entity, StoreError, UncountedMessages};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    leases::Lease,
    outcome::{JobError, Outcome},
    patience::answered,
    run::Worker,
};

/// How often a conversation may be held by others before it is counted by itself, which waits for it.
const PASSES: u8 = 8;
/// How long conversations that are counted together may take: as long as a lease that nobody extends.
const PATIENCE: Duration = Duration::from_secs(LEASE_SECONDS as u64);

/// Counts what one job's conversation has waiting.
pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let uncounted = answered(worker.store.uncounted_page(job)).await?;
    let uncounted = uncounted.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let counted = uncounted.counted;
    let thread = worker.threads.acquire().await.map_err(|_| JobError::Cancelled)?;
    let counts = count(vec![(uncounted, lost.clone())]).await?.pop().flatten().ok_or(JobError::Cancelled)?;
    drop(thread);
    Ok(answered(worker.store.record_counts_alone(&CountedMessages { job, counted, counts })).await?)
}

/// Counts the conversations of many jobs together, and records what came of each. Returns the others, which
/// [`is_to_wait`] tells apart: those that others hold, and those that are to run by themselves: what is large, what is gone;
/// all, where one fails the others.
pub(crate) async fn run_together(worker: &Worker, held: Vec<Lease>) -> Vec<Lease> {
    if held.is_empty() {
        return held;
    }
    let started = Instant::now();
    // A connection may be dead without anybody saying so.
    let counted = timeout(PATIENCE, together(worker, &held)).await;
    let recorded = counted.unwrap_or(Err(JobError::Store(StoreError::Silent))).unwrap_or_else(|error| {
        debug!("{} conversations are counted one by one: {error}", held.len());
        HashMap::new()
    });
    let mut left = Vec::new();
    for mut lease in held {
        match recorded.get(&lease.job.conversation) {
            Some(Some(committed)) => worker.record(&lease.job, Ok(committed.clone()), started.elapsed()).await,
            Some(None) => {
                lease.passed_over += 1;
                left.push(lease);
            }
            None => {
                lease.passed_over = PASSES;
                left.push(lease);
            }
        }
    }
    left
}

/// Whether a job that was not counted with others is to be tried with the next of them: an append holds its conversation for
/// milliseconds.
pub(crate) const fn is_to_wait(lease: &Lease) -> bool {
    lease.passed_over < PASSES
}

/// Reads, counts and records. None: others hold the conversation. What is missing was not tried.
async fn together(worker: &Worker, held: &[Lease]) -> Result<HashMap<ConversationId, Option<Committed>>, JobError> {
    let jobs: Vec<&ClaimedJob> = held.iter().map(|lease| &lease.job).collect();
    let mut uncounted = worker.store.uncounted_messages(&jobs).await?;
    let (mut read, mut pages) = (Vec::new(), Vec::new());
    for lease in held {
        if let Some(uncounted) = uncounted.remove(&lease.job.conversation) {
            read.push((&lease.job, uncounted.counted));
            pages.push((uncounted, lease.lost.clone()));
        }
    }
    // On a thread beside the others, which large messages may hold for seconds.
    let counts = count(pages).await?;
    let counted = read.into_iter().zip(counts);
    let counted: Vec<CountedMessages<'_>> = counted
        .filter_map(|((job, counted), counts)| Some(CountedMessages { job, counted, counts: counts? }))
        .collect();
    if counted.is_empty() {
        return Ok(HashMap::new());
    }
    let recorded = worker.store.record_counts(&counted).await?;
    Ok(counted.iter().map(|one| one.job.conversation).zip(recorded).collect())
}

/// Counts on a thread of its own; None for a conversation whose lease was lost meanwhile.
async fn count(
    pages: Vec<(UncountedMessages, CancellationToken)>,
) -> Result<Vec<Option<Vec<(MessageId, Tokens)>>>, JobError> {
    let counting = tokio::task::spawn_blocking(move || {
        pages.into_iter().map(|(uncounted, lost)| count_page(uncounted, &lost)).collect()
    });
    counting.await.map_err(|_| JobError::Panicked)
}

fn count_page(uncounted: UncountedMessages, lost: &CancellationToken) -> Option<Vec<(MessageId, Tokens)>> {
    let keep_going = || !lost.is_cancelled();
    let mut counts = Vec::with_capacity(uncounted.messages.len());
    for (id, role, parts) in uncounted.messages {
        let message = Message { role, parts, metadata: std::collections::BTreeMap::new() };
        counts.push((id, count_message_while(uncounted.encoding, &message, &keep_going)?));
    }
    Some(counts)
}
