//! Tenants and their API keys.
//!
//! - `credentials`: what servers look up to identify a caller.
//! - `owner`: what only the owner of the database does: creating tenants, creating and revoking
//!   keys.
//! - `usage`: how much a tenant has stored.

mod credentials;
mod owner;
mod usage;

pub use credentials::ActiveKey;
pub use owner::{ListedKey, ListedTenant, NewKey, OwnerConnection};
pub use usage::TenantUsage;
