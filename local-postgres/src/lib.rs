//! A PostgreSQL server in a folder, for `anneal dev`, for tests and for `cargo xtask sql`.
//!
//! It runs PostgreSQL's own programs (`initdb`, `postgres`) and sends no SQL.
//!
//! ```no_run
//! # async fn sample() -> Result<(), anneal_local_postgres::LocalPostgresError> {
//! use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop};
//!
//! let binaries = Binaries::find(None)?;
//! let postgres = LocalPostgres::start(Settings::new(".anneal/postgres", binaries)).await?;
//! println!("{}", postgres.url("postgres"));
//! postgres.stop(Stop::Fast).await?;
//! # Ok(()) }
//! ```
//!
//! Guarantees:
//! - **Starting is idempotent.** The first process starts the server. Every later one adopts it: it
//!   uses the server that runs already. A lock file in the folder serializes the processes.
//! - **The server outlives the process that started it.** If that process drops its handle or ends,
//!   even by Ctrl-C or `kill -9`, the server keeps running, and the next start adopts it. A server
//!   that died is started again, and PostgreSQL recovers its data by itself.
//! - **Loopback only**, with a random password in a file that only its owner may read.
//! - **Root may start it.** PostgreSQL refuses to run as root, so it then runs as `postgres` or
//!   `nobody`.
//! - **Test folders are removed when they are no longer used**: see [`Durability::Test`].
//!
//! The files of a folder: `anneal-postgres.lock`, `data/`, `password`, `port`, `durability`,
//! `version`, `postgres.log`, `socket/`, and `owners/` for a test cluster.
//!
//! - `server`: the server and its settings. `start`: starts or adopts it.
//! - `binaries`, `version`: installed programs, and their version. `download`: downloads programs.
//! - `folder`: the files of a folder, and its lock. `durability`: what a crash may lose.
//! - `postmaster`: the running server process. `account`: the user that it runs as.
//! - `owners`: the processes that use a test folder.
//! - `wait`: waits for other processes. `error`: why a server could not be started.

mod account;
mod binaries;
#[cfg(feature = "download")]
mod download;
mod durability;
mod error;
mod folder;
mod owners;
mod postmaster;
mod server;
mod start;
mod version;
mod wait;

pub use binaries::Binaries;
pub use durability::Durability;
pub use error::LocalPostgresError;
pub use server::{LocalPostgres, Settings, Stop, StopOnDrop};
pub use version::Version;
