//! The gate: runs its steps; with `--nightly` also those that take long. Steps that fail fast come
//! first. The test runner comes last, so that its result is the last output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use toml::{Table, Value};

use crate::cargo::cargo;
use crate::{fuzz, instructions, sql, tidy};

/// The folder below the root into which missing tools are installed. Git ignores it.
const TOOLS: &str = ".tools";
/// Number of tests per core that run at the same time. `.config/nextest.toml` says how many of them
/// may be of which kind.
const TESTS_PER_CORE: usize = 3;

// The arguments of `cargo xtask ci`.
#[derive(Args)]
pub(crate) struct Ask {
    /// Runs only these steps, separated by commas, in the gate's order.
    #[arg(long, value_enum, value_delimiter = ',')]
    steps: Vec<Step>,
    /// Runs also the steps and tests that the gate leaves out because they take long.
    #[arg(long, conflicts_with = "steps")]
    nightly: bool,
    /// Tests only this package; may be repeated.
    #[arg(long = "package", short = 'p', value_name = "PACKAGE")]
    packages: Vec<String>,
    /// Runs only the tests that match this filter expression of nextest.
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Step {
    /// `cargo fmt --check`
    Fmt,
    /// `cargo xtask tidy`
    Tidy,
    /// `cargo deny check licenses bans sources`; advisories need github.com (`make advisories`)
    Deny,
    /// `cargo xtask sql --check`; before clippy, whose message about outdated data is less clear
    Sql,
    /// `cargo clippy`, warnings are errors
    Clippy,
    /// `cargo doc`, warnings are errors
    Docs,
    /// `cargo xtask instructions`
    Instructions,
    /// `cargo xtask fuzz`
    Fuzz,
    /// `cargo nextest run` on PostgreSQL 18 with `append.grouping = off`, only the tests that
    /// depend on one of the two
    TestNewest,
    /// `cargo nextest run` on the installed PostgreSQL
    Test,
}

impl Step {
    /// Steps that run only with `--nightly`, or if `--steps` names them.
    const NIGHTLY: [Self; 2] = [Self::Instructions, Self::Fuzz];

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs the steps until one fails. Returns its exit code. Nothing is printed after the output of
/// the last step, the test runner.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let steps = choose(ask);
    let mut times = StepTimes::load(root);
    eprintln!("ci: {}", times.describe(&steps));
    for (index, &step) in steps.iter().enumerate() {
        eprintln!("ci: {} ({} of {})", step.name(), index + 1, steps.len());
        let started = Instant::now();
        let code = run_step(root, step, ask)
            .with_context(|| format!("step {} could not run", step.name()))?;
        let seconds = started.elapsed().as_secs();
        let is_whole = ask.packages.is_empty() && ask.filter.is_none();
        if code == ExitCode::SUCCESS && is_whole {
            times.record(step, seconds);
        }
        if step == Step::Test {
            return Ok(code);
        }
        if code != ExitCode::SUCCESS {
            eprintln!("ci: {} failed after {seconds} s", step.name());
            return Ok(code);
        }
        eprintln!("ci: {} passed in {seconds} s", step.name());
    }
    Ok(ExitCode::SUCCESS)
}

/// The steps to run, in the gate's order: those in `--steps`, or all with `--nightly`, or the
/// gate's.
fn choose(ask: &Ask) -> Vec<Step> {
    let is_chosen = |step: &Step| match (ask.steps.is_empty(), ask.nightly) {
        (false, _) => ask.steps.contains(step),
        (true, nightly) => nightly || !Step::NIGHTLY.contains(step),
    };
    let all = Step::value_variants().iter().copied();
    all.filter(is_chosen).collect()
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
            status(doc.args([
                "doc",
                "--no-deps",
                "--workspace",
                "--all-features",
                "--locked",
                "--quiet",
            ]))
        }
        Step::Instructions => instructions::run(root, &instructions::Ask { write: false }),
        Step::Fuzz => fuzz::run(root, &fuzz::Ask::short()),
        Step::TestNewest => test_newest(root, ask),
        Step::Test => {
            let profile = if ask.nightly { "nightly" } else { "ci" };
            status(&mut test_command(root, ask, profile)?)
        }
    }
}

/// Checks licenses, sources and bans of all dependencies, as `deny.toml` says.
fn deny(root: &Path) -> Result<ExitCode> {
    let install_code = install(root, "cargo-deny")?;
    if install_code != ExitCode::SUCCESS {
        return Ok(install_code);
    }
    let mut check = cargo(root);
    check.env("PATH", path_with_tools(root)?);
    status(check.args([
        "deny",
        "--log-level",
        "error",
        "--locked",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))
}

/// Runs on PostgreSQL 18, with one transaction per append, the tests that depend on PostgreSQL's
/// version or on how appends share transactions.
fn test_newest(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let script = Command::new(root.join("scripts/postgres18.sh"))
        .arg(root.join(TOOLS).join("postgres18"))
        .stderr(Stdio::inherit())
        .output()
        .context("could not run scripts/postgres18.sh")?;
    anyhow::ensure!(
        script.status.success(),
        "PostgreSQL 18 could not be installed"
    );
    let programs = String::from_utf8(script.stdout).context("a path that is not UTF-8")?;
    let profile = if ask.nightly {
        "newest-nightly"
    } else {
        "newest"
    };
    let mut run = test_command(root, ask, profile)?;
    run.env("ANNEAL_PG_BIN", programs.trim());
    run.env("ANNEAL_APPEND_GROUPING", "off");
    status(&mut run)
}

/// `cargo nextest run` with a profile of `.config/nextest.toml`, which says which tests run. If
/// nextest is missing and cannot be installed: `cargo test`. Packages and features are the same in
/// every call, so that nothing is built twice.
fn test_command(root: &Path, ask: &Ask, profile: &str) -> Result<Command> {
    let mut command = cargo(root);
    // Tests fail whose tool is missing (`dev/testkit/src/missing_tool.rs`).
    command.env("ANNEAL_GATE", "1");
    if ask.nightly {
        // Tests with a short and a long form run the long one (`dev/testkit/src/run_length.rs`).
        command.env("ANNEAL_NIGHTLY", "1");
    }
    if has_nextest(root) || install(root, "cargo-nextest")? == ExitCode::SUCCESS {
        command.env("PATH", path_with_tools(root)?);
        command.args(["nextest", "run", "--profile", profile, "--test-threads"]);
        command.arg((TESTS_PER_CORE * available_parallelism()?.get()).to_string());
        let filters = ask.filter.iter();
        command.args(filters.flat_map(|filter| ["--filterset", filter]));
    } else {
        eprintln!("ci: cargo-nextest could not be installed; running cargo test");
        command.args(["test", "--no-fail-fast"]);
    }
    command.args(["--all-features", "--locked"]);
    if ask.packages.is_empty() {
        command.arg("--workspace");
    }
    let packages = ask.packages.iter();
    command.args(packages.flat_map(|package| ["--package", package]));
    Ok(command)
}

/// Seconds that each step took when it last passed here.
struct StepTimes {
    path: PathBuf,
    seconds: Table,
}

impl StepTimes {
    /// Reads `ci-seconds.toml` in the target folder. Empty if the file is missing or not TOML.
    fn load(root: &Path) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root.join("target"), PathBuf::from);
        let path = target.join("ci-seconds.toml");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let seconds = text.parse().unwrap_or_default();
        Self { path, seconds }
    }

    /// Stores a step's time. Errors are ignored: they only keep the next run from saying how long
    /// it will take.
    fn record(&mut self, step: Step, seconds: u64) {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        self.seconds.insert(step.name(), Value::Integer(seconds));
        let _ = fs::write(&self.path, self.seconds.to_string());
    }

    /// A line with the steps that will run, and how long they took when they last passed here.
    fn describe(&self, steps: &[Step]) -> String {
        let names: Vec<_> = steps.iter().map(|step| step.name()).collect();
        let known = names
            .iter()
            .map(|name| self.seconds.get(name).and_then(Value::as_integer));
        let time = match known.sum::<Option<i64>>() {
            Some(seconds) => format!("{} min {} s here the last time", seconds / 60, seconds % 60),
            None => "not all of them have passed here yet".to_owned(),
        };
        format!("{} steps: {} ({time})", names.len(), names.join(", "))
    }
}

/// Whether nextest is installed in a version that `.config/nextest.toml` accepts.
fn has_nextest(root: &Path) -> bool {
    let Ok(path) = path_with_tools(root) else {
        return false;
    };
    // Fails if nextest is missing or older than `nextest-version` in the file.
    let check = cargo(root)
        .env("PATH", path)
        .args(["nextest", "show-config", "version"])
        .output();
    check.is_ok_and(|output| output.status.success())
}

/// Installs a cargo tool into [`TOOLS`], unless its pinned version is installed there.
fn install(root: &Path, tool: &str) -> Result<ExitCode> {
    let mut install = Command::new(root.join("scripts/cargo_tool.sh"));
    status(install.arg(tool).arg(root.join(TOOLS)))
}

fn path_with_tools(root: &Path) -> Result<std::ffi::OsString> {
    let present = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::iter::once(root.join(TOOLS).join("bin")).chain(std::env::split_paths(&present));
    Ok(std::env::join_paths(folders.collect::<Vec<PathBuf>>())?)
}

/// Runs a command with its output on the terminal.
fn status(command: &mut Command) -> Result<ExitCode> {
    let status = command
        .status()
        .with_context(|| format!("could not run {}", command.get_program().display()))?;
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(steps: &[Step], nightly: bool) -> Ask {
        Ask {
            steps: steps.to_vec(),
            nightly,
            packages: Vec::new(),
            filter: None,
        }
    }

    #[test]
    fn the_gate_leaves_out_the_nightly_steps_and_runs_the_tests_last() {
        let all = Step::value_variants();
        let gate = choose(&ask(&[], false));
        assert_eq!(gate.len(), all.len() - Step::NIGHTLY.len());
        assert_eq!(gate.last(), Some(&Step::Test));
        assert!(Step::NIGHTLY.iter().all(|step| !gate.contains(step)));
        assert_eq!(choose(&ask(&[], true)), all);
    }

    #[test]
    fn chosen_steps_run_in_the_gates_order() {
        let chosen = choose(&ask(&[Step::Test, Step::Fuzz, Step::Fmt], false));
        assert_eq!(chosen, [Step::Fmt, Step::Fuzz, Step::Test]);
    }

    #[test]
    fn a_run_announces_its_expected_time_once_all_of_its_steps_have_passed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ci-seconds.toml");
        let seconds = Table::new();
        let mut times = StepTimes { path, seconds };
        let steps = [Step::Fmt, Step::Test];
        times.record(Step::Test, 100);
        let without_time = "2 steps: fmt, test (not all of them have passed here yet)";
        assert_eq!(times.describe(&steps), without_time);
        times.record(Step::Fmt, 30);
        let with_time = "2 steps: fmt, test (2 min 10 s here the last time)";
        assert_eq!(times.describe(&steps), with_time);
        let stored = fs::read_to_string(&times.path).unwrap();
        assert_eq!(stored.parse::<Table>().unwrap(), times.seconds);
    }
}
