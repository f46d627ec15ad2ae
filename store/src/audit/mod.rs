//! Checks stored rows against the promises that docs/operations.md numbers.
//!
//! - `verify`: checks everything about one conversation, on request.
//! - `sample`: checks recent messages of recently active conversations, at a bounded cost.

mod sample;
mod verify;

pub use sample::AuditCandidates;
pub use verify::{VerifyReport, Violation};
