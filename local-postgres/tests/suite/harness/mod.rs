//! The test harness: a temporary base folder, servers that stop on drop, SQL by `psql`.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anneal_local_postgres::{Binaries, Durability, LocalPostgres, Settings, StopOnDrop};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Harness {
    pub(crate) binaries: Binaries,
    base: tempfile::TempDir,
}

impl Harness {
    pub(crate) fn new() -> Harness {
        let base = tempfile::Builder::new()
            .prefix("anneal-pg")
            .tempdir_in("/tmp")
            .unwrap();
        // As root, PostgreSQL's user must be able to enter the folder.
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Harness {
            binaries: binaries(),
            base,
        }
    }

    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    /// Settings of a server in the folder of this name below the base folder.
    pub(crate) fn settings(&self, name: &str) -> Settings {
        test_settings(self.base.path().join(name))
    }

    /// Settings for tests that stop or crash the server and then look for data committed just
    /// before.
    pub(crate) fn durable_settings(&self) -> Settings {
        Settings {
            durability: Durability::Durable,
            ..self.settings("pg")
        }
    }

    pub(crate) async fn start(&self) -> StopOnDrop {
        self.start_with(self.settings("pg")).await
    }

    pub(crate) async fn start_with(&self, settings: Settings) -> StopOnDrop {
        LocalPostgres::start(settings).await.unwrap().stop_on_drop()
    }

    /// Runs a query and returns its single value.
    pub(crate) fn sql(&self, server: &LocalPostgres, sql: &str) -> String {
        self.psql(&server.url("postgres"), sql).unwrap()
    }

    /// Runs a query and returns its single value, or the error of `psql`.
    pub(crate) fn psql(&self, address: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(self.binaries.program("psql"))
            .args(["-XAtq", "-c", sql, address])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// Starts a process that is not PostgreSQL and belongs to the user that runs PostgreSQL.
    pub(crate) fn spawn_sleep(&self, server: &LocalPostgres) -> Child {
        let data = fs::metadata(server.folder().join("data")).unwrap();
        let mut command = Command::new("sleep");
        command.arg("120").current_dir("/");
        if data.uid() != fs::metadata(self.base()).unwrap().uid() {
            command.uid(data.uid()).gid(data.gid());
        }
        command.spawn().unwrap()
    }
}

pub(crate) fn test_settings(folder: PathBuf) -> Settings {
    Settings {
        durability: Durability::Test,
        ..Settings::new(folder, binaries())
    }
}

/// Panics with installation advice if PostgreSQL is missing: a test that cannot run must not pass.
fn binaries() -> Binaries {
    let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
    Binaries::find(wanted.as_deref()).unwrap_or_else(|missing| panic!("{missing}"))
}

pub(crate) fn postmaster_pid(server: &LocalPostgres) -> i32 {
    let text = fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

/// Sends SIGKILL to a server that the test started.
pub(crate) fn kill(pid: i32) {
    assert!(is_postgres(pid), "{pid} is not a server of these tests");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

/// Whether this process is a server of these tests: its command line names their folder.
pub(crate) fn is_postgres(pid: i32) -> bool {
    let output = Command::new("ps")
        .args(["-ww", "-o", "command=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).contains("anneal-pg")
}
