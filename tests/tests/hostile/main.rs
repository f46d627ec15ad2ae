//! What nobody in his right mind sends: a catalogue, a line for each case, with the documented answer; what is taken comes back
//! byte for byte and hurts nobody; and every field of every RPC filled with nonsense.

mod case;
mod catalogue;
mod contexts;
mod conversations;
mod every_field;
mod http;
mod kept;
mod long;
mod messages;
mod pages;
mod wire;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
