//! Limits of what callers may use of this process at once, and of what their tenants may store.
//!
//! - [`concurrency`]: permits of a shared limit, and the share of one tenant
//! - [`content_budget`]: bytes of stored content that calls hold
//! - [`conversation_encodings`]: remembers in which encoding appends are to be counted
//! - [`context_memory`]: remembers sizes and policies of contexts, so that the next read needs one
//!   statement
//! - [`cpu_pool`]: threads for work that would block an async thread, and what counts as such work
//! - [`storage_quota`]: messages and bytes that a tenant may store

pub(crate) mod concurrency;
pub(crate) mod content_budget;
pub(crate) mod conversation_encodings;
pub(crate) mod context_memory;
pub(crate) mod cpu_pool;
pub(crate) mod storage_quota;
