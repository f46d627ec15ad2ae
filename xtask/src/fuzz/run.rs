//! Targets under way.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

use super::said::Report;
use super::{CORPUS, FOUND};

/// Targets that run at a time.
pub(super) const AT_ONCE: u64 = 2;
/// Inputs that a corpus keeps at most.
pub(super) const INPUTS: usize = 100;

/// Bytes of an input. What is longer reaches nothing that shorter ones cannot.
const INPUT_BYTES: u32 = 4_096;
/// Seconds that one input may take: the slowest takes a hundredth of it.
const INPUT_SECONDS: u32 = 10;
/// Megabytes that a target may hold.
const MEMORY: u32 = 2_048;
/// The first choice of all; later ones depend on what it has led to.
const SEED: u32 = 1;

/// How targets are run.
pub(super) struct Plan {
    pub(super) root: PathBuf,
    /// The folder of the targets' programs.
    pub(super) programs: PathBuf,
    /// For which each target runs.
    pub(super) seconds: u64,
    /// Whether what is found is there the next time.
    pub(super) grows: bool,
}

impl Plan {
    fn program(&self, target: &str) -> Command {
        let mut program = Command::new(self.programs.join(target));
        program.current_dir(&self.root).stdin(Stdio::null());
        program.args([format!("-max_len={INPUT_BYTES}"), format!("-timeout={INPUT_SECONDS}")]);
        program.args([format!("-rss_limit_mb={MEMORY}"), format!("-seed={SEED}")]);
        let words = self.root.join("fuzz/words").join(target);
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

/// Runs all targets, and reports in their order.
pub(super) fn all(plan: &Plan, targets: &[String]) -> Result<Vec<Report>> {
    let left = Mutex::new(targets.iter().enumerate().collect::<Vec<_>>());
    let reports = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = left.lock().expect("nobody panics with it").pop();
            let Some((place, target)) = next else { return Ok(()) };
            let report = one(plan, target).with_context(|| format!("{target} could not run"))?;
            reports.lock().expect("nobody panics with it").push((place, report));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("workers do not panic"))
    })?;
    let mut reports = reports.into_inner().expect("nobody panics with it");
    reports.sort_by_key(|(place, _)| *place);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

/// Runs one target on what it begins with and what earlier runs have found.
fn one(plan: &Plan, target: &str) -> Result<Report> {
    let found = plan.found(target);
    let passing = tempfile::tempdir().context("could not make a temporary folder")?;
    let growing = if plan.grows { found.join("corpus") } else { passing.path().to_owned() };
    std::fs::create_dir_all(&growing).with_context(|| growing.display().to_string())?;
    let broken = found.join("broken");
    std::fs::create_dir_all(&broken).with_context(|| broken.display().to_string())?;
    let before = names(&broken)?;
    let mut program = plan.program(target);
    program.args(["-print_final_stats=1".to_owned(), format!("-max_total_time={}", plan.seconds)]);
    program.arg(format!("-artifact_prefix={}/", broken.display())).arg(growing).arg(plan.corpus(target));
    let ended = program.output().context("could not run it")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        return Ok(Report::read(target, &said, None));
    }
    eprintln!("{said}");
    match names(&broken)?.into_iter().find(|name| !before.contains(name)) {
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

/// Makes the corpus anew of itself and of what was found: the fewest inputs that together reach all that they reach.
pub(super) fn keep(plan: &Plan, target: &str) -> Result<()> {
    let (corpus, found) = (plan.corpus(target), plan.found(target).join("corpus"));
    let new = tempfile::tempdir().context("could not make a temporary folder")?;
    let mut program = plan.program(target);
    program.arg("-set_cover_merge=1").arg(new.path()).args([&corpus, &found]);
    let ended = program.output().context("could not run it")?;
    ensure!(ended.status.success(), "{target}: {}", String::from_utf8_lossy(&ended.stderr));
    let kept = smallest(new.path())?;
    std::fs::remove_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    std::fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    for name in &kept {
        std::fs::copy(new.path().join(name), corpus.join(name)).with_context(|| name.clone())?;
    }
    eprintln!("fuzz: {target} keeps {} inputs", kept.len());
    Ok(())
}

/// The smallest inputs of a folder, as many as a corpus keeps.
fn smallest(folder: &Path) -> Result<Vec<String>> {
    let sized = names(folder)?.into_iter().map(|name| Ok((std::fs::metadata(folder.join(&name))?.len(), name)));
    let mut sized = sized.collect::<Result<Vec<_>>>()?;
    sized.sort();
    Ok(sized.into_iter().take(INPUTS).map(|(_, name)| name).collect())
}
