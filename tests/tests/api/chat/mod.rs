//! Chat turns: the server stores the prompt, calls the model and stores the answer.
//!
//! - `turns`: prompts, answers, tool calls, reasoning, images, parameters, and which model is
//!   called
//! - `refusals`: invalid requests, which store nothing
//! - `regenerate`: the newest question is answered anew
//! - `edit_and_answer`: a message of the user is edited and answered
//! - `alternatives`: earlier answers are listed, and one of them is chosen
//! - `idempotency`: repeated, abandoned and concurrent turns have one effect
//! - `interruptions`: stopping servers, database outages, deadlines, callers that do not read
//! - `failures`: model calls that fail or are not admitted, and the reasons that callers get
//! - `stops`: turns that a caller stops
//! - `disconnects`: callers that go away
//! - `fallbacks`: turns that several models may answer
//! - `cache_pings`: calls after a turn that keep the provider's cache warm
//! - `overflow`: contexts that the model refuses as too long
//! - `caches`: what turns ask of the provider's cache, and what they say of it
//! - `stored_options`: options of turns that a conversation has
//! - `agent_settings`: the defaults of an agent's new conversations
//! - `real_model`: chat with a real model
//! - `python_client`: the Python examples

mod agent_settings;
mod alternatives;
mod cache_pings;
mod caches;
mod disconnects;
mod edit_and_answer;
mod failures;
mod fallbacks;
mod idempotency;
mod interruptions;
mod overflow;
mod python_client;
mod real_model;
mod refusals;
mod regenerate;
mod stops;
mod stored_options;
mod turns;

use anneal_testkit::{Say, Script, ScriptedModel, pb};

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// A model whose answers are "Answer 0.", "Answer 1." and so on.
async fn numbered_answers() -> ScriptedModel {
    ScriptedModel::start(|request| {
        Script::says(request, [Say::text(&format!("Answer {}.", request.nth))])
    })
    .await
}

/// The first and the last message of each run.
fn ids(runs: &[pb::IdRange]) -> Vec<(i64, i64)> {
    let runs = runs.iter();
    runs.map(|run| (run.first_message_id, run.last_message_id))
        .collect()
}
