//! Connections to PostgreSQL.
//!
//! - `settings`: where the database is, its pooler, the session's role, how many connections may be
//!   open, and the time limits.
//! - `open`: the parameters that every PostgreSQL session gets; connections outside the pools.
//! - `address`: whether a connection needs a verified certificate.
//! - `connector`: opens connections of a pool, and tests those that were idle.
//! - `pool`: a bounded set of connections, and how long a call waits for one.
//! - `pooled_connection`: when a connection returns to its pool and when it is closed.
//! - `bounded_connection`: a connection with a deadline for its statements.
//! - `row_security`: which tenants' rows a connection sees.
//! - `tenant_shares`: how many connections of a pool one tenant may use.
//! - `tenant_semaphores`: one semaphore per tenant, for connections and for other shared resources.
//! - `deadline`: how long a call waits for the database, and how long it pauses between tries.
//! - `outage`: the log of times during which the database is unavailable.
//! - `clock_skew`: the database's clock, and repairs after it was set back.
//! - `database_figures`: sizes, standbys and replication lag, for metrics.
//! - `create_database`: creates databases for `anneal dev` and for tests.

mod address;
mod bounded_connection;
mod clock_skew;
mod connector;
mod create_database;
mod database_figures;
mod deadline;
mod open;
mod outage;
pub(crate) mod pool;
mod pooled_connection;
pub(crate) mod row_security;
mod settings;
mod tenant_semaphores;
mod tenant_shares;

pub use create_database::create_database;
pub use database_figures::{DatabaseFigures, TableFigures};
pub use deadline::Backoff;
pub use outage::OutageLog;
pub use pool::PoolFigures;
pub use settings::{Pooling, StoreSettings};
pub use tenant_semaphores::{TenantSemaphores, WaitCount};

pub(crate) use bounded_connection::{BoundedConnection, Transaction, set_statement_timeout};
pub(crate) use open::{SessionSetup, connect_as_login, connect_to_listen};
pub(crate) use pooled_connection::PooledConnection;
