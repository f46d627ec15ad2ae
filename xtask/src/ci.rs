//! The gate: every step, in the order that fails soonest, the test runner last so that its lines are the last ones.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::{fuzz, instructions, sql, tidy};

/// Where tools that the machine lacks are installed, below the root; ignored by git.
const TOOLS: &str = ".tools";

#[derive(Args)]
pub(crate) struct Ask {
    /// Only these steps, separated by commas; they run in the gate's order whatever the order given.
    #[arg(long, value_enum, value_delimiter = ',')]
    steps: Vec<Step>,
    /// Only these packages in the step `test`; may be repeated.
    #[arg(long = "package", short = 'p', value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Only the tests that this filter of nextest matches, in the step `test`.
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Step {
    /// `cargo fmt --check`
    Fmt,
    /// `cargo xtask tidy`
    Tidy,
    /// `cargo deny check licenses bans sources`; what is advised against is asked of github.com (`make advisories`)
    Deny,
    /// `cargo xtask sql --check`, before clippy: stale query data would fail there with a worse message
    Sql,
    /// `cargo clippy`, warnings are errors
    Clippy,
    /// `cargo doc`, warnings are errors
    Docs,
    /// `cargo xtask instructions`
    Instructions,
    /// `cargo xtask fuzz`
    Fuzz,
    /// `cargo nextest run`
    Test,
}

/// Runs the steps and answers with the first failure's code. After the test runner's lines nothing is printed.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    for step in chosen(&ask.steps) {
        let name = name(step);
        eprintln!("ci: {name}");
        let started = Instant::now();
        let code = run_step(root, step, ask).with_context(|| format!("step {name} could not run"))?;
        if step == Step::Test {
            return Ok(code);
        }
        let seconds = started.elapsed().as_secs_f32();
        if code != ExitCode::SUCCESS {
            eprintln!("ci: {name} failed after {seconds:.1} s");
            return Ok(code);
        }
        eprintln!("ci: {name} passed in {seconds:.1} s");
    }
    Ok(ExitCode::SUCCESS)
}

/// The steps asked for, or all, in the gate's order.
fn chosen(asked: &[Step]) -> Vec<Step> {
    Step::value_variants().iter().copied().filter(|step| asked.is_empty() || asked.contains(step)).collect()
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn run_step(root: &Path, step: Step, ask: &Ask) -> Result<ExitCode> {
    match step {
        Step::Fmt => status(cargo(root).args(["fmt", "--all", "--check"])),
        Step::Tidy => tidy::run(root),
        Step::Deny => deny(root),
        Step::Sql => sql::run(root, &sql::Ask { check: true }),
        Step::Clippy => status(cargo(root).args([
            "clippy",
            "--workspace",
            "--all-features",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])),
        Step::Docs => {
            let mut doc = cargo(root);
            doc.env("RUSTDOCFLAGS", "-D warnings");
            status(doc.args(["doc", "--no-deps", "--workspace", "--all-features", "--locked", "--quiet"]))
        }
        Step::Instructions => instructions::run(root, &instructions::Ask { write: false }),
        Step::Fuzz => fuzz::run(root, &fuzz::Ask::short()),
        Step::Test => test(root, ask),
    }
}

/// Checks licences, sources and bans of everything that is linked, as `deny.toml` says.
fn deny(root: &Path) -> Result<ExitCode> {
    let mut install = Command::new(root.join("scripts/cargo_tool.sh"));
    let installed = status(install.arg("cargo-deny").arg(root.join(TOOLS)))?;
    if installed != ExitCode::SUCCESS {
        return Ok(installed);
    }
    let mut check = cargo(root);
    check.env("PATH", path_with_tools(root)?);
    status(check.args(["deny", "--log-level", "error", "--locked", "check", "licenses", "bans", "sources"]))
}

/// Runs the tests through nextest; through `cargo test` where nextest is neither there nor can be installed.
fn test(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let mut command = cargo(root);
    if has_nextest(root) || install_nextest(root)? {
        command.env("PATH", path_with_tools(root)?);
        command.args(["nextest", "run", "--profile", "ci", "--all-features", "--locked"]);
        command.args(ask.filter.iter().flat_map(|filter| ["--filterset", filter]));
    } else {
        eprintln!("ci: cargo-nextest could not be installed; running cargo test");
        command.args(["test", "--no-fail-fast", "--all-features", "--locked"]);
    }
    if ask.packages.is_empty() {
        command.arg("--workspace");
    }
    status(command.args(ask.packages.iter().flat_map(|package| ["--package", package])))
}

fn has_nextest(root: &Path) -> bool {
    let Ok(path) = path_with_tools(root) else { return false };
    let asked = cargo(root).env("PATH", path).args(["nextest", "--version"]).output();
    asked.is_ok_and(|answer| answer.status.success())
}

/// Builds cargo-nextest into [`TOOLS`], which takes minutes, once.
fn install_nextest(root: &Path) -> Result<bool> {
    eprintln!("ci: installing cargo-nextest into {TOOLS}/");
    let mut install = cargo(root);
    install.args(["install", "cargo-nextest", "--locked", "--root"]).arg(root.join(TOOLS));
    Ok(status(&mut install)? == ExitCode::SUCCESS)
}

fn path_with_tools(root: &Path) -> Result<std::ffi::OsString> {
    let present = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(root.join(TOOLS).join("bin")).chain(std::env::split_paths(&present));
    Ok(std::env::join_paths(folders.collect::<Vec<PathBuf>>())?)
}

/// The cargo that runs this, in the workspace's root, with the query macros reading .sqlx/ and not a database.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("SQLX_OFFLINE", "true");
    command
}

/// Runs a command with its output on the terminal.
fn status(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("could not run {}", command.get_program().display()))?;
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_steps_the_whole_gate_runs_and_tests_come_last() {
        let steps = chosen(&[]);
        assert_eq!(steps.len(), 9);
        assert_eq!(steps.last(), Some(&Step::Test));
    }

    #[test]
    fn chosen_steps_keep_the_gates_order() {
        assert_eq!(chosen(&[Step::Test, Step::Tidy, Step::Fmt]), [Step::Fmt, Step::Tidy, Step::Test]);
    }
}
