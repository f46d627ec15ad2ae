//! The binary `anneal`, run as a person or a script runs it.
//!
//! - `commands/`: settings, keys, `chat`, `dev` and the commands that show a conversation.
//! - `files/`: `import` and `export` of files of other systems.
//! - `packages/`: the packages of a release, installed and run.

mod commands;
mod files;
mod packages;
