//! Watches: the RPC WatchConversation, which streams the events of a conversation.
//!
//! - `events`: which events are streamed, and where a watch resumes
//! - `counted_appends`: messages that are counted when they are appended
//! - `changes`: messages that are withdrawn, restored, edited and erased
//! - `event_order`: each event once and in order, for readers that reconnect
//! - `limits`: number, memory and deadlines of watches, slow readers, stopping servers, outages

mod changes;
mod counted_appends;
mod event_order;
mod events;
mod limits;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
