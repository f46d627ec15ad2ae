//! The files in the folder of a local PostgreSQL, and its lock.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::account::Account;
use crate::durability::Durability;
use crate::error::{LocalPostgresError, OnPath, Result};

/// The lock file. Its presence also marks a folder as created by this crate.
const LOCK: &str = "anneal-postgres.lock";
/// A note in a folder whose cluster is stored elsewhere.
const MOVED_NOTE: &str = "POSTGRES-IS-ELSEWHERE.txt";
/// Parent folder for clusters that cannot be in their own folder. The path is short, everybody may
/// enter it, and it does not depend on TMPDIR, which may differ between the processes that share a
/// cluster.
const FALLBACK_CLUSTERS: &str = "/var/tmp";
/// Parent folder for sockets that cannot be in their own folder, for the same reasons.
const FALLBACK_SOCKETS: &str = "/tmp";
/// Longest path of a Unix socket: 103 bytes on macOS, 107 on Linux.
const SOCKET_PATH_BYTES: usize = 103;
/// A log larger than this is renamed at the next start.
const LOG_BYTES: u64 = 16 << 20;

/// How the lock is held.
pub(crate) enum Lock {
    /// By one process, for starting and removing.
    Exclusive,
    /// Together with other processes, for adopting a running server.
    Shared,
}

/// The folder of a local PostgreSQL.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// The folder at this path, which exists. Checks nothing.
    pub(crate) fn at(path: PathBuf) -> Folder {
        Folder(path)
    }

    /// Creates the folder with access for the account only. If the account cannot enter the folder
    /// above it, or could not at an earlier start, uses a replacement under [`FALLBACK_CLUSTERS`].
    /// An error if the folder holds files that this crate did not create.
    pub(crate) fn open(wanted: &Path, account: &Account) -> Result<Folder> {
        if let Some(parent) = wanted.parent() {
            fs::create_dir_all(parent).on("create", parent)?;
        }
        create_private(wanted)?;
        let wanted = fs::canonicalize(wanted).on("find", wanted)?;
        let note = wanted.join(MOVED_NOTE);
        if !note.exists()
            && wanted
                .parent()
                .is_none_or(|parent| account.can_enter(parent))
        {
            return Folder(wanted).claim(account);
        }
        let fallback = Path::new(FALLBACK_CLUSTERS).join(short_name(&wanted));
        create_private(&fallback)?;
        check_owner(&fallback, account)?;
        if !note.exists() {
            tracing::warn!(folder = %fallback.display(), "PostgreSQL's user cannot enter {}: its data is in {}", wanted.display(), fallback.display());
            let text = format!(
                "PostgreSQL does not run as root, and the user that runs it cannot enter this folder.\nIts data is in {}\n",
                fallback.display()
            );
            fs::write(&note, text).on("write", &note)?;
        }
        Folder(fallback).claim(account)
    }

    /// Checks that the folder is empty or was created by this crate. Then gives it to the account,
    /// and makes it private.
    fn claim(self, account: &Account) -> Result<Folder> {
        if !self.lock_file().exists() && fs::read_dir(&self.0).on("read", &self.0)?.next().is_some()
        {
            // Another process may have created its lock file after the first check.
            if !self.lock_file().exists() {
                return Err(LocalPostgresError::NotOurs(self.0));
            }
        }
        let found = fs::metadata(&self.0).on("read", &self.0)?;
        if !account.owns(&found) {
            account.chown(&self.0)?;
        }
        if found.mode() & 0o777 != 0o700 {
            fs::set_permissions(&self.0, Permissions::from_mode(0o700))
                .on("make private", &self.0)?;
        }
        Ok(self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("postgres.log")
    }

    pub(crate) fn password_file(&self) -> PathBuf {
        self.0.join("password")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    /// Takes the lock, which is held until the returned file is dropped. None if another process
    /// holds it, or has removed the folder in the meantime.
    pub(crate) fn try_lock(&self, lock: &Lock) -> Result<Option<File>> {
        let path = self.lock_file();
        let file = match OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
        {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.on("open", &path)?,
        };
        let locked = match lock {
            Lock::Exclusive => file.try_lock(),
            Lock::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => {
                return Err(LocalPostgresError::Files {
                    verb: "lock",
                    path,
                    source,
                });
            }
        }
        // The folder may have been removed, and even created again, between opening and locking.
        let held = file.metadata().on("read", &path)?.ino();
        Ok(fs::metadata(&path)
            .is_ok_and(|current| current.ino() == held)
            .then_some(file))
    }

    /// The durability with which the folder was created; None for a new folder.
    pub(crate) fn durability(&self) -> Option<Durability> {
        match self.read("durability")?.as_str() {
            "test" => Some(Durability::Test),
            _ => Some(Durability::Durable),
        }
    }

    /// The text of a small file, without its line end. None if it cannot be read.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        Some(
            fs::read_to_string(self.0.join(name))
                .ok()?
                .trim()
                .to_owned(),
        )
    }

    /// Writes a small file: the text and a line end.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, format!("{text}\n")).on("write", &path)
    }

    /// Creates a random password of 192 bits in a file that only `account` may read.
    pub(crate) fn make_password(&self, account: &Account) -> Result<()> {
        let path = self.password_file();
        let mut random = [0; 24];
        let source = Path::new("/dev/urandom");
        File::open(source)
            .and_then(|mut file| file.read_exact(&mut random))
            .on("read", source)?;
        if path.exists() {
            fs::remove_file(&path).on("remove", &path)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .on("create", &path)?;
        writeln!(file, "{}", hex::encode(random)).on("write", &path)?;
        account.chown(&path)
    }

    pub(crate) fn password(&self) -> Result<String> {
        let path = self.password_file();
        Ok(fs::read_to_string(&path)
            .on("read", &path)?
            .trim()
            .to_owned())
    }

    /// Creates the folder of the Unix socket: inside this folder, or under /tmp if that path would
    /// be too long for a socket.
    pub(crate) fn make_socket_folder(&self, account: &Account) -> Result<PathBuf> {
        let socket_folder = self.socket_folder();
        create_private(&socket_folder)?;
        check_owner(&socket_folder, account)?;
        account.chown(&socket_folder)?;
        Ok(socket_folder)
    }

    fn socket_folder(&self) -> PathBuf {
        let inside = self.0.join("socket");
        if inside.join(".s.PGSQL.65535").as_os_str().len() <= SOCKET_PATH_BYTES {
            return inside;
        }
        Path::new(FALLBACK_SOCKETS).join(short_name(&self.0))
    }

    /// Opens the log for appending. Returns it with its current length. A log of more than
    /// [`LOG_BYTES`] is renamed first, so that an empty one is opened.
    pub(crate) fn open_log(&self) -> Result<(File, u64)> {
        let path = self.log();
        if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES) {
            fs::rename(&path, self.0.join("postgres.log.old")).on("rename", &path)?;
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .on("open", &path)?;
        let length = log.metadata().on("read", &path)?.len();
        Ok((log, length))
    }

    /// The text of the log from byte offset `start` on. If the log cannot be read, a text that says
    /// so.
    pub(crate) fn log_since(&self, start: u64) -> String {
        let mut content = Vec::new();
        let read = File::open(self.log()).and_then(|mut log| {
            log.seek(SeekFrom::Start(start))?;
            log.read_to_end(&mut content)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&content).into_owned(),
            Err(error) => format!("its log {} cannot be read: {error}", self.log().display()),
        }
    }

    /// Removes the folder. Renames it first, so that no other process sees a partly removed folder.
    /// A failure is only logged.
    pub(crate) fn remove(self) {
        let mut aside = self.0.clone().into_os_string();
        aside.push(format!(".removed-{}", std::process::id()));
        let _ = fs::remove_dir_all(self.socket_folder());
        let removed = fs::rename(&self.0, &aside).and_then(|()| fs::remove_dir_all(&aside));
        if let Err(error) = removed {
            tracing::warn!(folder = %self.0.display(), %error, "could not remove an abandoned test cluster");
        }
    }
}

fn create_private(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.on("create", folder),
    }
}

/// An error if the folder belongs to another user or is a link: under /tmp and /var/tmp, anybody
/// may have created it first.
fn check_owner(folder: &Path, account: &Account) -> Result<()> {
    let found = fs::symlink_metadata(folder).on("read", folder)?;
    let ours = account.owns(&found) || found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours {
        Ok(())
    } else {
        Err(LocalPostgresError::NotOurs(folder.to_owned()))
    }
}

/// A name for the folder, which is the same in every run.
fn short_name(folder: &Path) -> String {
    format!(
        "anneal-postgres-{}",
        hex::encode(&Sha256::digest(folder.as_os_str().as_encoded_bytes())[..6])
    )
}
