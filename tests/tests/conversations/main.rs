//! What is said and kept: appends, content, pages, lists, titles, separators, sessions. What is refused at the door: `hostile/`.

mod append;
mod append_groups;
mod baseline;
mod bytes;
mod concurrency;
mod lists;
mod ranges;
mod rpc_conversations;
mod rpc_messages;
mod separators;
mod sessions;
mod sessions_races;
mod titles;
