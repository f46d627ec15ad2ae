//! Calls of language models: three protocols, dialects, failures, admission, summaries that a model writes.

mod admission;
mod billing;
mod classify_error;
mod dead_model;
mod faults;
mod media;
mod providers;
mod providers_dialects;
mod providers_fail;
mod providers_real;
mod providers_settings;
mod real_model;
mod real_summaries;
mod settings;
mod summaries;
mod tenants;
mod trouble;

use anneal_core::message::Part;
use anneal_llm::provider::Api;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The protocols.
const APIS: [Api; 3] = [Api::OpenAi, Api::Anthropic, Api::Gemini];

/// A context with nothing in it.
const CONTEXT: &str = r#"{"messages":[]}"#;

/// A call of a tool, as heard.
fn call(id: &str, name: &str, input: &str) -> Part {
    Part::ToolUse { id: id.into(), name: name.into(), input: input.into() }
}
