//! What each kind of job does. One file per kind: read, work without a connection, write in one transaction.

mod checkpoint;
mod count_tokens;
mod summarize_messages;

use anneal_core::job::JobKind;
use anneal_store::{ClaimedJob, failpoint};
use tokio_util::sync::CancellationToken;

pub(crate) use count_tokens::{is_to_wait, run_together as count_together};

use crate::{outcome::Outcome, run::Worker};

/// Runs one job. `lost` is cancelled when its lease is.
pub(crate) async fn run(worker: &Worker, job: &ClaimedJob, lost: &CancellationToken) -> Outcome {
    failpoint!("job.begun");
    match job.kind {
        JobKind::CountTokens => count_tokens::run(worker, job, lost).await,
        JobKind::Checkpoint => checkpoint::run(worker, job, lost).await,
        JobKind::SummarizeMessages => summarize_messages::run(worker, job, lost).await,
    }
}
