use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::binaries::{Binaries, Version};
use crate::error::Result;
use crate::folder::Folder;
use crate::postmaster::Postmaster;
use crate::start;

/// What a crash of the machine may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing that was committed. Leaves fsync, synchronous_commit and full_page_writes as PostgreSQL has them.
    #[default]
    Durable,
    /// Everything: those three are off, for throw-away clusters of tests. A crash of PostgreSQL alone costs the commits of
    /// the last moments, under a second.
    ///
    /// A test folder is removed by the next start of another test folder beside it, once all processes that started or
    /// adopted it, and their parents (the test runner), are gone.
    Test,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Durable => "durable",
            Durability::Test => "test",
        })
    }
}

/// What to start, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A folder of its own; made when missing, with mode 0700.
    pub folder: PathBuf,
    /// Port on 127.0.0.1. None: the port of the last start when it is free, else any free one.
    pub port: Option<u16>,
    /// The programs to run.
    pub binaries: Binaries,
    /// Fixed when the folder is made; a start that asks for the other kind is refused.
    pub durability: Durability,
    /// Further settings of the server, such as `("max_connections", "300")`. A server that runs already keeps its own.
    pub extra: Vec<(String, String)>,
}

impl Settings {
    /// A durable server on any free port.
    pub fn new(folder: impl Into<PathBuf>, binaries: Binaries) -> Settings {
        Settings { folder: folder.into(), port: None, binaries, durability: Durability::default(), extra: Vec::new() }
    }
}

/// How to stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Waits until all clients have left; gives up waiting after a minute, though it will still stop then.
    Smart,
    /// Rolls back what is open and writes everything to disk.
    Fast,
    /// At once; the next start recovers.
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
    /// Adopts the server that runs in the folder, or starts one there, and returns once it accepts connections.
    /// Safe to call from many processes at once: one starts it. The first start makes the cluster: UTF-8, C.UTF-8,
    /// with checksums.
    pub async fn start(settings: Settings) -> Result<LocalPostgres> {
        on_blocking_thread(move || LocalPostgres::start_blocking(&settings)).await
    }

    /// [`LocalPostgres::start`] for callers outside tokio.
    pub fn start_blocking(settings: &Settings) -> Result<LocalPostgres> {
        start::adopt_or_start(settings)
    }

    /// Stops the server and returns when it is gone. No error when it does not run.
    pub async fn stop(&self, how: Stop) -> Result<()> {
        let server = self.clone();
        on_blocking_thread(move || server.stop_blocking(how)).await
    }

    /// [`LocalPostgres::stop`] for callers outside tokio.
    pub fn stop_blocking(&self, how: Stop) -> Result<()> {
        let Some(postmaster) = Postmaster::read(&self.folder.data()).filter(Postmaster::lives) else { return Ok(()) };
        postmaster.signal(match how {
            Stop::Smart => Signal::TERM,
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        });
        start::wait_until("PostgreSQL to stop", || !postmaster.lives())
    }

    /// Stops the server when the guard goes out of scope, for every process that uses it.
    pub fn stop_on_drop(self) -> StopOnDrop {
        StopOnDrop(self)
    }

    /// The address of a database, superuser and password included: `postgres://postgres:…@127.0.0.1:port/database`.
    /// The name goes in as it is; one with other than letters, digits, `_` and `-` has to come percent-encoded.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres:{}@127.0.0.1:{}/{database}", self.password, self.port)
    }

    /// Port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Password of the superuser `postgres`.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The file that keeps it, for its owner alone to read.
    pub fn password_path(&self) -> PathBuf {
        self.folder.password_file()
    }

    /// The folder with its Unix socket; may lie under /tmp.
    pub fn socket_folder(&self) -> &Path {
        &self.socket_folder
    }

    /// Where it really lives: another folder than the wanted one when root starts it and PostgreSQL's user cannot
    /// enter the wanted one.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the server says, all starts after one another.
    pub fn log_path(&self) -> PathBuf {
        self.folder.log()
    }

    /// Version of the server that runs.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether it ran before us.
    pub fn adopted(&self) -> bool {
        self.adopted
    }
}

/// Without the password.
impl fmt::Debug for LocalPostgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPostgres")
            .field("folder", &self.folder.path())
            .field("port", &self.port)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Stops its server when dropped: a test cluster at once, a durable one after writing everything to disk.
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
        let how = if self.0.durability == Durability::Test { Stop::Immediate } else { Stop::Fast };
        if let Err(error) = self.0.stop_blocking(how) {
            tracing::warn!(folder = %self.0.folder().display(), %error, "could not stop PostgreSQL");
        }
    }
}

async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
