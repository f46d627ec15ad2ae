//! Limits on what callers may use of a server, and attacks on them.
//!
//! Shared by the tests:
//! - `attacked_server`: starts a server process and runs an attack on it. Its `run_attack` asserts
//!   that the neighbour is served in time meanwhile, and that the attack leaves nothing behind.
//! - `neighbour`: another tenant and health probes, whose latencies are measured during an attack.
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
//! - `attack_reads`: large messages, contexts and pages, read as fast as possible.
//! - `attack_requests`: requests that are small on the wire and large in memory.
//! - `floods_http1`, `floods_http2`: floods and malformed requests of either protocol.
//!
//! Cost that grows at most in proportion to its input:
//! - `linear_conversations`: conversations of ten times the size.
//! - `linear_requests`, `linear_routes`: requests of ten times the size, over gRPC and over HTTP.
//!
//! Single limits:
//! - `connection_age`: the maximum age of a connection.
//! - `health_probes`: health checks are answered when the memory for requests is used up.
//! - `incomplete_requests`: requests whose rest does not arrive.
//! - `malformed_frames`: gRPC messages that are compressed or state a false length.
//! - `rate_limits`: calls and bytes per second of a tenant.
//! - `shedding`: concurrent calls of a server and streams of a connection.
//! - `slow_readers`: readers that do not read their answers.
//! - `storage_quota`: stored messages and bytes of a tenant.

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
mod floods_http1;
mod floods_http2;
mod grown_conversations;
mod health_probes;
mod incomplete_requests;
mod linear_conversations;
mod linear_requests;
mod linear_routes;
mod malformed_frames;
mod neighbour;
mod rate_limits;
mod shedding;
mod slow_readers;
mod storage_quota;
