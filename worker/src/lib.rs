//! The background work of anneal: claims jobs, runs them and records their results. Any number of
//! worker processes may run beside each other; they share only the database.
//!
//! - `run`: the claim loop of each kind of job; heartbeats, maintenance, audits and notifications
//!   beside the loops; shutdown.
//! - `worker`: the worker's state, and how the results of its jobs are recorded.
//! - `jobs`: one folder per kind of job, with its work and its `SPEC` (batch, concurrency, share of
//!   a tenant).
//! - `job_span`: how the span of a job continues the trace of the call that enqueued it.
//! - `leases`: heartbeats for the jobs under way; cancels a job whose lease is lost.
//! - `retry_policy`: whether a failed job is deferred, is tried again, or is given up.
//! - `summarize`: which summarizer writes a summary, and when the built-in one replaces the model.
//! - `summary_calls`: the model calls of a job's summary, and its finished parts.
//! - `model_pauses`: until when jobs must not call the model: those of one tenant, or all jobs.
//! - `deadline`: the usual time limit of calls to the database, and how a finished summary is
//!   stored while no connection is free.
//! - `maintenance`: periodic work: frees orphaned jobs, deletes old partial summaries, reports the
//!   length of the queues and the state of the models' breakers.
//! - `pause`: pauses of loops that every worker runs.
//! - `clock_skew`: detects that the database's clock was set back, and repairs the stored times.
//! - `auditor`: checks a random sample of conversations against the promises of docs/operations.md.
//! - `erasures`: deletes the conversations of users and tenants that are to be erased.
//! - `retention`: deletes what is kept no longer. `retention_settings`: the operator's settings for
//!   it, and which of them apply to a tenant and an agent.
//! - `tenant_cursor`: the position from which claims and audits go through the tenants.
//! - `settings`: the operator's settings for workers and summaries.

mod auditor;
mod clock_skew;
mod deadline;
mod erasures;
mod job_span;
mod jobs;
mod leases;
mod maintenance;
mod model_pauses;
mod pause;
mod retention;
mod retention_settings;
mod retry_policy;
mod run;
mod settings;
mod summarize;
mod summary_calls;
mod tenant_cursor;
mod worker;

pub use retention_settings::{RetentionRule, RetentionSettings, RetentionSettingsError};
pub use settings::{Fallback, SummarizerSettings, WorkerSettings};
pub use worker::Worker;
