//! Tests with real clusters, of the PostgreSQL in ANNEAL_PG_BIN or an installed one.

mod cluster;
mod harness;
mod sharing;
