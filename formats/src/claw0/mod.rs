//! claw0: lines of `user`, `assistant`, `tool_use` and `tool_result` records, each with its time `ts`.

mod growth;
mod read;
mod write;

pub(crate) use growth::grown;
pub(crate) use read::read;
pub(crate) use write::Records;

/// The label that keeps the times of a message's records, as they stand, joined by blanks.
const TIMES: &str = "claw0.ts";
/// The type of lines that only anneal reads; claw0 passes over them.
const OURS: &str = "anneal";
