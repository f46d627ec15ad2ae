//! Describes the machine, PostgreSQL and build that were measured.

use std::{collections::BTreeMap, fs, process::Command, sync::OnceLock};

use serde::Serialize;

use crate::database::Database;

/// PostgreSQL's parameters that a run records: its version, and the settings that affect the cost
/// of an append.
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

/// Version and settings of the first PostgreSQL of this run. Every PostgreSQL of a run is started
/// with the same values of these settings.
static POSTGRES: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Facts that a reader needs to interpret the figures.
#[derive(Debug, Serialize)]
pub(crate) struct Environment {
    machine: Machine,
    versions: Versions,
    /// PostgreSQL's settings. Empty if the run needed no PostgreSQL.
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
    /// The commit that is checked out, with `-dirty` if files differ from it. `None` outside a git
    /// clone.
    commit: Option<String>,
    rust: Option<String>,
    postgresql: Option<String>,
    /// The build profile of the benchmark. The measured binary is built with the same profile.
    profile: &'static str,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn read() -> Self {
        let mut settings = POSTGRES.get().cloned().unwrap_or_default();
        let postgresql = settings.remove("server_version");
        Self {
            machine: Machine {
                cores: std::thread::available_parallelism().map_or(0, usize::from),
                memory: field("/proc/meminfo", "MemTotal"),
                kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                    .ok()
                    .map(|text| text.trim().to_owned()),
                cpu: field("/proc/cpuinfo", "model name"),
            },
            versions: Versions {
                anneal: env!("CARGO_PKG_VERSION"),
                commit: first_line_of(
                    "git",
                    &[
                        "describe",
                        "--always",
                        "--dirty",
                        "--abbrev=12",
                        "--exclude=*",
                    ],
                ),
                rust: first_line_of("rustc", &["--version"]),
                postgresql,
                profile: if cfg!(debug_assertions) {
                    "debug"
                } else {
                    "release"
                },
            },
            settings,
        }
    }
}

/// Reads version and settings from this run's first PostgreSQL. Later calls do nothing.
pub(crate) async fn record_postgres_settings(database: &Database) -> anyhow::Result<()> {
    if POSTGRES.get().is_some() {
        return Ok(());
    }
    let statements: Vec<String> = SETTINGS
        .iter()
        .map(|setting| format!("show {setting};"))
        .collect();
    let output = database.run(&statements.join("\n")).await?;
    let settings = SETTINGS
        .iter()
        .zip(output.lines())
        .map(|(setting, value)| ((*setting).into(), value.into()));
    POSTGRES.get_or_init(|| settings.collect());
    Ok(())
}

/// The value of the first `name: value` line in one of Linux's files. `None` on other systems.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))?
        .1;
    Some(value.trim().to_owned())
}

/// The first line that a program prints. `None` if the program does not exist or fails.
fn first_line_of(program: &str, arguments: &[&str]) -> Option<String> {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|done| done.status.success())?;
    String::from_utf8_lossy(&done.stdout)
        .lines()
        .next()
        .map(str::to_owned)
}
