//! WatchConversation.
//!
//! - `events`: which events are streamed, and where a watch resumes
//! - `event_order`: each event once and in order, for readers that reconnect
//! - `limits`: number, speed, memory and deadline of watches; stopping servers, database outages

mod event_order;
mod events;
mod limits;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
