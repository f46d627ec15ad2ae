//! What the tests stand on: a house (own database, server and stepped worker in this process), conversations to talk in,
//! and real data where it is at hand.

mod chatting;
mod dial;
mod eventually;
mod figures;
mod house;
mod import;
mod llm;
mod process;
mod refusal;
mod rendered;
mod scripted;
mod talk;
mod texts;
mod turns;
mod waiting;
mod writing;

pub use chatting::MODEL;
pub use dial::{Answer, post};
pub use eventually::eventually;
pub use house::{House, Lengths, empty_database, postgres_binaries};
pub use import::Imported;
pub use llm::{Llm, start_llm};
pub use process::{Anneal, Folder, OwnPostgres, Process, Ran};
pub use refusal::{Refusal, assert_refused, refusal};
pub use rendered::{Recount, Rendered};
pub use scripted::{Asked, Counted, Gate, Heard, Say, Script, ScriptedModel, hear, hear_rest, plain_call};
pub use talk::{Append, Built, Talk, assistant, call, media, user};
pub use texts::{prose, sentence};
pub use turns::{AskedTurn, ToldTurn};
pub use waiting::{Panicking, Waiting};
pub use writing::{WRITER, Writing};

/// Real conversations, where they are at hand, and how messages are put together.
pub use anneal_transcripts::{Chat, Data, Family, message, parsed, result, text};

/// The generated gRPC types.
pub use anneal_proto::v1 as pb;
