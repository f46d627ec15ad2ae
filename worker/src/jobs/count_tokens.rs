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
    run::Worker,
};

/// How often conversations that others hold are tried again together. An append holds its conversation for milliseconds.
const TRIES: usize = 3;
/// How long conversations that are counted together may take: as long as a lease that nobody extends.
const PATIENCE: Duration = Duration::from_secs(LEASE_SECONDS as u64);

/// Counts what one job's conversation has waiting.
pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let uncounted = worker.store.uncounted_page(job).await?;
    let uncounted = uncounted.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let counted = uncounted.counted;
    let thread = worker.threads.acquire().await.map_err(|_| JobError::Cancelled)?;
    let counts = count(vec![(uncounted, lost.clone())]).await?.pop().flatten().ok_or(JobError::Cancelled)?;
    drop(thread);
    Ok(worker.store.record_counts_alone(&CountedMessages { job, counted, counts }).await?)
}

/// Counts the conversations of many jobs together, and records what came of each. Returns the jobs that are to run by
/// themselves: what is large, what others hold, what is gone; all, where one fails the others.
pub(crate) async fn run_together(worker: &Worker, mut held: Vec<Lease>) -> Vec<Lease> {
    if held.is_empty() {
        return held;
    }
    let started = Instant::now();
    let mut done = HashMap::with_capacity(held.len());
    // A connection may be dead without anybody saying so.
    let counted = timeout(PATIENCE, together(worker, &held, &mut done)).await;
    if let Err(error) = counted.unwrap_or(Err(JobError::Store(StoreError::Silent))) {
        debug!("{} conversations are counted one by one: {error}", held.len() - done.len());
    }
    for lease in &held {
        if let Some(committed) = done.get(&lease.job.conversation) {
            worker.record(&lease.job, Ok(committed.clone()), started.elapsed()).await;
        }
    }
    held.retain(|lease| !done.contains_key(&lease.job.conversation));
    held
}

/// Reads, counts and records; what was committed is in `done`, after an error too.
async fn together(
    worker: &Worker,
    held: &[Lease],
    done: &mut HashMap<ConversationId, Committed>,
) -> Result<(), JobError> {
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
    let mut waiting: Vec<CountedMessages<'_>> = counted
        .filter_map(|((job, counted), counts)| Some(CountedMessages { job, counted, counts: counts? }))
        .collect();
    for _ in 0..TRIES {
        if waiting.is_empty() {
            break;
        }
        let recorded = worker.store.record_counts(&waiting).await?;
        for (one, committed) in waiting.iter().zip(recorded) {
            done.extend(committed.map(|committed| (one.job.conversation, committed)));
        }
        waiting.retain(|one| !done.contains_key(&one.job.conversation));
    }
    Ok(())
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
