//! The owners of test clusters, which are the processes that use them, and the removal of clusters
//! without owners.
//!
//! Each process that opens a test folder creates a file `owners/<pid>-<start time>` for itself and
//! for its parent. The parent counts because a test runner such as nextest runs one process per
//! test, and the cluster must live until the runner ends.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

use crate::account::Account;
use crate::durability::Durability;
use crate::error::{OnPath, Result};
use crate::folder::{Folder, Lock};
use crate::postmaster::{Postmaster, is_alive};
use crate::wait::wait_until;

/// Registers this process and its parent as owners of the folder. Removes the files of owners that
/// have ended.
pub(crate) fn register(folder: &Folder) -> Result<()> {
    let owners = owners_folder(folder.path());
    fs::create_dir_all(&owners).on("create", &owners)?;
    let parent = Some(std::os::unix::process::parent_id()).filter(|pid| *pid > 1);
    for pid in parent.into_iter().chain([std::process::id()]) {
        let owner = owners.join(format!("{pid}-{}", start_time(pid)));
        if !owner.exists() {
            fs::write(&owner, "").on("write", &owner)?;
        }
    }
    for ended in entries(&owners).filter(|owner| !is_owner_alive(owner)) {
        // Another process may remove the same file.
        let _ = fs::remove_file(ended.path());
    }
    Ok(())
}

/// Stops and removes the test clusters beside `folder` whose owners have all ended, for example
/// after a killed test run. A cluster that a process is starting or adopting is locked, and is
/// skipped.
pub(crate) fn remove_abandoned(folder: &Folder, account: &Account) {
    let Some(base) = folder.path().parent() else {
        return;
    };
    for neighbor in entries(base)
        .map(|entry| entry.path())
        .filter(|path| path != folder.path())
    {
        if is_abandoned(&neighbor, account) {
            remove(Folder::at(neighbor), account);
        }
    }
}

/// Stops the server of an abandoned test cluster, and removes its folder.
fn remove(abandoned: Folder, account: &Account) {
    let Ok(Some(_lock)) = abandoned.try_lock(&Lock::Exclusive) else {
        return;
    };
    // Checked again under the lock, because another process may have adopted the cluster in
    // between.
    if !is_abandoned(abandoned.path(), account) {
        return;
    }
    tracing::info!(folder = %abandoned.path().display(), "removing a test cluster that nobody uses any more");
    if let Some(postmaster) = Postmaster::read(&abandoned.data()).filter(Postmaster::is_running) {
        postmaster.signal(Signal::QUIT);
        if wait_until("an abandoned server to stop", || !postmaster.is_running()).is_err() {
            return;
        }
    }
    abandoned.remove();
}

/// Whether the folder holds a test cluster of this user whose owners have all ended.
fn is_abandoned(folder: &Path, account: &Account) -> bool {
    let ours =
        fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && account.owns(&found));
    let owners = owners_folder(folder);
    ours && Folder::at(folder.to_owned()).durability() == Some(Durability::Test)
        && owners.is_dir()
        && !entries(&owners).any(|owner| is_owner_alive(&owner))
}

fn owners_folder(folder: &Path) -> PathBuf {
    folder.join("owners")
}

fn entries(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn is_owner_alive(owner: &DirEntry) -> bool {
    let name = owner.file_name();
    let Some((pid, started)) = name.to_str().and_then(|name| name.split_once('-')) else {
        return false;
    };
    let Ok(pid) = pid.parse::<u32>() else {
        return false;
    };
    Pid::from_raw(pid.cast_signed()).is_some_and(is_alive) && start_time(pid) == started
}

/// The start time of a process in clock ticks since boot. It distinguishes the process from a later
/// one with the same pid. Empty without /proc, and for a process that has ended or is a zombie.
fn start_time(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program name is in parentheses and may hold spaces. It is followed by the state, 18
    // fields and the start time.
    let mut fields = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace();
    match fields.next() {
        Some("Z") | None => String::new(),
        Some(_) => fields.nth(18).unwrap_or_default().to_owned(),
    }
}
