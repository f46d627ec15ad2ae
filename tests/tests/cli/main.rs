//! The binary `anneal`, run as a person or a script runs it.
//!
//! - `commands/`: settings, keys, `chat`, `dev` and the commands that show a conversation.
//! - `files/`: `import` and `export` of files of other systems.

mod commands;
mod files;
