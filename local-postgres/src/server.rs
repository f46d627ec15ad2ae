//! The settings of a server, and the handle of a running one, which can stop it.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::MissedTickBehavior;

use crate::binaries::Binaries;
use crate::durability::Durability;
use crate::error::Result;
use crate::folder::Folder;
use crate::postmaster::Postmaster;
use crate::version::Version;
use crate::wait::wait_until;

/// Interval between two checks whether a server still runs.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder, which must hold nothing else. Created if missing, with mode 0700.
    pub folder: PathBuf,
    /// Port on 127.0.0.1. None: the port of the last start if it is free, otherwise any free one.
    pub port: Option<u16>,
    /// The programs to run.
    pub binaries: Binaries,
    /// Fixed when the folder is created. A start with another durability is refused.
    pub durability: Durability,
    /// Further settings of the server, such as `("max_connections", "300")`. A server that runs
    /// already keeps its settings.
    pub extra: Vec<(String, String)>,
}

impl Settings {
    /// A durable server on any free port, or on that of its last start.
    pub fn new(folder: impl Into<PathBuf>, binaries: Binaries) -> Settings {
        Settings {
            folder: folder.into(),
            port: None,
            binaries,
            durability: Durability::default(),
            extra: Vec::new(),
        }
    }
}

/// How to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Waits until all clients have disconnected. The wait ends after a minute with an error, but
    /// the server still stops later.
    Smart,
    /// Aborts open transactions and writes everything to disk.
    Fast,
    /// Ends at once, without writing to disk. The next start recovers the data.
    Immediate,
}

/// A PostgreSQL server that runs in a folder. Dropping it does **not** stop the server: see
/// [`LocalPostgres::stop`] and [`LocalPostgres::stop_on_drop`].
#[derive(Clone)]
pub struct LocalPostgres {
    pub(crate) folder: Folder,
    pub(crate) password: String,
    pub(crate) port: u16,
    pub(crate) socket_folder: PathBuf,
    pub(crate) version: Version,
    pub(crate) durability: Durability,
    pub(crate) adopted: bool,
}

impl LocalPostgres {
    /// Stops the server and returns when its process has ended. No error if it does not run.
    pub async fn stop(&self, how: Stop) -> Result<()> {
        let server = self.clone();
        on_blocking_thread(move || server.stop_blocking(how)).await
    }

    /// [`LocalPostgres::stop`] for callers outside tokio.
    pub fn stop_blocking(&self, how: Stop) -> Result<()> {
        let Some(postmaster) = Postmaster::read(&self.folder.data()).filter(Postmaster::is_running)
        else {
            return Ok(());
        };
        postmaster.signal(match how {
            Stop::Smart => Signal::TERM,
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        });
        wait_until("PostgreSQL to stop", || !postmaster.is_running())
    }

    /// Returns when the server's process has ended. Looks for it every half second: a server that
    /// was adopted is not a child of this process, which therefore cannot wait for it.
    pub async fn wait_for_end(&self) -> Result<()> {
        let mut checks = tokio::time::interval(END_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let data = self.folder.data();
            let is_running = on_blocking_thread(move || {
                Ok(Postmaster::read(&data).is_some_and(|postmaster| postmaster.is_running()))
            });
            if !is_running.await? {
                return Ok(());
            }
        }
    }

    /// Stops the server when the guard is dropped, for every process that uses it.
    pub fn stop_on_drop(self) -> StopOnDrop {
        StopOnDrop(self)
    }

    /// The URL of a database, with superuser and password:
    /// `postgres://postgres:…@127.0.0.1:port/database`. The name is inserted unchanged; characters
    /// other than letters, digits, `_` and `-` must be percent-encoded.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres:{}@127.0.0.1:{}/{database}",
            self.password, self.port
        )
    }

    /// Port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Password of the superuser `postgres`.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The file with the password, which only its owner may read.
    pub fn password_path(&self) -> PathBuf {
        self.folder.password_file()
    }

    /// The folder of its Unix socket; may be under /tmp.
    pub fn socket_folder(&self) -> &Path {
        &self.socket_folder
    }

    /// The folder in use. It differs from the one in the settings if root starts the server and
    /// PostgreSQL's user cannot enter that folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's log, over all starts.
    pub fn log_path(&self) -> PathBuf {
        self.folder.log()
    }

    /// The version of the running server.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether the server was running already, so that this process adopted it.
    pub fn adopted(&self) -> bool {
        self.adopted
    }
}

/// Leaves out the password.
impl fmt::Debug for LocalPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPostgres")
            .field("folder", &self.folder.path())
            .field("port", &self.port)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Stops the server when dropped: a test cluster immediately, a durable one after writing
/// everything to disk.
#[derive(Debug)]
pub struct StopOnDrop(LocalPostgres);

impl Deref for StopOnDrop {
    type Target = LocalPostgres;

    fn deref(&self) -> &LocalPostgres {
        &self.0
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let how = if self.0.durability == Durability::Test {
            Stop::Immediate
        } else {
            Stop::Fast
        };
        if let Err(error) = self.0.stop_blocking(how) {
            tracing::warn!(folder = %self.0.folder().display(), %error, "could not stop PostgreSQL");
        }
    }
}

pub(crate) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
