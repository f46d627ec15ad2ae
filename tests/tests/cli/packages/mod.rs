//! The packages that `make dist` writes, installed in an empty folder and run.
//!
//! - `wheel.rs`: the Python wheel, in a virtual environment, with the PostgreSQL of its extra.
//! - `npm.rs`: the npm packages, installed without a network.
//! - `archive.rs`: the archive for cargo-binstall, the checksums, and equal bytes of two runs.

mod archive;
mod npm;
mod wheel;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anneal_testkit::{CommandOutput, Folder};
use tokio::process::Command;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The line that `anneal --version` prints.
const VERSION_LINE: &str = concat!("anneal ", env!("CARGO_PKG_VERSION"), " (unknown)\n");

/// A path in the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Writes the packages of the binary under test into `dist/` of the folder, with
/// `scripts/dist.sh`. Symbols are removed, as in a release, and nothing is compressed: a test has
/// no use for either.
async fn build_packages(folder: &Folder) -> PathBuf {
    let binary = folder.path().join("anneal");
    let dist = folder.path().join("dist");
    let mut strip = Command::new("strip");
    run(strip.arg("-o").arg(&binary).arg(BINARY)).await;
    let mut script = Command::new(project("scripts/dist.sh"));
    run(script.arg(&binary).arg(&dist).env("COMPRESSION", "0")).await;
    dist
}

/// The only file in the folder whose name has this beginning and this end.
fn find_file(folder: &Path, beginning: &str, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("the folder exists");
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            name.starts_with(beginning) && name.ends_with(end)
        })
        .collect();
    assert_eq!(found.len(), 1, "{beginning}*{end}: {found:?}");
    found.remove(0)
}

/// Whether the program runs and exits with 0. If not, prints that the test is skipped.
async fn is_available(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output().await;
    let available = output.is_ok_and(|output| output.status.success());
    if !available {
        println!("skipped: `{program} {}` fails here", arguments.join(" "));
    }
    available
}

/// Runs a command to its end and returns its standard output. Panics if its exit code is not 0.
async fn run(command: &mut Command) -> String {
    let ran = run_to_end(command).await;
    assert_eq!(ran.code, Some(0), "{command:?}: {ran:?}");
    ran.out
}

/// Runs a command to its end, whatever its exit code.
async fn run_to_end(command: &mut Command) -> CommandOutput {
    let output = command.kill_on_drop(true).output().await;
    CommandOutput::from(output.expect("the program can be started"))
}
