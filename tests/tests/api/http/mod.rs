//! The HTTP API.
//!
//! - `turns`: the events of a turn, repeated requests, readers that stall or disconnect, failures,
//!   refusals
//! - `first_turns`: a first turn creates its session, unless it is refused
//! - `event_ids`: ids of a turn's events, and what the events cost on the wire
//! - `resume`: a reader that lost its connection gets the rest of the turn
//! - `alternatives`: earlier answers to a question are listed and chosen
//! - `cancel`: turns are stopped
//! - `changes`: messages are withdrawn and restored
//! - `edits`: messages are edited, and histories show withdrawn ones
//! - `fallbacks`: other models, expected messages and pings of the cache
//! - `forks`: sessions are forked
//! - `sessions`: list, read, change and delete sessions; their compactions
//! - `events`: a watch of a session as server-sent events
//! - `problems`: refusals as problem documents, security headers, hosts and origins
//! - `openapi`: the OpenAPI description matches the routes
//! - `unknown_names`: unknown fields and parameters are refused
//! - `examples`: the scripts in `examples/http/`
//! - `tools`: options of turns, tool calls and their results
//! - `tutorials`: the programs of the tutorials, and their pages

mod alternatives;
mod cancel;
mod changes;
mod edits;
mod event_ids;
mod events;
mod examples;
mod fallbacks;
mod first_turns;
mod forks;
mod openapi;
mod problems;
mod resume;
mod sessions;
mod tools;
mod turns;
mod tutorials;
mod unknown_names;

use anneal_testkit::{HttpClient, SseEvent};
use serde_json::Value;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The path to which clients post the turns of agent `a`.
const CHAT: &str = "/api/agents/a/chat";

/// The id of the session, as a turn's first event names it.
fn session_of(received: &[SseEvent]) -> String {
    received[0].data["sessionId"]
        .as_str()
        .expect("started names the session")
        .to_owned()
}

/// Lists the sessions of an agent.
async fn list_sessions(web: &HttpClient, agent: &str) -> Value {
    web.get(&format!("/api/agents/{agent}/sessions"))
        .await
        .json()["sessions"]
        .clone()
}
