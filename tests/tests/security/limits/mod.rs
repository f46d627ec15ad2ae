//! Limits on what callers may use of a server, and attacks that try to use more.
//!
//! Shared by the tests:
//! - `attacked_server`: starts a server process and runs an attack on it. Its `run_attack` asserts
//!   that the neighbor is served in time meanwhile, and that the attack leaves nothing behind.
//! - `neighbor`: another tenant and health probes, whose latencies are measured during an attack.
//! - `cpu_cost`: measures processor time of a server and its database sessions, and compares
//!   inputs.
//! - `grown_conversations`: conversations that are large in one dimension.
//!
//! Attacks on a server process:
//! - `attack_answers`: unread answers of HTTP turns and forged event ids.
//! - `attack_connections`: readers of one turn, half-sent requests, and connections without a valid
//!   key.
//! - `attack_contexts`: contexts of 100,000 messages.
//! - `attack_credentials`: made-up keys from one address.
//! - `attack_errors`: refused requests with names of four megabytes.
//! - `attack_health`: health checks and watches without a credential.
//! - `attack_models`: turns that fail, hang or are cancelled.
//! - `attack_reads`: large messages, contexts and pages, read as fast as possible, and large
//!   appends.
//! - `attack_requests`: requests that are small on the wire and large in memory.
//! - `floods_doors`: creates over the doors of other protocols.
//! - `floods_http1`, `floods_http2`: floods and malformed requests of either protocol.
//!
//! Costs that must grow about linearly with the input (ten times the input, at most fifteen times
//! the cost):
//! - `linear_conversations`: conversations of ten times the size.
//! - `linear_doors`: requests of other protocols of ten times the size.
//! - `linear_requests`: gRPC requests of ten times the size.
//! - `linear_routes`: HTTP requests of ten times the size.
//!
//! Single limits:
//! - `connection_age`: the maximum age of a connection.
//! - `health_probes`: health checks are answered when the memory for requests is used up, and a
//!   truncated answer does not look complete.
//! - `incomplete_requests`: requests of which only the beginning arrives.
//! - `malformed_frames`: gRPC messages that are compressed, have an unknown flag or state a false
//!   length.
//! - `rate_limits`: limits of a tenant's calls and bytes per second.
//! - `shedding`: limits of a server's concurrent calls and of a connection's streams.
//! - `slow_readers`: clients that do not read their answers.
//! - `storage_quota`: quotas of a tenant's stored messages and bytes.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod attack_answers;
mod attack_connections;
mod attack_contexts;
mod attack_credentials;
mod attack_errors;
mod attack_health;
mod attack_models;
mod attack_reads;
mod attack_requests;
mod attacked_server;
mod connection_age;
mod cpu_cost;
mod floods_doors;
mod floods_http1;
mod floods_http2;
mod grown_conversations;
mod health_probes;
mod incomplete_requests;
mod linear_conversations;
mod linear_doors;
mod linear_requests;
mod linear_routes;
mod malformed_frames;
mod neighbor;
mod rate_limits;
mod shedding;
mod slow_readers;
mod storage_quota;
