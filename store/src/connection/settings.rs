//! The operator's settings for the database: where it is, its pooler, the role of sessions, how
//! many connections may be open, and the time limits.

use serde::{Deserialize, Serialize};

/// The operator's settings for the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSettings {
    /// `postgres://user:password@host:port/database`.
    pub url: String,
    /// Whether a database on another machine may be used without a verified certificate.
    pub insecure: bool,
    /// Connections for changes, and for appends that are stored alone. Batched appends have
    /// connections of their own (`append.lanes`).
    pub write_connections: u32,
    /// Connections for contexts, lists and single messages.
    pub read_connections: u32,
    /// Connections for the worker's jobs.
    pub job_connections: u32,
    /// Connections for looking up credentials. The readiness probe has one more.
    pub system_connections: u32,
    /// Most milliseconds that a call waits for its tenant's share and for a free connection before
    /// it is refused.
    pub pool_wait_ms: u32,
    /// Most milliseconds that one statement may take.
    pub statement_timeout_ms: u32,
    /// The role that sessions switch to. Row-level security applies to it, and the login must be a
    /// member of it. Empty: sessions keep the login's own role.
    pub role: String,
    /// Which kind of pooler is between this process and the database.
    pub pooling: Pooling,
    /// Whether processes start even if the database may lose acknowledged data in a crash.
    pub allow_data_loss: bool,
}

/// How long a client connection stays with one session of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    #[default]
    /// As long as it is open. There is no pooler, or one in session mode.
    Session,
    /// For one transaction. The pooler is, for example, PgBouncer in transaction mode. Everything
    /// runs in transactions, and sessions keep no state between them.
    Transaction,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            insecure: false,
            write_connections: 16,
            read_connections: 16,
            job_connections: 8,
            system_connections: 4,
            pool_wait_ms: 2_000,
            statement_timeout_ms: 60_000,
            role: "anneal_app".into(),
            pooling: Pooling::Session,
            allow_data_loss: false,
        }
    }
}

impl StoreSettings {
    /// The default settings for the database of this URL.
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            ..Self::default()
        }
    }
}
