//! The commands, except `import` and `export` of files.
//!
//! - `command_line.rs`: settings, exit codes and error messages of all commands.
//! - `chat_commands.rs`: the `/` commands of `anneal chat` at a terminal.
//! - `chat_answers.rs`: answers, interruptions and failures in `anneal chat` at a terminal.
//! - `chat_piped.rs`: `anneal chat` without a terminal.
//! - `chat_escaping.rs`: `anneal chat` passes no control sequences to the terminal.
//! - `output_escaping.rs`: no other command passes control characters to the terminal.
//! - `dev.rs`: `anneal dev`.
//! - `discovered_settings.rs`: `anneal.toml` of the working directory may not redirect secrets.
//! - `inspect.rs`: `context`, `usage` and `compact` of one conversation.
//! - `keys.rs`: `anneal keys` and `anneal tenants`.

mod chat_answers;
mod chat_commands;
mod chat_escaping;
mod chat_piped;
mod command_line;
mod dev;
mod discovered_settings;
mod inspect;
mod keys;
mod output_escaping;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
