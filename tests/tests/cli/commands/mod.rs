//! The commands, except `import` and `export` of files.
//!
//! - `command_line.rs`: settings, exit codes and error messages; `anneal migrate`, `anneal verify`
//!   and `anneal jobs`.
//! - `chat_commands.rs`: commands that begin with `/` in `anneal chat` at a terminal.
//! - `change.rs`: `anneal withdraw`, `anneal rewind` and `anneal restore`.
//! - `chat_answers.rs`: answers, interruptions and failures in `anneal chat` at a terminal.
//! - `chat_changes.rs`: `/undo`, `/redo`, `/edit`, `/retry` and `/fork` in `anneal chat`.
//! - `chat_piped.rs`: `anneal chat` without a terminal.
//! - `chat_escaping.rs`: `anneal chat` replaces control sequences in pasted text and in its
//!   history.
//! - `output_escaping.rs`: every command escapes control characters in its output.
//! - `config_toml.rs`: settings in the variable `ANNEAL_CONFIG_TOML`.
//! - `dev.rs`: `anneal dev`.
//! - `doctor.rs`: `anneal doctor`.
//! - `discovered_settings.rs`: a discovered `anneal.toml` may not decide where secrets are sent.
//! - `erase.rs`: `anneal erase`.
//! - `inspect.rs`: `anneal context`, `anneal usage` and `anneal compact`.
//! - `keys.rs`: `anneal keys` and `anneal tenants`.
//! - `list.rs`: `anneal list` and `anneal health`, beginnings of ids, `--json`, completions and man
//!   pages.
//! - `type_ahead.rs`: what is typed while `anneal chat` prints an answer.

mod change;
mod chat_answers;
mod chat_changes;
mod chat_commands;
mod chat_escaping;
mod chat_piped;
mod command_line;
mod config_toml;
mod dev;
mod discovered_settings;
mod doctor;
mod erase;
mod inspect;
mod keys;
mod list;
mod output_escaping;
mod type_ahead;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
