//! What callers may take of a server, and what becomes of those who would take more.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod ages;
mod attack_credentials;
mod besieged;
mod bodies;
mod floods_http1;
mod floods_http2;
mod neighbour;
mod probes;
mod rates;
mod readers;
mod refused;
mod shedding;
