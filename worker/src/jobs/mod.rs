//! The work of each kind of job, one folder per kind. A job reads, works without a database
//! connection, and writes its results in one transaction. A folder's `SPEC` says how the runner
//! schedules the kind.
//!
//! - `count_tokens`: token counts of messages that have none yet, many conversations per
//!   transaction.
//! - `checkpoint`: a summary of the older part of the tail, which moves the boundary.
//! - `summarize_messages`: summaries of large messages.

mod checkpoint;
mod count_tokens;
mod summarize_messages;

use anneal_core::job::JobKind;
use anneal_store::{ClaimedJob, failpoint};
use tokio_util::sync::CancellationToken;

pub(crate) use count_tokens::{can_join_next_batch, count_batch};

use crate::{retry_policy::Outcome, settings::WorkerSettings, worker::Worker};

/// How the runner schedules one kind of job.
pub(crate) struct JobSpec {
    /// Most jobs that one claim takes.
    pub(crate) batch: fn(&WorkerSettings) -> u32,
    /// Most jobs that run at once. For counting: outside of a batch.
    pub(crate) concurrency: fn(&WorkerSettings) -> u32,
    /// Most jobs that one tenant gets in a claim. The argument is the most that the claim takes.
    pub(crate) per_tenant: fn(u32) -> u32,
}

/// The `SPEC` of a kind.
pub(crate) const fn spec(kind: JobKind) -> &'static JobSpec {
    match kind {
        JobKind::CountTokens => &count_tokens::SPEC,
        JobKind::Checkpoint => &checkpoint::SPEC,
        JobKind::SummarizeMessages => &summarize_messages::SPEC,
    }
}

/// Runs one job. `lost` is cancelled when the job's lease is lost.
pub(crate) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    failpoint!("job.begun");
    match job.kind {
        JobKind::CountTokens => count_tokens::run(worker, job, lost).await,
        JobKind::Checkpoint => checkpoint::run(worker, job, lost).await,
        JobKind::SummarizeMessages => summarize_messages::run(worker, job, lost).await,
    }
}
