//! `anneal import` and `anneal export`: files of other systems, read and written, whole or broken.

mod again;
mod export;
mod growing;
mod hostile;
mod import;
mod large;
mod odd_bytes;
mod openclaw;
mod pi_oracle;
mod place;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
