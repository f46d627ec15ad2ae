//! What whoever runs anneal relies on: health, figures, proofs, query plans, moves of older databases, orderly stops.

mod auditor;
mod database_address;
mod deadlines;
mod deletion;
mod durability;
mod health;
mod legacy;
mod legacy_crashes;
mod legacy_odd;
mod migration_crashes;
mod plans;
mod plans_audit;
mod plans_context;
mod plans_lists;
mod plans_watch;
mod pooler;
mod restore_drill;
mod roles;
mod rolling;
mod rpc_operators;
mod service_config;
mod stopping;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
