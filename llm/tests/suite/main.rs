//! Tests of summaries, extractive and by a model, and of the classification of providers' answers.

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
mod properties;
mod provider_error_properties;
mod provider_errors;
mod provider_messages;
mod ranges;
mod real_conversations;
mod scripted_model;
