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
const COUNTED: &str = "anneal_instructions::measure::count_instructions";

/// Optimisation levels of the measured crates. Everything else is compiled as for the tests, and
/// therefore only once: the counts of dependencies are those of `opt-level = 1`. Of the server only
/// the parsing is measured; fully optimising its futures would take longer than everything else
/// here.
const OPT_LEVELS: [(&str, u8); 5] = [
    ("anneal-core", 3),
    ("anneal-proto", 3),
    ("anneal-store", 3),
    ("anneal-server", 1),
    ("anneal-instructions", 3),
];

/// Switches off the allocator's adaptation: by default glibc changes the size from which on it
/// requests memory directly from the system.
const ALLOCATOR: &str = "glibc.malloc.mmap_threshold=33554432:glibc.malloc.top_pad=67108864";

/// Growth that is tolerated. Runs of the same program differ by less than a tenth of it, because of
/// the random seeds of hash maps.
const TOLERATED: Percent = Percent(5);
/// Growth that is tolerated with a compiler other than the recorded one, which may inline
/// differently.
const TOLERATED_OF_ANOTHER: Percent = Percent(25);

#[derive(Args)]
pub(crate) struct Ask {
    /// Records the counts as the new baseline, instead of comparing them with it.
    #[arg(long)]
    pub(crate) write: bool,
}

/// Counts the instructions. Fails if a count is clearly higher than in the baseline, or writes a
/// new baseline.
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
            "instructions: recorded with {}, this is {toolchain}: not compared",
            recorded.toolchain
        );
        return Ok(ExitCode::SUCCESS);
    }
    let tolerated = if recorded.toolchain == toolchain {
        TOLERATED
    } else {
        TOLERATED_OF_ANOTHER
    };
    if recorded.toolchain != toolchain {
        eprintln!(
            "instructions: recorded with {}, this is {toolchain}: {tolerated} are tolerated",
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
        "instructions: mend what has grown, or accept it with `cargo xtask instructions --write` and commit {BASELINE}"
    );
    Ok(ExitCode::FAILURE)
}

fn toolchain() -> Result<Toolchain> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc)
        .arg("--version")
        .arg("--verbose")
        .output()
        .context("could not run rustc")?;
    let said = String::from_utf8(said.stdout).context("rustc's version is no text")?;
    let line = |key: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|value| value.trim().to_owned())
    };
    let rustc = said
        .lines()
        .next()
        .map(str::to_owned)
        .context("rustc says no version")?;
    Ok(Toolchain {
        rustc,
        host: line("host:").context("rustc says no host")?,
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
    let names = String::from_utf8(ran.stdout)
        .with_context(|| format!("what {BINARY} prints is no text"))?;
    names
        .lines()
        .zip(1..)
        .map(|(line, place)| measurement(line, &numbered(&counts, place)))
        .collect()
}

/// The file with the n-th measurement.
fn numbered(counts: &Path, place: usize) -> PathBuf {
    counts.with_extension(place.to_string())
}

fn measurement(line: &str, counts: &Path) -> Result<Measurement> {
    let (name, says) = line
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
        says: says.to_owned(),
        instructions,
    })
}

/// Builds the measured program, next to the one that runs this and with the same profile.
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
