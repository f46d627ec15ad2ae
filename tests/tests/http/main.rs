//! The HTTP API: turns, sessions, events, coming back, problems, its description and its examples.

mod chat;
mod events;
mod examples;
mod openapi;
mod problems;
mod resume;
mod sessions;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// Where an agent's turns are asked for.
const CHAT: &str = "/api/agents/a/chat";
