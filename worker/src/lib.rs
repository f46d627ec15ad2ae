//! The background work of anneal: claims jobs, runs them, records what came of them. Any number of worker processes may
//! run beside each other; the database is all they share.

mod auditor;
mod chores;
mod clock;
mod counting;
mod desk;
mod jobs;
mod leases;
mod model_pauses;
mod outcome;
mod patience;
mod run;
mod settings;
mod summarize;

pub use run::Worker;
pub use settings::{Fallback, SummarizerSettings, WorkerSettings};
