//! Turns that anneal runs itself: streamed, stored once, guarded against overflow; agents and their settings.

mod agents;
mod chat;
mod ends;
mod failures;
mod once;
mod overflow;
mod python_client;
mod real_model;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
