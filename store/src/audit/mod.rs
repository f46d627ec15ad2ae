//! Checks stored rows against the promises that docs/operations.md numbers.
//!
//! - `verify`: checks all messages and checkpoints of one conversation, on request.
//! - `changes`: the part of it about changes of messages: what they have left.
//! - `checked_rows`: what is checked, and what one check passes on to the next.
//! - `sample`: checks recent messages of recently active conversations, at a bounded cost, and that
//!   work that is due has a job.
//! - `orphans`: finds rows of conversations that do not exist.
//! - `report`: what these report.

mod changes;
mod checked_rows;
mod orphans;
mod report;
mod sample;
mod verify;

pub use orphans::OrphanedRows;
pub use report::{VerifyReport, Violation};
pub use sample::AuditCandidates;
