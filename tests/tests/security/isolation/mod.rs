//! Authentication, verbs, and the isolation of tenants from each other.
//!
//! Credentials, connections and logs:
//! - `allowed_hosts`: without authentication, HTTP answers only under allowed host names.
//! - `audit`: the audit log names caller and call, and contains no content.
//! - `credentials`: API keys, tokens and the verb that each call needs.
//! - `door_audit`: what the doors of other protocols write to the audit log, and what not to the log.
//! - `door_calls`: every call of these doors, compared with the documentation and the server.
//! - `door_verbs`: verbs, credentials, hosts and origins of every call of the doors.
//! - `idle_connections`: silent, stalled and unread connections are closed and do not block others.
//! - `log_content`: a failed statement logs no content.
//! - `revoked_credentials`: watches, large HTTP answers and turns end when their credential becomes
//!   invalid, and no connection resumes a TLS session.
//! - `revoked_doors`: responses, UI streams and WebSockets end when their key is revoked.
//! - `tls`: certificates of servers and clients, and what a server beyond loopback must have.
//! - `token_lifetimes`: tokens that are valid for more than a day are refused.
//! - `verbs`: with `read` alone a caller changes nothing, with `append` alone it receives no
//!   content of others. A learned window of a model is forgotten when a call exceeds it, and the
//!   number of stored models is limited.
//!
//! Keys that are bound to a user, an agent or a conversation:
//! - `bound_doors`: every path and body of HTTP answers what is foreign to them like what is missing.
//! - `bound_lists`: filters of lists leave out what is foreign.
//! - `bound_sockets`: the same over the WebSocket of responses.
//! - `bound_keys`: the same for every RPC, and what such a key creates, lists, watches and deletes.
//!
//! Tenants:
//! - `database_connections`: blocked reads of one tenant leave database connections to others.
//! - `foreign_conversations`: every RPC answers another tenant's conversation like a missing one,
//!   and equal names of two tenants are distinct.
//! - `foreign_doors`: every call of the doors of other protocols answers what is another tenant's like
//!   what is missing, also where only row-level security hides it.
//! - `foreign_ids`: another tenant's value in any field is answered like one that does not exist.
//! - `foreign_pages`: every page answers what is another tenant's, or foreign to a bound key, like what
//!   is missing; opening one changes nothing. `page_calls`: every call of the page.
//! - `foreign_sessions`: every HTTP path answers another tenant's session like a missing one.
//! - `row_security`: row-level security alone hides and protects rows of other tenants, and changes
//!   no index scan.
//! - `tenant_shares`: a tenant gets at most half of the watches and of the large appends. Without
//!   authentication, all callers together get the whole limit.
//! - `unfiltered`: row-level security protects rows even if every statement asks for the wrong
//!   tenant.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod allowed_hosts;
mod audit;
mod bound_doors;
mod bound_keys;
mod bound_lists;
mod bound_sockets;
pub(crate) mod credentials;
mod database_connections;
mod door_audit;
pub(crate) mod door_calls;
mod door_verbs;
pub(crate) mod foreign_conversations;
mod foreign_doors;
mod foreign_ids;
mod foreign_pages;
mod foreign_sessions;
mod idle_connections;
mod log_content;
pub(crate) mod page_calls;
mod revoked_credentials;
mod revoked_doors;
mod row_security;
mod tenant_shares;
mod tls;
mod token_lifetimes;
mod unfiltered;
mod verbs;
