//! Ends a claimed job: within the transaction of its results, with a failure, or by putting it back
//! into the queue.

use std::collections::HashMap;

use anneal_core::{caller::ConversationId, job::JobKind};
use uuid::Uuid;

use super::{claim::ClaimedJob, enqueue::enqueue_jobs};
use crate::{
    Store,
    connection::{BoundedConnection, row_security::Scope},
    error::StoreError,
    failpoint,
};

/// How a job ended that did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishOutcome {
    /// There is nothing more to do.
    Done,
    /// The job waits again, because new work arrived meanwhile or the job left some work.
    Again,
}

/// Outcome of a transaction that wrote a job's results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCommit {
    /// Whether the job is done or waits again.
    pub finished: FinishOutcome,
    /// The jobs that the results made due.
    pub caused: Vec<JobKind>,
    /// False: the results were discarded, because the conversation had changed. True: they were
    /// stored, or there were none.
    pub results_kept: bool,
}

/// Outcome of a failure for its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailOutcome {
    /// The job waits for its next try.
    Retry,
    /// The job was given up.
    Dead,
}

impl Store {
    /// Ends a job that had nothing to write.
    pub async fn finish_job(&self, job: &ClaimedJob) -> Result<FinishOutcome, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let finished = finish_within_transaction(&mut db, job).await;
        db.settle(finished).await
    }

    /// Records a failure: the job waits `delay_ms`, or is given up after `most_attempts` starts.
    pub async fn fail_job(
        &self,
        job: &ClaimedJob,
        error: &str,
        delay_ms: i64,
        most_attempts: i16,
    ) -> Result<FailOutcome, StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        let failed = record_failure(&mut db, job, error, (delay_ms, most_attempts)).await;
        db.settle(failed).await
    }

    /// Puts jobs back into the queue as if they had not been claimed. They are due after
    /// `delay_ms`.
    pub async fn release_jobs(&self, jobs: &[ClaimedJob], delay_ms: i64) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(Scope::Queue).await?;
        for job in jobs {
            release_job(&mut db, job, "", delay_ms).await?;
        }
        db.release().await?;
        Ok(())
    }

    /// Defers a job by `delay_ms` because something that it needs is unavailable until then. This
    /// start does not count.
    pub async fn defer_job(
        &self,
        job: &ClaimedJob,
        why: &str,
        delay_ms: i64,
    ) -> Result<(), StoreError> {
        let mut db = self.jobs.checkout(job.caller()).await?;
        release_job(&mut db, job, why, delay_ms).await?;
        db.release().await?;
        Ok(())
    }
}

/// Records a failure of a job, in the open transaction of `db` if there is one: the job waits
/// `delay_ms`, or is given up after `most_attempts` starts.
pub(crate) async fn record_failure(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
    error: &str,
    (delay_ms, most_attempts): (i64, i16),
) -> Result<FailOutcome, StoreError> {
    failpoint!("fail.begun");
    let row = sqlx::query_file!(
        "sql/fail_job.sql",
        job.kind.code(),
        job.conversation.0,
        job.lease,
        error,
        delay_ms as f64,
        most_attempts,
    )
    .fetch_optional(db)
    .await?;
    failpoint!("fail.recorded");
    match row {
        Some(row) if row.dead => Ok(FailOutcome::Dead),
        Some(_) => Ok(FailOutcome::Retry),
        None => Err(StoreError::LeaseLost),
    }
}

async fn release_job(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
    why: &str,
    delay_ms: i64,
) -> Result<(), StoreError> {
    sqlx::query_file!(
        "sql/release_job.sql",
        job.kind.code(),
        job.conversation.0,
        job.lease,
        why,
        delay_ms as f64
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A job to end.
pub(crate) struct JobEnd<'a> {
    /// The claimed job.
    pub(crate) job: &'a ClaimedJob,
    /// Whether the job left something to do, so that it waits again.
    pub(crate) more: bool,
}

/// Ends a job within the transaction of its results. Fails if the lease is lost: then the results
/// must not be committed.
pub(crate) async fn finish_within_transaction(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
) -> Result<FinishOutcome, StoreError> {
    let finished = finish_jobs(db, job.kind, &[JobEnd { job, more: false }]).await?;
    finished.into_values().next().ok_or(StoreError::LeaseLost)
}

/// Ends a job within the transaction of its results, and enqueues the jobs that are due because of
/// them. Those continue the trace of this job. Rows of jobs are locked in the order of their kinds.
/// If the job causes one of its own kind, that is enqueued before the job ends, so that the job
/// waits again.
pub(crate) async fn finish_and_enqueue(
    db: &mut BoundedConnection,
    job: &ClaimedJob,
    caused: &[JobKind],
) -> Result<FinishOutcome, StoreError> {
    let (before, after): (Vec<_>, Vec<_>) = caused
        .iter()
        .partition(|kind| kind.code() <= job.kind.code());
    let trace_context = job.trace_context.as_deref();
    enqueue_jobs(db, job.caller(), job.conversation, &before, trace_context).await?;
    let finished = finish_within_transaction(db, job).await?;
    enqueue_jobs(db, job.caller(), job.conversation, &after, trace_context).await?;
    Ok(finished)
}

/// Ends jobs of one kind within the transaction of their results. Fails if at least one lease is
/// lost: then none of the results may be committed.
pub(crate) async fn finish_jobs(
    db: &mut BoundedConnection,
    kind: JobKind,
    endings: &[JobEnd<'_>],
) -> Result<HashMap<ConversationId, FinishOutcome>, StoreError> {
    let conversations: Vec<Uuid> = endings.iter().map(|end| end.job.conversation.0).collect();
    let leases: Vec<Uuid> = endings.iter().map(|end| end.job.lease).collect();
    let generations: Vec<i64> = endings.iter().map(|end| end.job.generation).collect();
    let more: Vec<bool> = endings.iter().map(|end| end.more).collect();
    failpoint!("finish.begun");
    let rows = sqlx::query_file!(
        "sql/finish_jobs.sql",
        kind.code(),
        &conversations,
        &leases,
        &generations,
        &more
    )
    .fetch_all(db)
    .await?;
    if rows.len() < endings.len() {
        return Err(StoreError::LeaseLost);
    }
    failpoint!("finish.ended");
    let finished = rows.into_iter().map(|row| {
        (
            ConversationId(row.conversation_id),
            // Clean: the job left no work, and no new work arrived since the claim.
            if row.clean {
                FinishOutcome::Done
            } else {
                FinishOutcome::Again
            },
        )
    });
    Ok(finished.collect())
}
