//! What both test programs need: a base folder that goes away, servers that stop, SQL by `psql`.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anneal_local_postgres::{Binaries, Durability, LocalPostgres, Settings, StopOnDrop};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Bench {
    pub(crate) binaries: Binaries,
    base: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let base = tempfile::Builder::new().prefix("anneal-pg").tempdir_in("/tmp").unwrap();
        // As root, PostgreSQL's user has to pass through.
        fs::set_permissions(base.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Bench { binaries: binaries(), base }
    }

    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    pub(crate) fn settings(&self, name: &str) -> Settings {
        test_settings(self.base.path().join(name))
    }

    /// For tests that crash it and look for what was committed a moment before.
    pub(crate) fn durable(&self) -> Settings {
        Settings { durability: Durability::Durable, ..self.settings("pg") }
    }

    pub(crate) async fn start(&self) -> StopOnDrop {
        self.start_with(self.settings("pg")).await
    }

    pub(crate) async fn start_with(&self, settings: Settings) -> StopOnDrop {
        LocalPostgres::start(settings).await.unwrap().stop_on_drop()
    }

    /// The one value that a query returns.
    pub(crate) fn sql(&self, server: &LocalPostgres, sql: &str) -> String {
        self.psql(&server.url("postgres"), sql).unwrap()
    }

    /// The same, or what `psql` complained about.
    pub(crate) fn psql(&self, address: &str, sql: &str) -> Result<String, String> {
        let said = Command::new(self.binaries.program("psql")).args(["-XAtq", "-c", sql, address]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
    }

    /// A process that is not PostgreSQL and belongs to the user that runs it.
    pub(crate) fn sleeper(&self, server: &LocalPostgres) -> Child {
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
    Settings { durability: Durability::Test, ..Settings::new(folder, binaries()) }
}

/// Fails with what to install: a test that cannot run has not passed.
fn binaries() -> Binaries {
    let wanted = std::env::var_os("ANNEAL_PG_BIN").map(PathBuf::from);
    Binaries::find(wanted.as_deref()).unwrap_or_else(|missing| panic!("{missing}"))
}

pub(crate) fn postmaster_pid(server: &LocalPostgres) -> i32 {
    let text = fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

/// `kill -9` of a server that the test started.
pub(crate) fn kill(pid: i32) {
    assert!(is_postgres(pid), "{pid} is no server of ours");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

pub(crate) fn is_postgres(pid: i32) -> bool {
    let said = Command::new("ps").args(["-ww", "-o", "command=", "-p", &pid.to_string()]).output().unwrap();
    String::from_utf8_lossy(&said.stdout).contains("anneal-pg")
}
