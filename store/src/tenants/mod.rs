//! Tenants and their API keys.
//!
//! - `credentials`: looks up keys and tenants, so that a server can identify a caller.
//! - `owner`: creates and lists tenants and keys, and revokes keys. Only the owner of the database
//!   can do this.
//! - `usage`: how much a tenant has stored, and which tenants have stored the most.
//! - `web_sessions`: people who have signed in to the page.

mod credentials;
mod owner;
mod usage;
mod web_sessions;

pub use credentials::ActiveKey;
pub use owner::{ListedKey, ListedTenant, NewKey, OwnerConnection};
pub use usage::{TenantFigures, TenantUsage};
pub use web_sessions::{ActiveWebSession, NewWebSession, SessionHolder};
