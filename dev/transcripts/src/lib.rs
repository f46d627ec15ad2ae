//! Reads real conversations from files in their original formats, for tests and benchmarks. Each
//! becomes a system prompt and messages that an append accepts.
//!
//! - `transcript_folder`: finds the folder with the conversations.
//! - `families`: all conversations, grouped by origin. `agents`, `dialogues`: the readers of each
//!   kind.
//! - `chat`: a conversation, and functions that construct and parse its messages.
//! - `replay`: what a conversation costs at a provider with a prefix cache.

mod agents;
mod chat;
mod dialogues;
mod families;
pub mod replay;
mod transcript_folder;

pub use chat::{Chat, message, parsed, result, text};
pub use families::Family;
pub use transcript_folder::TranscriptFolder;

/// The generated gRPC types.
pub use anneal_proto::v1 as pb;
