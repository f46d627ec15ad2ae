//! Stored conversations. Hostile input is tested in `tests/tests/security/hostile/`.
//!
//! - `append`: ids, turns, estimates, repeated requests, the expected last message
//! - `counted_appends`: which messages are counted when they are appended, and which appends
//!   enqueue a job
//! - `append_batching`: simultaneous appends share a transaction and do not affect each other
//! - `concurrency`: many writers, readers and workers
//! - `rpc_messages`: list and get messages; insert and delete separators
//! - `byte_ranges`: ranges of a message's text
//! - `read_limits`: how many bytes one call or job may read. `message_bytes`: and one message may
//!   have
//! - `rpc_conversations`: create, get, list, update, delete
//! - `lists`: totals, order and pages of conversation lists; page sizes
//! - `titles`: titles taken from the first user message
//! - `separators`: a context starts after the newest separator
//! - `sessions`: resolving and rotating sessions
//! - `session_races`: concurrent calls on one session; statements that resolving one takes
//! - `session_refusals`: invalid requests for sessions
//! - `stored_responses`: responses of the OpenAI protocol as the store keeps them
//! - `bare_append`: the SQL that the append benchmark compares with

mod append;
mod append_batching;
mod bare_append;
mod byte_ranges;
mod concurrency;
mod counted_appends;
mod lists;
mod message_bytes;
mod read_limits;
mod rpc_conversations;
mod rpc_messages;
mod separators;
mod session_races;
mod session_refusals;
mod sessions;
mod stored_responses;
mod titles;
