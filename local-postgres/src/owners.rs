//! Throw-away clusters: who uses them, and the removal of those that nobody uses any more.
//!
//! Each process that opens a test folder leaves a file `owners/<pid>-<birth>` for itself and for its parent: a test
//! runner such as nextest runs one process per test, and the cluster must live until the runner ends.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

use crate::account::Account;
use crate::error::{OnPath, Result};
use crate::folder::{Folder, Lock};
use crate::postmaster::{Postmaster, is_alive};
use crate::server::Durability;

/// Writes down that this process and its parent use the folder, and forgets those that are gone.
pub(crate) fn register(folder: &Folder) -> Result<()> {
    let owners = owners(folder.path());
    fs::create_dir_all(&owners).on("create", &owners)?;
    let parent = Some(std::os::unix::process::parent_id()).filter(|pid| *pid > 1);
    for pid in parent.into_iter().chain([std::process::id()]) {
        let owner = owners.join(format!("{pid}-{}", birth(pid)));
        if !owner.exists() {
            fs::write(&owner, "").on("write", &owner)?;
        }
    }
    for gone in entries(&owners).filter(|owner| !owner_lives(owner)) {
        // Two processes may forget the same one.
        let _ = fs::remove_file(gone.path());
    }
    Ok(())
}

/// Stops and removes test clusters beside `folder` whose owners are all gone: what a killed test run left behind.
/// A cluster that somebody is starting or adopting right now holds its lock, and is left alone.
pub(crate) fn remove_abandoned(folder: &Folder, account: &Account) {
    let Some(base) = folder.path().parent() else { return };
    for neighbour in entries(base).map(|entry| entry.path()).filter(|path| path != folder.path()) {
        if is_abandoned(&neighbour, account) {
            remove(Folder::at(neighbour), account);
        }
    }
}

fn remove(abandoned: Folder, account: &Account) {
    let Ok(Some(_lock)) = abandoned.try_lock(&Lock::Alone) else { return };
    // Asked again under the lock: somebody may have adopted it in between.
    if !is_abandoned(abandoned.path(), account) {
        return;
    }
    tracing::info!(folder = %abandoned.path().display(), "removing a test cluster that nobody uses any more");
    if let Some(postmaster) = Postmaster::read(&abandoned.data()).filter(Postmaster::lives) {
        postmaster.signal(Signal::QUIT);
        if crate::start::wait_until("an abandoned server to stop", || !postmaster.lives()).is_err() {
            return;
        }
    }
    abandoned.remove();
}

fn is_abandoned(folder: &Path, account: &Account) -> bool {
    let ours = fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && account.owns(&found));
    let owners = owners(folder);
    ours && Folder::at(folder.to_owned()).durability() == Some(Durability::Test)
        && owners.is_dir()
        && !entries(&owners).any(|owner| owner_lives(&owner))
}

fn owners(folder: &Path) -> PathBuf {
    folder.join("owners")
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn owner_lives(owner: &DirEntry) -> bool {
    let name = owner.file_name();
    let Some((pid, born)) = name.to_str().and_then(|name| name.split_once('-')) else { return false };
    let Ok(pid) = pid.parse::<u32>() else { return false };
    Pid::from_raw(pid.cast_signed()).is_some_and(is_alive) && birth(pid) == born
}

/// When a process began, in clock ticks since boot, to tell it from a later one of the same number; empty where there is
/// no /proc, and for a process that is gone or dead.
fn birth(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name, in parentheses, may hold spaces. After it: state, then 18 fields, then the start time.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    match fields.next() {
        Some("Z") | None => String::new(),
        Some(_) => fields.nth(18).unwrap_or_default().to_owned(),
    }
}
