//! How many instructions the functions take that every append and every context runs: counted by callgrind, held against
//! `instructions/baseline.toml`. Counts of one compiler do not depend on how busy the machine is, or on its clock.

mod baseline;
mod compare;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::ci::cargo;
use baseline::{Baseline, Measurement, Toolchain};
use compare::Percent;

const BASELINE: &str = "instructions/baseline.toml";
/// What is counted, and where it starts and ends (`instructions/src/measure.rs`).
const BINARY: &str = "anneal-instructions";
const COUNTED: &str = "anneal_instructions::measure::count_instructions";

/// How the measured crates are compiled. Everything else is compiled as for tests, and so only once for both: the counts
/// of foreign code are those of `opt-level = 1`. Of the server only the parsing is measured; optimising its futures fully
/// would take longer than everything else here.
const OPT_LEVELS: [(&str, u8); 5] =
    [("anneal-core", 3), ("anneal-proto", 3), ("anneal-store", 3), ("anneal-server", 1), ("anneal-instructions", 3)];

/// An allocator that never learns: by default glibc moves the size from which on it asks the system for memory.
const ALLOCATOR: &str = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.top_pad=67108864";

/// Growth that is no failure: runs of the same program differ by less than a tenth of it (seeds of hash maps).
const TOLERATED: Percent = Percent(5);
/// The same under another compiler than the recorded one, which inlines otherwise.
const TOLERATED_OF_ANOTHER: Percent = Percent(25);

#[derive(Args)]
pub(crate) struct Ask {
    /// Records the counts as the new baseline, instead of comparing them with it.
    #[arg(long)]
    pub(crate) write: bool,
}

/// Counts, and fails where something takes clearly more than the baseline says; or writes a new baseline.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let path = root.join(BASELINE);
    let toolchain = toolchain()?;
    if ask.write {
        let counted = Baseline { toolchain, measurements: count(root)? };
        std::fs::write(&path, counted.to_string()).with_context(|| format!("could not write {BASELINE}"))?;
        eprintln!("instructions: {} counts written to {BASELINE}", counted.measurements.len());
        return Ok(ExitCode::SUCCESS);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("could not read {BASELINE}"))?;
    let recorded = Baseline::parse(&text).with_context(|| format!("could not read {BASELINE}"))?;
    if recorded.toolchain.host != toolchain.host {
        eprintln!("instructions: recorded with {}, this is {toolchain}: not compared", recorded.toolchain);
        return Ok(ExitCode::SUCCESS);
    }
    let tolerated = if recorded.toolchain == toolchain { TOLERATED } else { TOLERATED_OF_ANOTHER };
    if recorded.toolchain != toolchain {
        eprintln!("instructions: recorded with {}, this is {toolchain}: {tolerated} are tolerated", recorded.toolchain);
    }
    let changes = compare::compare(&recorded.measurements, &count(root)?, tolerated);
    for change in &changes {
        eprintln!("{change}");
    }
    if !changes.iter().any(|change| change.fate().fails()) {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "instructions: mend what has grown, or accept it with `cargo xtask instructions --write` and commit {BASELINE}"
    );
    Ok(ExitCode::FAILURE)
}

fn toolchain() -> Result<Toolchain> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").arg("--verbose").output().context("could not run rustc")?;
    let said = String::from_utf8(said.stdout).context("rustc's version is no text")?;
    let line = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
    let rustc = said.lines().next().map(str::to_owned).context("rustc says no version")?;
    Ok(Toolchain { rustc, host: line("host:").context("rustc says no host")? })
}

/// Builds and runs everything that is measured, under callgrind.
fn count(root: &Path) -> Result<Vec<Measurement>> {
    let program = build(root)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let counts = folder.path().join("counts");
    let mut valgrind = Command::new("valgrind");
    // The environment lies on the program's stack: everybody's is the same.
    valgrind.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("GLIBC_TUNABLES", ALLOCATOR);
    valgrind.args(["--quiet", "--tool=callgrind", "--collect-atstart=no"]);
    valgrind.args([format!("--toggle-collect={COUNTED}"), format!("--dump-after={COUNTED}")]);
    valgrind.arg(format!("--callgrind-out-file={}", counts.display())).arg(program);
    let ran = valgrind.stderr(std::process::Stdio::inherit()).output();
    let ran = ran.context("could not run valgrind; scripts/debian.sh valgrind installs it")?;
    ensure!(ran.status.success(), "{BINARY} failed under valgrind: {}", ran.status);
    let names = String::from_utf8(ran.stdout).with_context(|| format!("what {BINARY} prints is no text"))?;
    names.lines().zip(1..).map(|(line, place)| measurement(line, &numbered(&counts, place))).collect()
}

/// The file of the n-th measurement.
fn numbered(counts: &Path, place: usize) -> PathBuf {
    counts.with_extension(place.to_string())
}

fn measurement(line: &str, counts: &Path) -> Result<Measurement> {
    let (name, says) = line.split_once('\t').with_context(|| format!("{BINARY} printed {line:?}"))?;
    let text = std::fs::read_to_string(counts).with_context(|| format!("valgrind has not counted {name}"))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).map(str::trim);
    let instructions = total.and_then(|total| total.parse().ok()).filter(|total| *total > 0);
    let instructions = instructions.with_context(|| format!("valgrind has counted nothing for {name}"))?;
    Ok(Measurement { name: name.to_owned(), says: says.to_owned(), instructions })
}

/// The measured program: it is built beside the one that runs this, in the same profile.
///
/// In one unit per crate, not incrementally, so that what is inlined depends on the code alone. The whole workspace is
/// named so that foreign crates get the features that they have in tests.
fn build(root: &Path) -> Result<PathBuf> {
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--locked", "--workspace", "--bin", BINARY]);
    for (package, opt_level) in OPT_LEVELS {
        let settings = [("opt-level", opt_level.to_string()), ("codegen-units", "1".into())];
        let off = ["debug-assertions", "overflow-checks"].map(|setting| (setting, "false".into()));
        for (setting, value) in settings.into_iter().chain(off) {
            build.arg("--config").arg(format!("profile.dev.package.{package}.{setting}={value}"));
        }
    }
    let status = build.env("CARGO_INCREMENTAL", "0").status().context("could not run cargo")?;
    if !status.success() {
        bail!("{BINARY} does not compile");
    }
    let own = std::env::current_exe().context("could not find this program's folder")?;
    Ok(own.with_file_name(BINARY))
}
