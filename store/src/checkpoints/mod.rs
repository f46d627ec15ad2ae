//! Checkpoints: rows of `ai_conversation_checkpoint`.
//!
//! - `read`: stored checkpoints, listed or found by request id.
//! - `request`: compactions that callers ask for, and their status.
//! - `material`: the rows from which a checkpoint is planned, and the messages that its summarizer
//!   reads.
//! - `commit`: the transactions that end a checkpoint job, with or without a checkpoint.
//! - `health`: whether summaries of a conversation can be made now.
//! - `import`: checkpoints whose summaries were made by other systems.
//! - `idle`: checkpoints that contexts make because the provider's cache is cold.
//! - `prepared`: checkpoints that are prepared ahead.

mod commit;
mod health;
mod idle;
mod import;
mod material;
mod prepared;
mod read;
mod request;

pub use commit::CheckpointDraft;
pub use health::SummaryHealth;
pub use idle::IdleCheckpoint;
pub use import::ImportedSummary;
pub use material::{
    CheckpointMaterial, CheckpointSource, CheckpointSourceBody, PreviousCheckpoint,
};
pub use prepared::CheckpointBase;
pub use read::{Checkpoint, CheckpointPage, CheckpointPosition, CheckpointSelection, VoidSince};
pub use request::{CompactionStart, CompactionStatus};
