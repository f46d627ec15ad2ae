//! What callers may take of a server, and what becomes of those who would take more.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod ages;
mod attack_contexts;
mod attack_errors;
mod besieged;
mod bodies;
mod cost;
mod floods_http1;
mod floods_http2;
mod linear_requests;
mod neighbour;
mod probes;
mod rates;
mod readers;
mod refused;
mod shedding;
mod storage;
