//! Checks stored rows against the promises that docs/operations.md numbers.
//!
//! - `verify`: checks all messages and checkpoints of one conversation, on request.
//! - `sample`: checks recent messages of recently active conversations, at a bounded cost, and that
//!   work that is due has a job.

mod sample;
mod verify;

pub use sample::AuditCandidates;
pub use verify::{VerifyReport, Violation};
