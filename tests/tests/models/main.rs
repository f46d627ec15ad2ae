//! Calls of language models.
//!
//! - `providers_protocols`: requests and answers in three protocols
//! - `providers_dialects`: deviations of servers that claim OpenAI's protocol
//! - `providers_failures`: what a call returns for each failure of a provider
//! - `providers_unreachable`: no connection, no TLS, timeouts
//! - `providers_settings`: invalid settings, keys, proxies
//! - `providers_real_model`, `real_contexts`, `real_summaries`: calls, contexts and summaries with
//!   a real model
//! - `options`: what each provider is sent for the options of a call, and which of them it refuses
//! - `classify_error`: which provider errors are context overflows
//! - `overflow_sense`: real overflows in words that no list has, and real errors that are none
//! - `media`: media URLs of tenants do not reach providers that would fetch them
//! - `admission`: limits of calls, quotas, breakers, leases
//! - `breaker_log`: log lines, metrics and refusals of breakers that open and close
//! - `tenant_shares`: breakers and call limits of tenants that share a model
//! - `call_costs`: costs of calls without a complete answer
//! - `cache_bills`: bills of providers with prompt caches, and what turns expected of them.
//!   `exchanges`: real conversations as prompts and answers
//! - `summaries`: summaries written by a model
//! - `long_summaries`: sources above the model's window; partial summaries of a killed worker
//! - `summary_failures`: models that fail, and unusable summaries
//! - `summary_job_retries`: retry times, breakers and quotas of jobs that call a model
//! - `due_checkpoints`: conversations and settings that several of these files share
//! - `dead_model`: jobs that wait for a model that fails every call
//! - `model_settings`: settings that stop the start; keys in no output; the command `models`

mod admission;
mod breaker_log;
mod cache_bills;
mod call_costs;
mod classify_error;
mod dead_model;
mod due_checkpoints;
mod exchanges;
mod long_summaries;
mod media;
mod model_settings;
mod options;
mod overflow_sense;
mod providers_dialects;
mod providers_failures;
mod providers_protocols;
mod providers_real_model;
mod providers_settings;
mod providers_unreachable;
mod real_contexts;
mod real_summaries;
mod summaries;
mod summary_failures;
mod summary_job_retries;
mod tenant_shares;

use anneal_core::message::Part;
use anneal_llm::provider::Api;

/// The binary under test, `anneal-under-test`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The protocols of model providers.
const APIS: [Api; 3] = [Api::OpenAi, Api::Anthropic, Api::Gemini];

/// A context without messages, in OpenAI's format.
const CONTEXT: &str = r#"{"messages":[]}"#;

/// A tool call in an answer.
fn call(id: &str, name: &str, input: &str) -> Part {
    Part::ToolUse {
        id: id.into(),
        name: name.into(),
        input: input.into(),
    }
}
