//! Runs fuzz targets, and minimizes their corpora.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

use super::report::Report;
use super::{CORPUS, FOUND};

/// Number of targets that run concurrently.
pub(super) const AT_ONCE: u64 = 2;
/// Maximum number of inputs in a corpus.
pub(super) const MAX_INPUTS: usize = 100;

/// Maximum bytes of an input. Longer inputs reach nothing that shorter ones do not.
const MAX_INPUT_BYTES: u32 = 4_096;
/// Maximum seconds for one input. The slowest input takes a hundredth of this.
const MAX_INPUT_SECONDS: u32 = 10;
/// Maximum memory of a target in megabytes.
const MAX_MEMORY_MB: u32 = 2_048;
/// The seed of libFuzzer's random choices. It is constant, so that every run starts alike.
const SEED: u32 = 1;

/// How targets are run.
pub(super) struct Plan {
    pub(super) root: PathBuf,
    /// The folder with the targets' programs.
    pub(super) programs: PathBuf,
    /// How long each target runs, in seconds.
    pub(super) seconds: u64,
    /// Whether inputs that reach new code are kept for later runs, in [`FOUND`]. Inputs that make
    /// the target fail are always kept.
    pub(super) keeps_new_inputs: bool,
}

impl Plan {
    fn program(&self, target: &str) -> Command {
        let mut program = Command::new(self.programs.join(target));
        program.current_dir(&self.root).stdin(Stdio::null());
        program.args([
            format!("-max_len={MAX_INPUT_BYTES}"),
            format!("-timeout={MAX_INPUT_SECONDS}"),
        ]);
        program.args([
            format!("-rss_limit_mb={MAX_MEMORY_MB}"),
            format!("-seed={SEED}"),
        ]);
        let words = self.root.join("dev/fuzz/words").join(target);
        if words.is_file() {
            program.arg(format!("-dict={}", words.display()));
        }
        program
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join(CORPUS).join(target)
    }

    /// The target's folder below [`FOUND`]: `corpus/` for new inputs, `broken/` for those that made
    /// the target fail.
    fn found(&self, target: &str) -> PathBuf {
        self.root.join(FOUND).join(target)
    }
}

/// Runs all targets and returns their reports in the same order.
pub(super) fn run_all(plan: &Plan, targets: &[String]) -> Result<Vec<Report>> {
    let waiting = Mutex::new(targets.iter().enumerate().collect::<Vec<_>>());
    let reports = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = waiting
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

/// Runs one target on its corpus. With [`Plan::keeps_new_inputs`], runs it also on the inputs that
/// earlier runs have found. The report names the input that made the target fail, if any did.
fn run_one(plan: &Plan, target: &str) -> Result<Report> {
    let found = plan.found(target);
    let discarded = tempfile::tempdir().context("could not make a temporary folder")?;
    let new_inputs = if plan.keeps_new_inputs {
        found.join("corpus")
    } else {
        discarded.path().to_owned()
    };
    std::fs::create_dir_all(&new_inputs).with_context(|| new_inputs.display().to_string())?;
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
        .arg(new_inputs)
        .arg(plan.corpus(target));
    let ended = program.output().context("could not run it")?;
    let output = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        return Ok(Report::parse(target, &output, None));
    }
    eprintln!("{output}");
    match names(&broken)?
        .into_iter()
        .find(|name| !before.contains(name))
    {
        Some(input) => Ok(Report::parse(target, &output, Some(broken.join(input)))),
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

/// Replaces the corpus by the fewest inputs that reach the same code as the corpus and the inputs
/// found by earlier runs together. If these are more than [`MAX_INPUTS`], only the smallest are
/// kept, and some code is no longer reached.
pub(super) fn minimize_corpus(plan: &Plan, target: &str) -> Result<()> {
    let (corpus, found) = (plan.corpus(target), plan.found(target).join("corpus"));
    let merged = tempfile::tempdir().context("could not make a temporary folder")?;
    let mut program = plan.program(target);
    program
        .arg("-set_cover_merge=1")
        .arg(merged.path())
        .args([&corpus, &found]);
    let ended = program.output().context("could not run it")?;
    ensure!(
        ended.status.success(),
        "{target}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    let kept = smallest(merged.path())?;
    std::fs::remove_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    std::fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
    for name in &kept {
        std::fs::copy(merged.path().join(name), corpus.join(name)).with_context(|| name.clone())?;
    }
    eprintln!("fuzz: the corpus of {target} has {} inputs now", kept.len());
    Ok(())
}

/// The names of the [`MAX_INPUTS`] smallest inputs in a folder.
fn smallest(folder: &Path) -> Result<Vec<String>> {
    let sized = names(folder)?
        .into_iter()
        .map(|name| Ok((std::fs::metadata(folder.join(&name))?.len(), name)));
    let mut sized = sized.collect::<Result<Vec<_>>>()?;
    sized.sort();
    Ok(sized
        .into_iter()
        .take(MAX_INPUTS)
        .map(|(_, name)| name)
        .collect())
}
