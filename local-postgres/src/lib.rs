//! A PostgreSQL server of one's own, in a folder: for `anneal dev`, for tests and for `cargo xtask sql`.
//!
//! It runs PostgreSQL's own programs (`initdb`, `postgres`) and speaks no SQL.
//!
//! ```no_run
//! # async fn sample() -> Result<(), anneal_local_postgres::LocalPostgresError> {
//! use anneal_local_postgres::{Binaries, LocalPostgres, Settings, Stop};
//!
//! let postgres = LocalPostgres::start(Settings::new(".anneal/postgres", Binaries::find(None)?)).await?;
//! println!("{}", postgres.url("postgres"));
//! postgres.stop(Stop::Fast).await?;
//! # Ok(()) }
//! ```
//!
//! What holds:
//! - **Starting is idempotent.** The first comer starts the server, every later one adopts it, across processes
//!   as well; a lock file in the folder serialises them.
//! - **It outlives its starter.** A handle that is dropped, a Ctrl-C or a `kill -9` leaves the server running, and the
//!   next start adopts it. A server that died is started again, and PostgreSQL recovers its data by itself.
//! - **Loopback only**, with a random password that is stored beside the data, readable by its owner only.
//! - **Root may start it.** PostgreSQL refuses to run as root, so it then runs as `postgres` or `nobody`.
//! - **Test folders clean up after each other**: see [`Durability::Test`].
//!
//! The layout of a folder: `data/`, `password`, `port`, `durability`, `version`, `postgres.log`, `socket/`, `owners/`.

mod account;
mod binaries;
#[cfg(feature = "download")]
mod download;
mod error;
mod folder;
mod owners;
mod postmaster;
mod server;
mod start;

pub use binaries::{Binaries, Version};
pub use error::LocalPostgresError;
pub use server::{Durability, LocalPostgres, Settings, Stop, StopOnDrop};
