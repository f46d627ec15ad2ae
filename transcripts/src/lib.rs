//! Real conversations read from files of their makers' formats, for tests and benchmarks. Each becomes a system prompt and
//! messages that an append accepts.

mod agents;
mod chat;
mod data;
mod dialogues;
mod families;
mod parsed;

pub use chat::{Chat, message, result, text};
pub use data::Data;
pub use families::Family;
pub use parsed::parsed;

/// The generated gRPC types.
pub use anneal_proto::v1 as pb;
