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
/// Inputs that longer runs have found in addition, and inputs that made a target fail. Below the
/// root; ignored by git.
const FOUND: &str = "target/fuzz";
/// The compiler for our own crates.
const COMPILER: &str = "scripts/instrumented_rustc.sh";

/// Seconds for which `make nightly` runs each target.
const SHORT_SECONDS: u64 = 4;

/// Crates whose code runs very often. They would be slow as compiled for the tests. So would the
/// server, but optimising its futures takes longer than running them.
const OPTIMISED: [&str; 3] = ["anneal-fuzz", "anneal-proto", "anneal-shapes"];

#[derive(Args)]
pub(crate) struct Ask {
    /// Minutes in all, shared by the targets, two of which run at a time; without them, a few
    /// seconds for each.
    #[arg(long)]
    minutes: Option<u64>,
    /// Only these targets; may be repeated.
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Afterwards keeps what reaches new code in dev/fuzz/corpus/, and nothing there that reaches
    /// nothing else.
    #[arg(long)]
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
        Some(minutes) => minutes * 60 * run::AT_ONCE / (targets.len() as u64).max(run::AT_ONCE),
    };
    let plan = Plan {
        root: root.to_owned(),
        programs,
        seconds,
        grows: ask.minutes.is_some(),
    };
    let reports = run::run_all(&plan, &targets)?;
    println!("{}", report::TITLES);
    for report in &reports {
        println!("{report}");
    }
    if let Some(broken) = reports.iter().find(|report| report.input.is_some()) {
        eprintln!("{}", broken.advice());
        return Ok(ExitCode::FAILURE);
    }
    if ask.keep {
        for target in &targets {
            run::minimise_corpus(&plan, target)?;
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
    if let Some(stranger) = asked.iter().find(|asked| !known.contains(asked)) {
        bail!(
            "there is no target {stranger}; there are {}",
            known.join(", ")
        );
    }
    Ok(asked.to_vec())
}

/// Builds the targets next to the program that runs this; returns the folder.
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
    for package in OPTIMISED {
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
    fn every_target_has_its_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .unwrap();
        for target in all_targets(root).unwrap() {
            let corpus = std::fs::read_dir(root.join(CORPUS).join(&target)).map(Iterator::count);
            assert!(
                corpus.is_ok_and(|inputs| (1..=run::INPUTS).contains(&inputs)),
                "{target}"
            );
        }
    }
}
