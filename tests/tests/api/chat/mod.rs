//! Chat turns: the server stores the prompt, calls the model and stores the answer.
//!
//! - `turns`: prompts, answers, tool calls, reasoning, images, parameters, and which model is
//!   called
//! - `refusals`: invalid requests, which store nothing
//! - `unserved`: fields and RPCs that this version knows and does not serve
//! - `idempotency`: repeated, abandoned and concurrent turns have one effect
//! - `interruptions`: stopping servers, database outages, deadlines, callers that do not read
//! - `failures`: model calls that fail or are not admitted, and the reasons that callers get
//! - `overflow`: contexts that the model refuses as too long
//! - `stored_options`: options of turns that a conversation has
//! - `agent_settings`: the defaults of an agent's new conversations
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
mod stored_options;
mod turns;
mod unserved;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");
