//! Fuzzes: builds the targets of `fuzz/` with libFuzzer, and runs each for a while on its corpus.
//!
//! Only crates of ours are instrumented (`scripts/instrumented_rustc.sh`): foreign ones are those of the tests, compiled
//! once for both. cargo-fuzz, which needs everything anew, runs the same targets: `fuzz/` is laid out as it wants it.

mod run;
mod said;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::ci::cargo;
use run::Plan;

/// The targets: each a file there, without its ending.
const TARGETS: &str = "fuzz/fuzz_targets";
/// What each target begins with, in a folder of its name.
const CORPUS: &str = "fuzz/corpus";
/// What longer runs have found besides, and inputs that broke something; below the root, ignored by git.
const FOUND: &str = "target/fuzz";
/// What compiles crates of ours.
const COMPILER: &str = "scripts/instrumented_rustc.sh";

/// Seconds for which each target runs in the gate.
const SHORT_SECONDS: u64 = 4;

/// Crates whose code is reached a million times: as the tests compile them, they would be slow. The server would be, too, but
/// optimising its futures takes longer than they run.
const OPTIMISED: [&str; 3] = ["anneal-fuzz", "anneal-proto", "anneal-shapes"];

#[derive(Args)]
pub(crate) struct Ask {
    /// Minutes in all, shared by the targets, two of which run at a time; without them, a few seconds for each.
    #[arg(long)]
    minutes: Option<u64>,
    /// Only these targets; may be repeated.
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Afterwards keeps what reaches new code in fuzz/corpus/, and nothing there that reaches nothing else.
    #[arg(long)]
    keep: bool,
}

impl Ask {
    /// The run of the gate.
    pub(crate) const fn short() -> Self {
        Self { minutes: None, targets: Vec::new(), keep: false }
    }
}

/// Runs the targets, prints what each has done, and fails where one has found something.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let targets = chosen(&known(root)?, &ask.targets)?;
    let programs = build(root, &targets)?;
    let seconds = match ask.minutes {
        None => SHORT_SECONDS,
        Some(minutes) => minutes * 60 * run::AT_ONCE / (targets.len() as u64).max(run::AT_ONCE),
    };
    let plan = Plan { root: root.to_owned(), programs, seconds, grows: ask.minutes.is_some() };
    let reports = run::all(&plan, &targets)?;
    println!("{}", said::TITLES);
    for report in &reports {
        println!("{report}");
    }
    if let Some(broken) = reports.iter().find(|report| report.input.is_some()) {
        eprintln!("{}", broken.advice());
        return Ok(ExitCode::FAILURE);
    }
    if ask.keep {
        for target in &targets {
            run::keep(&plan, target)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of all targets, sorted.
fn known(root: &Path) -> Result<Vec<String>> {
    let folder = std::fs::read_dir(root.join(TARGETS)).with_context(|| format!("could not read {TARGETS}"))?;
    let names = folder.map(|entry| Ok(entry?.path().file_stem().map(|stem| stem.to_string_lossy().into_owned())));
    let mut names = names.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn chosen(known: &[String], asked: &[String]) -> Result<Vec<String>> {
    if asked.is_empty() {
        return Ok(known.to_vec());
    }
    if let Some(stranger) = asked.iter().find(|asked| !known.contains(asked)) {
        bail!("there is no target {stranger}; there are {}", known.join(", "));
    }
    Ok(asked.to_vec())
}

/// Builds the targets beside the program that runs this; returns the folder.
///
/// The whole workspace is named so that foreign crates get the features that they have in tests.
fn build(root: &Path, targets: &[String]) -> Result<PathBuf> {
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--locked", "--workspace", "--all-features"]);
    build.args(targets.iter().flat_map(|target| ["--bin", target]));
    for package in OPTIMISED {
        build.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=1"));
    }
    build.env("CARGO_INCREMENTAL", "0").env("RUSTC_WORKSPACE_WRAPPER", root.join(COMPILER));
    let status = build.status().context("could not run cargo")?;
    ensure!(status.success(), "the fuzz targets do not compile");
    let own = std::env::current_exe().context("could not find this program's folder")?;
    own.parent().map(Path::to_path_buf).context("this program is in no folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_targets_that_there_are_can_be_asked_for() {
        let known = ["requests", "tokens"].map(str::to_owned);
        assert_eq!(chosen(&known, &[]).unwrap(), known);
        assert_eq!(chosen(&known, &known[1..]).unwrap(), ["tokens"]);
        let error = chosen(&known, &["token".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "there is no target token; there are requests, tokens");
    }

    #[test]
    fn every_target_has_its_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for target in known(root).unwrap() {
            let corpus = std::fs::read_dir(root.join(CORPUS).join(&target)).map(Iterator::count);
            assert!(corpus.is_ok_and(|inputs| (1..=run::INPUTS).contains(&inputs)), "{target}");
        }
    }
}
