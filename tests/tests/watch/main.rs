//! Watching a conversation: what is told, in which order, how often, and within which limits.

mod limits;
mod order;
mod watch;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
