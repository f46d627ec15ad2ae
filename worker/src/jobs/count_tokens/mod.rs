//! Counts the tokens of messages that were not counted when they were appended, if there are any.
//! The store then checks the triggers of summaries and checkpoints.
//!
//! Conversations are counted in batches, many in one transaction. A conversation that would delay
//! the batch (a large one) or fail it is counted by itself.

use std::{collections::HashMap, time::Instant};

use anneal_core::{
    caller::ConversationId,
    message::{Message, MessageId},
    tokens::{Tokens, count_message_while},
};
use anneal_store::{ClaimedJob, CountedMessages, Entity, JobCommit, StoreError, UncountedMessages};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, debug, debug_span};

use super::JobSpec;
use crate::{
    job_span,
    leases::Lease,
    retry_policy::{JobError, Outcome},
    worker::Worker,
};

/// A tenant has no limit but its share of the claim: a batch takes milliseconds, and the next claim
/// continues with other tenants.
pub(super) const SPEC: JobSpec = JobSpec {
    batch: |settings| settings.count_batch,
    concurrency: |settings| settings.count_concurrency,
    per_tenant: |limit| limit,
};

/// A batch skips a conversation that another transaction has locked. After this many batches the
/// conversation is counted by itself, by a transaction that waits for the lock.
const MAX_SKIPS: u8 = 8;

/// Counts the messages of one job's conversation and records the counts.
pub(super) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    let uncounted = worker.store.read_uncounted_page(job).await?;
    let uncounted = uncounted.ok_or(StoreError::NotFound(Entity::Conversation))?;
    let counted_before = uncounted.counted;
    let thread_permit = worker
        .threads
        .acquire()
        .await
        .map_err(|_| JobError::Cancelled)?;
    let counts = count(vec![(uncounted, lost.clone())])
        .await?
        .pop()
        .flatten()
        .ok_or(JobError::Cancelled)?;
    drop(thread_permit);
    Ok(worker
        .store
        .record_counts_of_one(&CountedMessages {
            job,
            counted: counted_before,
            counts,
        })
        .await?)
}

/// Counts the conversations of many jobs, records the counts in one transaction, and records the
/// result of each job.
///
/// Returns the jobs that were not counted. Those for which [`can_join_next_batch`] is true had a
/// conversation that another transaction has locked, or that was deleted after the batch had read
/// it. The others must run by themselves: jobs of large conversations and of those deleted before,
/// jobs that eight batches have skipped, and all jobs if the batch failed.
pub(crate) async fn count_batch(worker: &Worker, leases: Vec<Lease>) -> Vec<Lease> {
    if leases.is_empty() {
        return leases;
    }
    let started = Instant::now();
    let spans: Vec<Span> = leases
        .iter()
        .map(|lease| batched_job_span(&lease.job))
        .collect();
    let recorded = count_and_record(worker, &leases)
        .await
        .unwrap_or_else(|error| {
            debug!(
                "{} conversations are counted one by one: {error}",
                leases.len()
            );
            HashMap::new()
        });
    let mut not_counted = Vec::new();
    for (mut lease, span) in leases.into_iter().zip(spans) {
        match recorded.get(&lease.job.conversation) {
            Some(BatchResult::Committed(committed)) => {
                worker
                    .record(&lease.job, Ok(committed.clone()), started.elapsed())
                    .instrument(span)
                    .await;
            }
            Some(BatchResult::Skipped) => {
                lease.times_skipped += 1;
                not_counted.push(lease);
            }
            None => {
                // So that the job does not join the next batch.
                lease.times_skipped = MAX_SKIPS;
                not_counted.push(lease);
            }
        }
    }
    not_counted
}

/// The span of a job in a batch. It takes the time of the whole batch. Its level is that of details,
/// because a batch has up to hundreds of jobs: unless traces are exported, no span is opened.
fn batched_job_span(job: &ClaimedJob) -> Span {
    let span = debug_span!("job", job.kind = job.kind.name(), conversation = %job.conversation, tenant = %job.tenant);
    job_span::continue_trace(&span, job);
    span
}

/// Whether a job that a batch did not count goes into the next batch. It does if its conversation
/// was skipped, because an append holds the lock for milliseconds only, but not after [`MAX_SKIPS`]
/// batches.
pub(crate) const fn can_join_next_batch(lease: &Lease) -> bool {
    lease.times_skipped < MAX_SKIPS
}

/// The outcome for a conversation that a batch has read and counted.
enum BatchResult {
    /// The counts were recorded.
    Committed(JobCommit),
    /// Nothing was recorded: another transaction has locked the conversation, or it was deleted.
    Skipped,
}

/// Reads, counts and records the messages of the jobs' conversations. Returns the result by
/// conversation. A conversation without a result was not read, or its job has lost its lease.
async fn count_and_record(
    worker: &Worker,
    leases: &[Lease],
) -> Result<HashMap<ConversationId, BatchResult>, JobError> {
    let jobs: Vec<&ClaimedJob> = leases.iter().map(|lease| &lease.job).collect();
    let mut uncounted = worker.store.read_uncounted_messages(&jobs).await?;
    let (mut jobs_of_pages, mut pages) = (Vec::new(), Vec::new());
    for lease in leases {
        if let Some(uncounted) = uncounted.remove(&lease.job.conversation) {
            jobs_of_pages.push((&lease.job, uncounted.counted));
            pages.push((uncounted, lease.lost.clone()));
        }
    }
    // Takes no permit of `worker.threads`: large messages of single jobs may hold those for
    // seconds.
    let counts = count(pages).await?;
    let counted_messages: Vec<CountedMessages<'_>> = jobs_of_pages
        .into_iter()
        .zip(counts)
        .filter_map(|((job, counted_before), counts)| {
            Some(CountedMessages {
                job,
                counted: counted_before,
                counts: counts?,
            })
        })
        .collect();
    if counted_messages.is_empty() {
        return Ok(HashMap::new());
    }
    let recorded = worker.store.record_counts(&counted_messages).await?;
    let results = recorded
        .into_iter()
        .map(|committed| committed.map_or(BatchResult::Skipped, BatchResult::Committed));
    Ok(counted_messages
        .iter()
        .map(|one| one.job.conversation)
        .zip(results)
        .collect())
}

/// Counts the pages on a blocking thread; None for a page whose job lost its lease meanwhile.
async fn count(
    pages: Vec<(UncountedMessages, CancellationToken)>,
) -> Result<Vec<Option<Vec<(MessageId, Tokens)>>>, JobError> {
    let counting = tokio::task::spawn_blocking(move || {
        pages
            .into_iter()
            .map(|(uncounted, lost)| count_page(uncounted, &lost))
            .collect()
    });
    counting.await.map_err(|_| JobError::Panicked)
}

fn count_page(
    uncounted: UncountedMessages,
    lost: &CancellationToken,
) -> Option<Vec<(MessageId, Tokens)>> {
    let keep_going = || !lost.is_cancelled();
    let mut counts = Vec::with_capacity(uncounted.messages.len());
    for (id, role, parts) in uncounted.messages {
        let message = Message {
            role,
            parts,
            metadata: std::collections::BTreeMap::new(),
        };
        counts.push((
            id,
            count_message_while(uncounted.encoding, &message, &keep_going)?,
        ));
    }
    Some(counts)
}
