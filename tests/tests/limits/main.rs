//! What callers may take of a server, and what becomes of those who would take more.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod ages;
mod attack_answers;
mod attack_connections;
mod attack_contexts;
mod attack_credentials;
mod attack_errors;
mod attack_health;
mod attack_models;
mod attack_reads;
mod attack_requests;
mod besieged;
mod bodies;
mod cost;
mod floods_http1;
mod floods_http2;
mod grown;
mod linear_conversations;
mod linear_requests;
mod linear_routes;
mod neighbour;
mod probes;
mod rates;
mod readers;
mod refused;
mod shedding;
mod storage;
