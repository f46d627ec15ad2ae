//! Limits of what callers may use of this process at once, and of what their tenants may store.
//!
//! - [`cache_pings`]: calls that wait to keep a provider's cache warm
//! - [`concurrency`]: permits of a shared limit, and the share of one tenant
//! - [`content_budget`]: bytes of stored content that calls hold
//! - [`cpu_pool`]: threads for work that would block an async thread, and what counts as such work
//! - [`storage_quota`]: messages and bytes that a tenant may store

pub(crate) mod cache_pings;
pub(crate) mod concurrency;
pub(crate) mod content_budget;
pub(crate) mod cpu_pool;
pub(crate) mod storage_quota;
