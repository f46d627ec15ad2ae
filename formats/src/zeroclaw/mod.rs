//! ZeroClaw: a SQLite database of sessions. Its summaries are assistant messages with a prefix.
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

/// The prefix of labels that hold columns.
const LABEL: &str = "zeroclaw.";
/// The label with the time of a message.
const CREATED_AT: &str = "zeroclaw.created_at";
/// The prefix of a summary.
const SUMMARY: &str = "[Session Compaction Summary]";
/// The key of the state that holds the last row covered by the newest summary.
const BOUNDARY: &str = "compaction_after_message_id";
/// The key of the state that holds the summary, in older databases.
const SUMMARY_STATE: &str = "compaction_summary";
/// The key of the state in which anneal stores separators, as the rows that they follow.
const SEPARATORS: &str = "anneal_separators";
