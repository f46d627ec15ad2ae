//! Checks of the promises on stored rows.
//!
//! - `verify`: everything about one conversation, on request.
//! - `sample`: recent messages of recently active conversations, now and then, at a bounded cost.

mod sample;
mod verify;

pub use sample::AuditCandidates;
pub use verify::{VerifyReport, Violation};
