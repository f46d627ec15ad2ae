//! Turns that the server runs.
//!
//! - `turns`: prompts, answers, tool calls, reasoning, parameters
//! - `refusals`: invalid requests
//! - `idempotency`: repeated, abandoned and concurrent turns have one effect
//! - `interruptions`: stopping servers, database outages, deadlines, readers that do not read
//! - `failures`: failures of the model, and their reasons
//! - `overflow`: contexts that the model refuses as too long
//! - `agent_settings`: defaults of an agent's conversations
//! - `real_model`: chat with a real model
//! - `python_client`: the Python examples

mod agent_settings;
mod failures;
mod idempotency;
mod interruptions;
mod overflow;
mod python_client;
mod real_model;
mod refusals;
mod turns;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
