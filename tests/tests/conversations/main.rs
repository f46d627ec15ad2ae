//! What is said and kept: appends, content, pages, lists, titles, separators, sessions; and what is refused at the door.

mod append;
mod append_groups;
mod bad_input;
mod bad_messages;
mod baseline;
mod bytes;
mod concurrency;
mod content;
mod lists;
mod rpc_conversations;
mod rpc_messages;
mod separators;
mod sessions;
mod sessions_races;
mod titles;
