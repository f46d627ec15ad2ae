//! What the tests stand on: a house (own database, server and stepped worker in this process), conversations to talk in,
//! and real data where it is at hand.

mod chats;
mod data;
mod eventually;
mod figures;
mod house;
mod process;
mod refusal;
mod talk;
mod texts;
mod waiting;

pub use chats::Chat;
pub use data::Data;
pub use eventually::eventually;
pub use house::{House, Lengths, empty_database, postgres_binaries};
pub use process::{Anneal, Folder, OwnPostgres, Process, Ran};
pub use refusal::{Refusal, assert_refused, refusal};
pub use talk::{Append, Built, Talk, assistant, call, media, message, result, text, user};
pub use texts::{prose, sentence};
pub use waiting::{Panicking, Waiting};

/// The generated gRPC types.
pub use anneal_proto::v1 as pb;
