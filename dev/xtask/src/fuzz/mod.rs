//! Fuzzing: builds the targets of `dev/fuzz/` with libFuzzer and runs each for some time on its
//! corpus.
//!
//! Only our own crates are instrumented (`scripts/instrumented_rustc.sh`). Dependencies are those
//! of the tests and are compiled only once. cargo-fuzz, which compiles everything again, can run
//! the same targets, because `dev/fuzz/` has the layout that it expects.

mod report;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::cargo::cargo;
use run::Plan;

/// The folder of the targets: one file each, named after the target.
const TARGETS: &str = "dev/fuzz/fuzz_targets";
/// The initial inputs of each target, in a folder with its name.
const CORPUS: &str = "dev/fuzz/corpus";
/// The folder below the root for new inputs that longer runs have found, and for inputs that made a
/// target fail. Git ignores it.
const FOUND: &str = "target/fuzz";
/// The script that compiles our own crates with instrumentation.
const COMPILER: &str = "scripts/instrumented_rustc.sh";

/// Seconds for which each target runs without `--minutes`, as in `make nightly`.
const SHORT_SECONDS: u64 = 4;

/// Crates that are optimized, because their code runs very often. The server would also be faster,
/// but optimizing its futures takes longer than it saves.
const OPTIMIZED: [&str; 3] = ["anneal-fuzz", "anneal-proto", "anneal-shapes"];

// The arguments of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct Ask {
    /// Total minutes, shared by the targets, two of which run at a time. Without this, each target
    /// runs for 4 seconds.
    #[arg(long)]
    minutes: Option<u64>,
    /// Runs only this target; may be repeated.
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Afterwards replaces dev/fuzz/corpus/ by the fewest inputs, old and new, that together reach
    /// the same code. If these are more than 100 for a target, only the 100 smallest are kept.
    #[arg(long, requires = "minutes")]
    keep: bool,
}

impl Ask {
    /// The short run of `make nightly`: all targets, [`SHORT_SECONDS`] each.
    pub(crate) const fn short() -> Self {
        Self {
            minutes: None,
            targets: Vec::new(),
            keep: false,
        }
    }
}

/// Runs the targets and prints a report. Fails if a target failed.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let targets = choose_targets(&all_targets(root)?, &ask.targets)?;
    let programs = build(root, &targets)?;
    let seconds = match ask.minutes {
        None => SHORT_SECONDS,
        // A single target has no other to share the minutes with, and runs for all of them.
        Some(minutes) => minutes * 60 * run::AT_ONCE / (targets.len() as u64).max(run::AT_ONCE),
    };
    let plan = Plan {
        root: root.to_owned(),
        programs,
        seconds,
        keeps_new_inputs: ask.minutes.is_some(),
    };
    let reports = run::run_all(&plan, &targets)?;
    println!("{}", report::TITLES);
    for report in &reports {
        println!("{report}");
    }
    if let Some(failed) = reports.iter().find(|report| report.failing_input.is_some()) {
        eprintln!("{}", failed.advice());
        return Ok(ExitCode::FAILURE);
    }
    if ask.keep {
        for target in &targets {
            run::minimize_corpus(&plan, target)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of all targets, sorted.
fn all_targets(root: &Path) -> Result<Vec<String>> {
    let folder = std::fs::read_dir(root.join(TARGETS))
        .with_context(|| format!("could not read {TARGETS}"))?;
    let names = folder.map(|entry| {
        Ok(entry?
            .path()
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned()))
    });
    let mut names = names
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn choose_targets(known: &[String], asked: &[String]) -> Result<Vec<String>> {
    if asked.is_empty() {
        return Ok(known.to_vec());
    }
    if let Some(unknown) = asked.iter().find(|asked| !known.contains(asked)) {
        bail!(
            "there is no target {unknown}; there are {}",
            known.join(", ")
        );
    }
    Ok(asked.to_vec())
}

/// Builds the targets into the folder of this program. Returns the folder.
///
/// The whole workspace is selected, so that dependencies get the same features as in tests.
fn build(root: &Path, targets: &[String]) -> Result<PathBuf> {
    let mut build = cargo(root);
    build.args([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--all-features",
    ]);
    build.args(targets.iter().flat_map(|target| ["--bin", target]));
    for package in OPTIMIZED {
        build
            .arg("--config")
            .arg(format!("profile.dev.package.{package}.opt-level=1"));
    }
    build
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTC_WORKSPACE_WRAPPER", root.join(COMPILER));
    let status = build.status().context("could not run cargo")?;
    ensure!(status.success(), "the fuzz targets do not compile");
    let own = std::env::current_exe().context("could not find this program's folder")?;
    own.parent()
        .map(Path::to_path_buf)
        .context("this program is in no folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_targets_are_refused() {
        let known = ["requests", "tokens"].map(str::to_owned);
        assert_eq!(choose_targets(&known, &[]).unwrap(), known);
        assert_eq!(choose_targets(&known, &known[1..]).unwrap(), ["tokens"]);
        let error = choose_targets(&known, &["token".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no target token; there are requests, tokens"
        );
    }

    #[test]
    fn every_target_has_a_corpus_of_allowed_size() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        for target in all_targets(root).unwrap() {
            let corpus = std::fs::read_dir(root.join(CORPUS).join(&target)).map(Iterator::count);
            assert!(
                corpus.is_ok_and(|inputs| (1..=run::MAX_INPUTS).contains(&inputs)),
                "{target}"
            );
        }
    }
}
