//! Runs cargo for the chores.

use std::path::Path;
use std::process::Command;

/// The cargo that runs this, in the workspace's root, with the query macros reading .sqlx/ and not
/// a database.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("SQLX_OFFLINE", "true");
    command
}
