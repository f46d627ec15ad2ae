//! Runs fuzz targets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

use super::report::Report;
use super::{CORPUS, FOUND};

/// Number of targets that run concurrently.
pub(super) const AT_ONCE: u64 = 2;
/// Maximum number of inputs in a corpus.
pub(super) const INPUTS: usize = 100;

/// Maximum bytes of an input. Longer inputs reach nothing that shorter ones do not.
const INPUT_BYTES: u32 = 4_096;
/// Maximum seconds for one input. The slowest input takes a hundredth of this.
const INPUT_SECONDS: u32 = 10;
/// Maximum memory of a target in megabytes.
const MEMORY: u32 = 2_048;
/// The seed of the random choices.
const SEED: u32 = 1;

/// How targets are run.
pub(super) struct Plan {
    pub(super) root: PathBuf,
    /// The folder with the targets' programs.
    pub(super) programs: PathBuf,
    /// How long each target runs.
    pub(super) seconds: u64,
    /// Whether new inputs are kept for later runs.
    pub(super) grows: bool,
}

impl Plan {
    fn program(&self, target: &str) -> Command {
        let mut program = Command::new(self.programs.join(target));
        program.current_dir(&self.root).stdin(Stdio::null());
        program.args([
            format!("-max_len={INPUT_BYTES}"),
            format!("-timeout={INPUT_SECONDS}"),
        ]);
        program.args([format!("-rss_limit_mb={MEMORY}"), format!("-seed={SEED}")]);
        let words = self.root.join("dev/fuzz/words").join(target);
        if words.is_file() {
            program.arg(format!("-dict={}", words.display()));
        }
        program
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join(CORPUS).join(target)
    }

    fn found(&self, target: &str) -> PathBuf {
        self.root.join(FOUND).join(target)
    }
}

/// Runs all targets and returns their reports in the same order.
pub(super) fn run_all(plan: &Plan, targets: &[String]) -> Result<Vec<Report>> {
    let left = Mutex::new(targets.iter().enumerate().collect::<Vec<_>>());
    let reports = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = left
                .lock()
                .expect("no thread panics while holding the lock")
                .pop();
            let Some((place, target)) = next else {
                return Ok(());
            };
            let report =
                run_one(plan, target).with_context(|| format!("{target} could not run"))?;
            reports
                .lock()
                .expect("no thread panics while holding the lock")
                .push((place, report));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("workers do not panic"))
    })?;
    let mut reports = reports
        .into_inner()
        .expect("no thread panics while holding the lock");
    reports.sort_by_key(|(place, _)| *place);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

/// Runs one target on its corpus and on the inputs that earlier runs have found.
fn run_one(plan: &Plan, target: &str) -> Result<Report> {
    let found = plan.found(target);
    let passing = tempfile::tempdir().context("could not make a temporary folder")?;
    let growing = if plan.grows {
        found.join("corpus")
    } else {
        passing.path().to_owned()
    };
    std::fs::create_dir_all(&growing).with_context(|| growing.display().to_string())?;
    let broken = found.join("broken");
    std::fs::create_dir_all(&broken).with_context(|| broken.display().to_string())?;
    let before = names(&broken)?;
    let mut program = plan.program(target);
    program.args([
        "-print_final_stats=1".to_owned(),
        format!("-max_total_time={}", plan.seconds),
    ]);
    program
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .arg(growing)
        .arg(plan.corpus(target));
    let ended = program.output().context("could not run it")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        return Ok(Report::read(target, &said, None));
    }
    eprintln!("{said}");
    match names(&broken)?
        .into_iter()
        .find(|name| !before.contains(name))
    {
        Some(input) => Ok(Report::read(target, &said, Some(broken.join(input)))),
        None => bail!("it ended with {}", ended.status),
    }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Reduces the corpus and the newly found inputs to the fewest inputs that together have the same
/// coverage.
pub(super) fn minimise_corpus(plan: &Plan, target: &str) -> Result<()> {
    let (corpus, found) = (plan.corpus(target), plan.found(target).join("corpus"));
    let new = tempfile::tempdir().context("could not make a temporary folder")?;
    let mut program = plan.program(target);
    program
        .arg("-set_cover_merge=1")
        .arg(new.path())
        .args([&corpus, &found]);
    let ended = program.output().context("could not run it")?;
    ensure!(
        ended.status.success(),
        "{target}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let kept = smallest(new.path())?;
    std::fs::remove_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    std::fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    for name in &kept {
        std::fs::copy(new.path().join(name), corpus.join(name)).with_context(|| name.clone())?;
    }
    eprintln!("fuzz: {target} keeps {} inputs", kept.len());
    Ok(())
}

/// The smallest inputs of a folder, up to the maximum size of a corpus.
fn smallest(folder: &Path) -> Result<Vec<String>> {
    let sized = names(folder)?
        .into_iter()
        .map(|name| Ok((std::fs::metadata(folder.join(&name))?.len(), name)));
    let mut sized = sized.collect::<Result<Vec<_>>>()?;
    sized.sort();
    Ok(sized
        .into_iter()
        .take(INPUTS)
        .map(|(_, name)| name)
        .collect())
}
