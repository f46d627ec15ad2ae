//! The job queue: rows of `ai_job` and `ai_job_dead`. A claim carries a fencing token (`lease`); a
//! worker that has lost its lease can change nothing any more.
//!
//! - `enqueue`: marks conversations dirty, within the transaction that causes the work.
//! - `claim`: which due jobs a worker gets.
//! - `heartbeat`: extends leases, checks them, and frees jobs whose lease ran out.
//! - `finish`: ends a job within the transaction of its results, or records a failure, a release, a
//!   deferral.
//! - `operate`: what operators list, requeue and discard, and the queue's figures.
//! - `notify`: NOTIFY from servers to workers that there is work.

mod claim;
mod enqueue;
mod finish;
mod heartbeat;
mod notify;
mod operate;

pub use claim::{Claim, ClaimedJob, ManualCompaction};
pub use finish::{FailOutcome, FinishOutcome, JobCommit};
pub use heartbeat::RescueOutcome;
pub use notify::{JobNotifications, JobNotifier};
pub use operate::{Job, JobFilter, JobPage, JobState, QueueFigures};

pub(crate) use enqueue::{enqueue_jobs, enqueue_jobs_of_many, enqueue_manual_checkpoint};
pub(crate) use finish::{JobEnd, finish_and_enqueue, finish_jobs, finish_within_transaction};
pub(crate) use heartbeat::lock_claimed_job;
