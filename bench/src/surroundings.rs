//! Where and on what was measured.

use std::{collections::BTreeMap, fs, process::Command, sync::OnceLock};

use serde::Serialize;

use crate::database::Database;

/// Settings of PostgreSQL that decide what an append costs.
const SETTINGS: [&str; 10] = [
    "server_version",
    "shared_buffers",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_compression",
    "max_wal_size",
    "max_connections",
    "wal_sync_method",
];

/// What the first PostgreSQL of this run says of itself; all of a run are started alike.
static POSTGRES: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// What a reader of figures must know.
#[derive(Debug, Serialize)]
pub(crate) struct Surroundings {
    machine: Machine,
    versions: Versions,
    /// PostgreSQL's; empty where a run needed none.
    settings: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct Machine {
    cores: usize,
    memory: Option<String>,
    kernel: Option<String>,
    cpu: Option<String>,
}

#[derive(Debug, Serialize)]
struct Versions {
    anneal: &'static str,
    /// The commit that is checked out, `-dirty` where files differ from it; none outside a clone.
    commit: Option<String>,
    rust: Option<String>,
    postgresql: Option<String>,
    /// How the benchmark was built: what it measured was built alike.
    profile: &'static str,
}

impl Surroundings {
    /// Looks around.
    pub(crate) fn read() -> Self {
        let mut settings = POSTGRES.get().cloned().unwrap_or_default();
        let postgresql = settings.remove("server_version");
        Self {
            machine: Machine {
                cores: std::thread::available_parallelism().map_or(0, usize::from),
                memory: field("/proc/meminfo", "MemTotal"),
                kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
                cpu: field("/proc/cpuinfo", "model name"),
            },
            versions: Versions {
                anneal: env!("CARGO_PKG_VERSION"),
                commit: said("git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]),
                rust: said("rustc", &["--version"]),
                postgresql,
                profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            },
            settings,
        }
    }
}

/// Asks this run's first PostgreSQL what it is.
pub(crate) async fn note(database: &Database) -> anyhow::Result<()> {
    if POSTGRES.get().is_some() {
        return Ok(());
    }
    let shows: Vec<String> = SETTINGS.iter().map(|setting| format!("show {setting};")).collect();
    let said = database.run(&shows.join("\n")).await?;
    let settings = SETTINGS.iter().zip(said.lines()).map(|(setting, value)| ((*setting).into(), value.into()));
    POSTGRES.get_or_init(|| settings.collect());
    Ok(())
}

/// The first `name: value` of a file of Linux; None elsewhere.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.split_once(':').filter(|(said, _)| said.trim() == name))?.1;
    Some(value.trim().to_owned())
}

/// The first line that a program prints; None where there is none or it fails.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program).args(arguments).output().ok().filter(|done| done.status.success())?;
    String::from_utf8_lossy(&done.stdout).lines().next().map(str::to_owned)
}
