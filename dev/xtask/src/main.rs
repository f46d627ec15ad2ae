//! The project's own chores, run as `cargo xtask ci | tidy | sql | instructions | fuzz`.
//!
//! - `ci`: the gate, step by step.
//! - `tidy`: the rules that a machine can check.
//! - `sql`: brings the offline query data in `.sqlx/` up to date.
//! - `instructions`: counts instructions and compares them with the recorded counts.
//! - `fuzz`: builds the fuzz targets and runs them.
//! - `cargo`: the command with which these chores call cargo.

mod cargo;
mod ci;
mod fuzz;
mod instructions;
mod sql;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Ask {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Runs the gate, which is the same for people and CI. Stops at the first step that fails.
    Ci(ci::Ask),
    /// Checks the rules of the project that a machine can check.
    Tidy,
    /// Brings the offline query data in .sqlx/ up to date.
    Sql(sql::Ask),
    /// Counts the instructions of the code that every append and every context runs, and compares
    /// the counts with the recorded ones.
    Instructions(instructions::Ask),
    /// Runs the fuzz targets, which feed arbitrary input to the parsers: for 4 seconds each, or for
    /// the given minutes in total.
    Fuzz(fuzz::Ask),
}

fn main() -> ExitCode {
    let ask = Ask::parse();
    let outcome = root().and_then(|root| match ask.chore {
        Chore::Ci(ask) => ci::run(&root, &ask),
        Chore::Tidy => tidy::run(&root),
        Chore::Sql(ask) => sql::run(&root, &ask),
        Chore::Instructions(ask) => instructions::run(&root, &ask),
        Chore::Fuzz(ask) => fuzz::run(&root, &ask),
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

/// The workspace's root, two folders above this crate, independent of the current folder. Uses the
/// crate's folder that Cargo reports at run time, because the path known at compile time may belong
/// to another checkout that shares the target folder.
fn root() -> Result<PathBuf> {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    Path::new(&own)
        .ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .context("dev/xtask/ is not in a workspace")
}
