use std::io;
use std::path::{Path, PathBuf};

use crate::binaries::Version;
use crate::server::Durability;

/// How to get PostgreSQL, for people: the end of every message about a missing one.
pub(crate) const HOW_TO_INSTALL: &str = "install PostgreSQL 15 or newer: \
    `apt-get install postgresql` on Debian and Ubuntu, `brew install postgresql@18` on macOS, \
    or set ANNEAL_PG_BIN to the folder that holds initdb and postgres";

/// Why there is no local PostgreSQL.
#[derive(Debug, thiserror::Error)]
pub enum LocalPostgresError {
    /// No folder with `initdb` and `postgres`.
    #[error("no PostgreSQL found in {looked_in}; {HOW_TO_INSTALL}")]
    NoBinaries {
        /// The places that were searched.
        looked_in: String,
    },
    /// PostgreSQL is there, and older than 15.
    #[error("PostgreSQL {version} in {} is too old; {HOW_TO_INSTALL}", folder.display())]
    TooOld {
        /// Its folder of programs.
        folder: PathBuf,
        /// What it is.
        version: Version,
    },
    /// We are root, which PostgreSQL refuses, and there is nobody else to run it.
    #[error("PostgreSQL does not run as root, and neither the user postgres nor nobody exists; create one")]
    NoAccount,
    /// The user that runs PostgreSQL may not enter a folder that it needs.
    #[error("the user {account}, who runs PostgreSQL for root, cannot read {}; move it to where everybody may read", path.display())]
    Unreachable {
        /// That user's name.
        account: String,
        /// What it has to reach.
        path: PathBuf,
    },
    /// The folder holds files and was not made by us.
    #[error("{} is not empty and holds no local PostgreSQL; choose a folder of its own", .0.display())]
    NotOurs(PathBuf),
    /// A throw-away cluster is wanted as a durable one, or the reverse.
    #[error("{} was made as {made}, not as {wanted}", folder.display())]
    OtherDurability {
        /// The folder.
        folder: PathBuf,
        /// What it was made as.
        made: Durability,
        /// What is wanted now.
        wanted: Durability,
    },
    /// The data is of another major version than the programs.
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
    /// The server of this folder runs already, on another port than the wanted one.
    #[error("PostgreSQL already runs here on port {running}, not {wanted}; stop it first")]
    OtherPort {
        /// Where it listens.
        running: u16,
        /// Where it should.
        wanted: u16,
    },
    /// `initdb` or `postgres` gave up.
    #[error("{program} failed: {output}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The end of what it said.
        output: String,
    },
    /// Something took longer than it ever should.
    #[error("gave up after {seconds} s of waiting for {what}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {verb} {}", path.display())]
    Files {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// PostgreSQL could not be downloaded.
    #[error("could not download PostgreSQL {version}; {HOW_TO_INSTALL}")]
    Download {
        /// Which one.
        version: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

pub(crate) type Result<T> = std::result::Result<T, LocalPostgresError>;

/// Says which file it was: an [`io::Error`] alone does not.
pub(crate) trait OnPath<T> {
    fn on(self, verb: &'static str, path: &Path) -> Result<T>;
}

impl<T> OnPath<T> for io::Result<T> {
    fn on(self, verb: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| LocalPostgresError::Files { verb, path: path.to_owned(), source })
    }
}
