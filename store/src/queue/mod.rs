//! The job queue: the tables `ai_job` and `ai_job_dead`. Each claim has a fencing token (`lease`),
//! so that a worker that has lost its lease can change nothing any more.
//!
//! - `enqueue`: enqueues jobs within the transaction that causes the work.
//! - `claim`: claims due jobs for a worker.
//! - `compactions`: the compactions that callers ask for, which are the argument of a checkpoint
//!   job.
//! - `heartbeat`: the leases of claimed jobs: extends them, checks them, and frees jobs whose lease
//!   has ended (`rescue_jobs`).
//! - `finish`: ends a job within the transaction of its results, or records a failure, a release, a
//!   deferral.
//! - `operate`: lists, requeues and discards jobs for operators, and reads the queue's figures.
//! - `notify`: tells workers that there is work (PostgreSQL's NOTIFY).

mod claim;
mod compactions;
mod enqueue;
mod finish;
mod heartbeat;
mod notify;
mod operate;

pub use claim::{Claim, ClaimedJob};
pub use compactions::{ManualCompaction, QueuedCompaction};
pub use finish::{FailOutcome, FinishOutcome, JobCommit};
pub use heartbeat::RescueOutcome;
pub use notify::{JobNotifications, JobNotifier};
pub use operate::{DeadJobOfTenant, Job, JobFilter, JobPage, JobState, QueueFigures};

pub(crate) use compactions::forget_compactions;
pub(crate) use enqueue::{DueJob, enqueue_jobs, enqueue_jobs_of_many, enqueue_manual_checkpoint};
pub(crate) use finish::{
    JobEnd, finish_and_enqueue, finish_jobs, finish_within_transaction, record_failure,
};
pub(crate) use heartbeat::lock_claimed_job;
