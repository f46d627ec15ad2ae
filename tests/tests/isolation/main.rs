//! Who gets in, what they may do, and that nobody sees what is another's.

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

mod audit;
mod connections;
mod credentials;
mod doors;
mod ids;
mod lifetimes;
mod logs;
mod matrix;
mod names;
mod paths;
mod rows;
mod shares;
mod standing;
mod unfiltered;
mod verbs;
