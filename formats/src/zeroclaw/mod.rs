//! ZeroClaw: a SQLite database of sessions. A summary is stored as an assistant message that begins
//! with [`SUMMARY`].
//!
//! - `read`: messages, summary and separators of each session.
//! - `sessions`: which sessions a database has. `tables`: which tables and columns it has.
//! - `write`: a new database.

mod read;
mod sessions;
mod tables;
mod write;

pub(crate) use read::read;
pub(crate) use write::ZeroClawWriter;

/// The prefix of labels that hold columns and the session's state.
const LABEL: &str = "zeroclaw.";
/// The label with the time of a message.
const CREATED_AT: &str = "zeroclaw.created_at";
/// The text at the beginning of a summary.
const SUMMARY: &str = "[Session Compaction Summary]";
/// The key of the session's state that holds the id of the last row that the newest summary covers.
const BOUNDARY: &str = "compaction_after_message_id";
/// The key of the session's state that holds the summary in older databases.
const SUMMARY_STATE: &str = "compaction_summary";
/// The key of the session's state in which anneal stores separators: the ids of the rows before
/// them.
const SEPARATORS: &str = "anneal_separators";
