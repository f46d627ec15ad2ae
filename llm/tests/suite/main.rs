//! Tests of summaries, extractive and by a model, and of the classification of providers' answers.
//!
//! Extractive summaries:
//! - `digests`: summaries of one large message. `ranges`: summaries of a run of messages.
//! - `properties`: any sources. `real_conversations`: real conversations.
//!
//! Summaries by a model:
//! - `model_prompts`: the prompt. `model_calls`: how many calls, and their limits.
//! - `model_chunks`: sources beyond the window. `model_parts`: parts that survive a failure.
//!   `model_side_by_side`: parts that are written at the same time.
//! - `model_gates`: what an answer must say. `model_format_gates`: its form. `model_identifiers`:
//!   the identifiers that it must keep. `model_second_calls`: the call after a refused answer.
//! - `model_properties`: any sources and answers.
//!
//! Providers' answers:
//! - `provider_errors`: how they are classified by structure. `provider_messages`: by wording.
//! - `provider_error_properties`: any answer.
//!
//! Shared: `fixtures` (sources and checked extracts), `scripted_model` (a model whose answers come
//! from a function), `gate_checks` (asserts which answers the gates refuse).

mod digests;
mod fixtures;
mod gate_checks;
mod model_calls;
mod model_chunks;
mod model_format_gates;
mod model_gates;
mod model_identifiers;
mod model_parts;
mod model_prompts;
mod model_properties;
mod model_second_calls;
mod model_side_by_side;
mod properties;
mod provider_error_properties;
mod provider_errors;
mod provider_messages;
mod ranges;
mod real_conversations;
mod scripted_model;
