//! What whoever runs anneal relies on: health, figures, proofs, query plans, moves of older databases, orderly stops.

mod durability;
mod health;
mod legacy;
mod legacy_crashes;
mod legacy_odd;
mod plans;
mod plans_context;
mod plans_lists;
mod plans_watch;
mod rpc_operators;
mod stopping;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
