//! The folder of a local PostgreSQL: what lies where, who holds its lock.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::account::Account;
use crate::error::{LocalPostgresError, OnPath, Result};
use crate::server::Durability;

/// Also what tells our folders from others.
const LOCK: &str = "anneal-postgres.lock";
/// Left in a folder whose cluster had to go elsewhere.
const NOTE: &str = "POSTGRES-IS-ELSEWHERE.txt";
/// Where clusters and sockets go that cannot stay in their folder: short, everybody may enter, and not moved by TMPDIR,
/// which may differ between the processes that share a cluster.
const CLUSTERS_ELSEWHERE: &str = "/var/tmp";
const SOCKETS_ELSEWHERE: &str = "/tmp";
/// Longest path of a Unix socket: 103 bytes on macOS, 107 on Linux.
const SOCKET_PATH_BYTES: usize = 103;
/// A log larger than this is put aside at the next start.
const LOG_BYTES: u64 = 16 << 20;

/// Who else may hold the lock at the same time.
pub(crate) enum Lock {
    /// Nobody: for starting and removing.
    Alone,
    /// Other adopters.
    Shared,
}

#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn at(path: PathBuf) -> Folder {
        Folder(path)
    }

    /// Makes the folder, for the account's eyes only, or the one elsewhere that replaces it when the account cannot get
    /// there. Refuses one with foreign files.
    pub(crate) fn open(wanted: &Path, account: &Account) -> Result<Folder> {
        if let Some(parent) = wanted.parent() {
            fs::create_dir_all(parent).on("create", parent)?;
        }
        create_private(wanted)?;
        let wanted = fs::canonicalize(wanted).on("find", wanted)?;
        let note = wanted.join(NOTE);
        if !note.exists() && wanted.parent().is_none_or(|parent| account.reaches(parent)) {
            return Folder(wanted).claim(account);
        }
        let elsewhere = Path::new(CLUSTERS_ELSEWHERE).join(short_name(&wanted));
        create_private(&elsewhere)?;
        refuse_strangers(&elsewhere, account)?;
        if !note.exists() {
            tracing::warn!(folder = %elsewhere.display(), "PostgreSQL's user cannot enter {}: its data is in {}", wanted.display(), elsewhere.display());
            let text = format!(
                "PostgreSQL does not run as root, and the user that runs it cannot enter this folder.\nIts data is in {}\n",
                elsewhere.display()
            );
            fs::write(&note, text).on("write", &note)?;
        }
        Folder(elsewhere).claim(account)
    }

    fn claim(self, account: &Account) -> Result<Folder> {
        if !self.lock_file().exists() && fs::read_dir(&self.0).on("read", &self.0)?.next().is_some() {
            // Another starter may have put its lock there since the first look.
            if !self.lock_file().exists() {
                return Err(LocalPostgresError::NotOurs(self.0));
            }
        }
        let found = fs::metadata(&self.0).on("read", &self.0)?;
        if !account.owns(&found) {
            account.give(&self.0)?;
        }
        if found.mode() & 0o777 != 0o700 {
            fs::set_permissions(&self.0, Permissions::from_mode(0o700)).on("make private", &self.0)?;
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

    /// None when somebody else holds it, or removed the folder meanwhile. Held until the file is dropped.
    pub(crate) fn try_lock(&self, lock: &Lock) -> Result<Option<File>> {
        let path = self.lock_file();
        let file = match OpenOptions::new().create(true).append(true).mode(0o600).open(&path) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.on("open", &path)?,
        };
        let locked = match lock {
            Lock::Alone => file.try_lock(),
            Lock::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => {
                return Err(LocalPostgresError::Files { verb: "lock", path, source });
            }
        }
        // The folder may have been removed, and even made anew, between opening and locking.
        let held = file.metadata().on("read", &path)?.ino();
        Ok(fs::metadata(&path).is_ok_and(|current| current.ino() == held).then_some(file))
    }

    /// What the folder was made as; None for a new one.
    pub(crate) fn durability(&self) -> Option<Durability> {
        match self.read("durability")?.as_str() {
            "test" => Some(Durability::Test),
            _ => Some(Durability::Durable),
        }
    }

    /// A small file's text, without its end of line.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.0.join(name)).ok()?.trim().to_owned())
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, format!("{text}\n")).on("write", &path)
    }

    /// Makes a random password of 192 bits, for `account` to read and for nobody else.
    pub(crate) fn make_password(&self, account: &Account) -> Result<()> {
        let path = self.password_file();
        let mut random = [0; 24];
        let source = Path::new("/dev/urandom");
        File::open(source).and_then(|mut file| file.read_exact(&mut random)).on("read", source)?;
        if path.exists() {
            fs::remove_file(&path).on("remove", &path)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).on("create", &path)?;
        writeln!(file, "{}", hex(&random)).on("write", &path)?;
        account.give(&path)
    }

    pub(crate) fn password(&self) -> Result<String> {
        let path = self.password_file();
        Ok(fs::read_to_string(&path).on("read", &path)?.trim().to_owned())
    }

    /// Where the server puts its Unix socket: in the folder, or under /tmp when that path is too long for a socket.
    pub(crate) fn make_socket_folder(&self, account: &Account) -> Result<PathBuf> {
        let socket_folder = self.socket_folder();
        create_private(&socket_folder)?;
        refuse_strangers(&socket_folder, account)?;
        account.give(&socket_folder)?;
        Ok(socket_folder)
    }

    fn socket_folder(&self) -> PathBuf {
        let inside = self.0.join("socket");
        if inside.join(".s.PGSQL.65535").as_os_str().len() <= SOCKET_PATH_BYTES {
            return inside;
        }
        Path::new(SOCKETS_ELSEWHERE).join(short_name(&self.0))
    }

    /// The log, open for appending, and its length so far.
    pub(crate) fn open_log(&self) -> Result<(File, u64)> {
        let path = self.log();
        if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES) {
            fs::rename(&path, self.0.join("postgres.log.old")).on("put aside", &path)?;
        }
        let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).on("open", &path)?;
        let length = log.metadata().on("read", &path)?.len();
        Ok((log, length))
    }

    /// What the log says from `start` on.
    pub(crate) fn log_since(&self, start: u64) -> String {
        let mut said = Vec::new();
        let read = File::open(self.log()).and_then(|mut log| {
            log.seek(SeekFrom::Start(start))?;
            log.read_to_end(&mut said)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&said).into_owned(),
            Err(error) => format!("its log {} cannot be read: {error}", self.log().display()),
        }
    }

    /// Removes everything. Renamed first, so that a newcomer never sees a folder that is half gone.
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

/// Under /tmp anybody may have made the folder before us, or a link in its place.
fn refuse_strangers(folder: &Path, account: &Account) -> Result<()> {
    let found = fs::symlink_metadata(folder).on("read", folder)?;
    let ours = account.owns(&found) || found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours { Ok(()) } else { Err(LocalPostgresError::NotOurs(folder.to_owned())) }
}

/// The same for the same folder, on every run.
fn short_name(folder: &Path) -> String {
    format!("anneal-postgres-{}", hex(&Sha256::digest(folder.as_os_str().as_encoded_bytes())[..6]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
