//! The HTTP API.
//!
//! - `turns`: the events of a turn, repeated requests, readers, failures
//! - `first_turns`: sessions that a first turn creates, and refusals that leave none
//! - `resume`: a reader that was cut off gets the rest of its turn
//! - `sessions`: list, read, rename, delete and compact sessions
//! - `events`: a watch of a session as server-sent events
//! - `problems`: refusals as problem documents, security headers, hosts and origins
//! - `openapi`: the description matches the routes
//! - `examples`: the scripts in `examples/http/` run

mod events;
mod examples;
mod first_turns;
mod openapi;
mod problems;
mod resume;
mod sessions;
mod turns;

use anneal_testkit::{HttpClient, SseEvent};
use serde_json::Value;

/// The binary `anneal`.
const BINARY: &str = env!("CARGO_BIN_EXE_anneal-under-test");

/// The path of an agent's turns.
const CHAT: &str = "/api/agents/a/chat";

/// The session that the first event of a turn names.
fn session_of(received: &[SseEvent]) -> String {
    received[0].data["sessionId"]
        .as_str()
        .expect("started names the session")
        .to_owned()
}

/// The sessions of an agent, as the list shows them.
async fn list_sessions(web: &HttpClient, agent: &str) -> Value {
    web.get(&format!("/api/agents/{agent}/sessions"))
        .await
        .json()["sessions"]
        .clone()
}
