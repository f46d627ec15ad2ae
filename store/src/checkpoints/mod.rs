//! Checkpoints: rows of `ai_conversation_checkpoint`.
//!
//! - `read`: stored checkpoints, listed or found by request id.
//! - `request`: compactions that callers ask for, and what became of them.
//! - `material`: what a checkpoint is planned from and what its summarizer reads.
//! - `commit`: the transaction that commits a checkpoint, or the finding that there is no progress,
//!   and ends the job.
//! - `import`: checkpoints with summaries of other systems.

mod commit;
mod import;
mod material;
mod read;
mod request;

pub use commit::CheckpointDraft;
pub use import::ImportedSummary;
pub use material::{CheckpointMaterial, CheckpointSource, PreviousCheckpoint};
pub use read::{Checkpoint, CheckpointPage};
pub use request::CompactionStatus;
