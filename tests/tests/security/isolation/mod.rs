//! Authentication, verbs, and the isolation of tenants from each other.
//!
//! Credentials:
//! - `allowed_hosts`: without authentication, HTTP answers only under allowed host names.
//! - `audit`: the audit log names caller and call, and contains no content.
//! - `credentials`: API keys, tokens and the verb that each call needs.
//! - `idle_connections`: silent, stalled and unread connections are closed and do not block others.
//! - `log_content`: a failed statement logs no content.
//! - `revoked_credentials`: watches, documents and turns end when their credential becomes invalid.
//! - `tls`: certificates of servers and clients.
//! - `token_lifetimes`: tokens that are valid for more than a day are refused.
//! - `verbs`: a reader changes nothing, an appender reads nothing.
//!
//! Tenants:
//! - `database_connections`: blocked reads of one tenant leave database connections to others.
//! - `foreign_conversations`: every RPC answers another tenant's conversation like a missing one.
//! - `foreign_ids`: the same for every field that names something.
//! - `foreign_sessions`: the same for every path over HTTP.
//! - `row_security`: row-level security alone hides and protects rows of other tenants.
//! - `tenant_shares`: a tenant gets at most half of the watches and of the large appends.
//! - `unfiltered`: `foreign_conversations` without the filters of the statements.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod allowed_hosts;
mod audit;
mod credentials;
mod database_connections;
mod foreign_conversations;
mod foreign_ids;
mod foreign_sessions;
mod idle_connections;
mod log_content;
mod revoked_credentials;
mod row_security;
mod tenant_shares;
mod tls;
mod token_lifetimes;
mod unfiltered;
mod verbs;
