//! The commands as a person runs them: `anneal chat` at a terminal, `anneal dev`, keys, looks at a conversation.

mod commands;
mod dev;
mod found_settings;
mod harmless_output;
mod keys;
mod looks;
mod terminal;
mod terminal_answers;
mod terminal_harmless;
mod terminal_plain;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
