//! claw0: one record on each line, of type `user`, `assistant`, `tool_use` or `tool_result`, with a
//! time `ts`.
//!
//! - `read`: which records form a message.
//! - `write`: the records of a message.
//! - `added_parts`: parts that were added to a message of a growing log.

mod added_parts;
mod read;
mod write;

pub(crate) use added_parts::added_parts;
pub(crate) use read::read;
pub(crate) use write::Claw0Writer;

/// The metadata label with the `ts` values of a message's records, unchanged, separated by blanks;
/// one value if all are equal.
const TIMES: &str = "claw0.ts";
/// The type of the lines that only anneal reads; claw0 ignores them.
const ANNEAL_TYPE: &str = "anneal";
