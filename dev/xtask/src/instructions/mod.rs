//! Counts the instructions of the functions that every append and every context executes, with
//! callgrind, and compares them with `dev/instructions/baseline.toml`. With the same compiler, the
//! counts depend neither on the load of the machine nor on its clock rate.

mod baseline;
mod compare;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::cargo::cargo;
use baseline::{Baseline, Measurement, Toolchain};
use compare::Percent;

const BASELINE: &str = "dev/instructions/baseline.toml";
/// The program whose instructions are counted. `dev/instructions/src/measure.rs` marks where
/// counting starts and ends.
const BINARY: &str = "anneal-instructions";
/// The function whose instructions callgrind counts.
const COUNTED: &str = "anneal_instructions::measure::count_instructions";

/// Optimization levels of our own crates. Dependencies are compiled as for the tests, with
/// `opt-level = 1`, and therefore only once.
const OPT_LEVELS: [(&str, u8); 4] = [
    ("anneal-core", 3),
    ("anneal-proto", 3),
    ("anneal-store", 3),
    ("anneal-instructions", 3),
];

/// Settings of glibc's allocator. By default glibc adapts the size from which on it requests memory
/// directly from the system, which changes the counts. Here this size is 32 MiB, and glibc requests
/// 64 MiB at a time.
const ALLOCATOR: &str = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.top_pad=67108864";

/// Growth that is tolerated. Runs of the same program differ, because hash maps have random
/// seeds, but by less than a tenth of this.
const TOLERATED: Percent = Percent(5);
/// Growth that is tolerated with a compiler other than the recorded one, which may inline
/// differently.
const TOLERATED_WITH_OTHER_COMPILER: Percent = Percent(25);

// The arguments of `cargo xtask instructions`.
#[derive(Args)]
pub(crate) struct Ask {
    /// Records the counts as the new baseline, instead of comparing them with it.
    #[arg(long)]
    pub(crate) write: bool,
}

/// Counts the instructions and compares them with the baseline, or writes a new baseline. Fails if
/// a count has grown by more than is tolerated, or if a measurement is new or missing. Compares
/// nothing if the baseline was recorded on another kind of host.
pub(crate) fn run(root: &Path, ask: &Ask) -> Result<ExitCode> {
    let path = root.join(BASELINE);
    let toolchain = toolchain()?;
    if ask.write {
        let counted = Baseline {
            toolchain,
            measurements: count(root)?,
        };
        std::fs::write(&path, counted.to_string())
            .with_context(|| format!("could not write {BASELINE}"))?;
        eprintln!(
            "instructions: {} counts written to {BASELINE}",
            counted.measurements.len()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("could not read {BASELINE}"))?;
    let recorded = Baseline::parse(&text).with_context(|| format!("could not read {BASELINE}"))?;
    if recorded.toolchain.host != toolchain.host {
        eprintln!(
            "instructions: not compared, because the baseline was recorded with {} and this is {toolchain}",
            recorded.toolchain
        );
        return Ok(ExitCode::SUCCESS);
    }
    let tolerated = if recorded.toolchain == toolchain {
        TOLERATED
    } else {
        TOLERATED_WITH_OTHER_COMPILER
    };
    if recorded.toolchain != toolchain {
        eprintln!(
            "instructions: the baseline was recorded with {}, this is {toolchain}: {tolerated} growth is tolerated",
            recorded.toolchain
        );
    }
    let changes = compare::compare(&recorded.measurements, &count(root)?, tolerated);
    for change in &changes {
        eprintln!("{change}");
    }
    if !changes.iter().any(|change| change.verdict().fails()) {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "instructions: reduce the counts that have grown, or accept them: run `cargo xtask instructions --write` and commit {BASELINE}"
    );
    Ok(ExitCode::FAILURE)
}

fn toolchain() -> Result<Toolchain> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("--version")
        .arg("--verbose")
        .output()
        .context("could not run rustc")?;
    let output = String::from_utf8(output.stdout).context("rustc's output is not UTF-8")?;
    let line = |key: &str| {
        output
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|value| value.trim().to_owned())
    };
    let rustc = output
        .lines()
        .next()
        .map(str::to_owned)
        .context("rustc printed no version")?;
    Ok(Toolchain {
        rustc,
        host: line("host:").context("rustc printed no host")?,
    })
}

/// Builds and runs all measurements under callgrind.
fn count(root: &Path) -> Result<Vec<Measurement>> {
    let program = build(root)?;
    let folder = tempfile::tempdir().context("could not make a temporary folder")?;
    let counts = folder.path().join("counts");
    let mut valgrind = Command::new("valgrind");
    // The environment is part of the program's stack and must therefore be the same everywhere.
    valgrind
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("GLIBC_TUNABLES", ALLOCATOR);
    valgrind.args(["--quiet", "--tool=callgrind", "--collect-atstart=no"]);
    valgrind.args([
        format!("--toggle-collect={COUNTED}"),
        format!("--dump-after={COUNTED}"),
    ]);
    valgrind
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(program);
    let ran = valgrind.stderr(std::process::Stdio::inherit()).output();
    let ran = ran.context("could not run valgrind; scripts/debian.sh valgrind installs it")?;
    ensure!(
        ran.status.success(),
        "{BINARY} failed under valgrind: {}",
        ran.status
    );
    let printed = String::from_utf8(ran.stdout)
        .with_context(|| format!("the output of {BINARY} is not UTF-8"))?;
    printed
        .lines()
        .zip(1..)
        .map(|(line, place)| measurement(line, &counts_file(&counts, place)))
        .collect()
}

/// The file into which callgrind writes the counts of measurement number `place`.
fn counts_file(counts: &Path, place: usize) -> PathBuf {
    counts.with_extension(place.to_string())
}

fn measurement(line: &str, counts: &Path) -> Result<Measurement> {
    let (name, description) = line
        .split_once('\t')
        .with_context(|| format!("{BINARY} printed {line:?}"))?;
    let text = std::fs::read_to_string(counts)
        .with_context(|| format!("valgrind has not counted {name}"))?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: "))
        .map(str::trim);
    let instructions = total
        .and_then(|total| total.parse().ok())
        .filter(|total| *total > 0);
    let instructions =
        instructions.with_context(|| format!("valgrind has counted nothing for {name}"))?;
    Ok(Measurement {
        name: name.to_owned(),
        description: description.to_owned(),
        instructions,
    })
}

/// Builds the measured program into the folder of this program, with the same profile. Returns its
/// path.
///
/// Each crate is compiled as one unit and not incrementally, so that inlining depends on the code
/// alone. The whole workspace is selected, so that dependencies get the same features as in tests.
fn build(root: &Path) -> Result<PathBuf> {
    let mut build = cargo(root);
    build.args([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--bin",
        BINARY,
    ]);
    for (package, opt_level) in OPT_LEVELS {
        let settings = [
            ("opt-level", opt_level.to_string()),
            ("codegen-units", "1".into()),
        ];
        let off = ["debug-assertions", "overflow-checks"].map(|setting| (setting, "false".into()));
        for (setting, value) in settings.into_iter().chain(off) {
            build
                .arg("--config")
                .arg(format!("profile.dev.package.{package}.{setting}={value}"));
        }
    }
    let status = build
        .env("CARGO_INCREMENTAL", "0")
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        bail!("{BINARY} does not compile");
    }
    let own = std::env::current_exe().context("could not find this program's folder")?;
    Ok(own.with_file_name(BINARY))
}
