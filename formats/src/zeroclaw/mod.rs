//! ZeroClaw: a SQLite database of sessions. Its summaries are messages of the assistant, with a mark in front.

mod read;
mod sessions;
mod write;

pub(crate) use read::read;
pub(crate) use write::Database;

/// Before the name of a label that a column had.
const LABEL: &str = "zeroclaw.";
/// The label of when a message was said.
const SAID_AT: &str = "zeroclaw.created_at";
/// What a summary among the messages begins with.
const SUMMARY: &str = "[Session Compaction Summary]";
/// The state that says up to which row the newest summary goes.
const BOUNDARY: &str = "compaction_after_message_id";
/// The state that holds the summary itself, in older databases.
const SUMMARY_STATE: &str = "compaction_summary";
/// The state that holds the user's separators, as the rows that they follow; anneal's own.
const SEPARATORS: &str = "anneal_separators";
