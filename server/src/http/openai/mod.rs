//! The doors of OpenAI's protocol, under `/v1`: a translation of the same use cases. Conversations,
//! items and responses are conversations, messages and turns here.
//!
//! - `conversations`: conversations and their items
//! - `responses`: turns; `compaction`: contexts that are compacted; `websocket`: turns over a
//!   WebSocket
//! - `chat_completions`: turns in the older form, which stores nothing unless it is asked to
//! - `models`: the configured models
//! - `items`: items and messages, converted both ways; `ids`: the ids of conversations, responses
//!   and items
//! - `errors`: the error object
//! - `request`: what requests have in common
//! - `sealing`: the key of the codes in compactions

mod chat_completions;
mod compaction;
mod conversations;
pub(super) mod errors;
pub(super) mod ids;
pub(super) mod items;
mod models;
pub(super) mod request;
mod responses;
mod sealing;
mod websocket;

use super::Route;

/// The routes of all doors of this protocol.
pub(super) fn routes() -> impl Iterator<Item = &'static Route> {
    [
        conversations::ROUTES,
        responses::ROUTES,
        compaction::ROUTES,
        websocket::ROUTES,
        chat_completions::ROUTES,
        models::ROUTES,
    ]
    .into_iter()
    .flatten()
}
