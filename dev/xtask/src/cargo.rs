//! The command with which the subcommands of `cargo xtask` call cargo.

use std::path::Path;
use std::process::Command;

/// A command of the cargo that runs this program, in the workspace's root. sqlx's macros read
/// .sqlx/ instead of a database.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("SQLX_OFFLINE", "true");
    command
}
