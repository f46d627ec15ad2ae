//! Stored conversations. Hostile input is tested in `tests/security/hostile/`.
//!
//! - `append`: ids, turns, estimates, repeated requests, expectations
//! - `append_batching`: simultaneous appends share a transaction and do not affect each other
//! - `concurrency`: many writers, readers and workers
//! - `rpc_messages`: list and get messages; insert and delete separators
//! - `byte_ranges`: ranges of a message's text
//! - `read_limits`: bytes that one call or job reads
//! - `rpc_conversations`: create, get, list, update, delete
//! - `lists`: figures, order and pages of conversation lists
//! - `titles`: titles taken from the first user message
//! - `separators`: where a context starts
//! - `sessions`: resolve and rotate; `session_races`: at the same time; `session_refusals`: invalid
//!   requests
//! - `pgbench_baseline`: the benchmark's SQL stores the rows of an append

mod append;
mod append_batching;
mod byte_ranges;
mod concurrency;
mod lists;
mod pgbench_baseline;
mod read_limits;
mod rpc_conversations;
mod rpc_messages;
mod separators;
mod session_races;
mod session_refusals;
mod sessions;
mod titles;
