//! Chat completions: turns whose history the client sends. Nothing is stored, unless the request
//! says so or names a conversation. Then the messages that are new are stored, and the answer comes
//! from the context of the conversation.
//!
//! - `create`: the endpoint
//! - `body`: the body of a request; `messages`, `options`: its parts
//! - `shown_message`: what a client sees of a message
//! - `plan`: which messages of a request are new
//! - `stored`: the conversation of a request, and a turn in it
//! - `names`: the names of fields in refusals
//! - `answer`: the events of a turn; `completion`: the whole answer; `chunks`: its chunks
//! - `stream`: chunks as server-sent events

mod answer;
mod body;
mod chunks;
mod completion;
mod create;
mod messages;
mod names;
mod options;
mod plan;
mod shown_message;
mod stored;
mod stream;

use axum::routing;

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[("/v1/chat/completions", || {
    routing::post(create::create_completion)
})];
