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
//! - `errors`: the error object; `fields`: the fields of an object in a request
//! - `request`: what requests have in common; `body_values`: the memory of their bodies;
//!   `page_query`: pages of lists
//! - `rate_limits`: the headers about the rate of calls
//! - `sealing`: the key of the codes in compactions

mod body_values;
mod chat_completions;
mod compaction;
mod conversations;
pub(super) mod errors;
mod fields;
pub(super) mod ids;
pub(super) mod items;
mod models;
mod page_query;
mod rate_limits;
pub(super) mod request;
mod responses;
mod sealing;
mod websocket;

pub(super) use chat_completions::CONVERSATION;
pub(super) use errors::{REQUEST_ID, RETRY_AFTER_MS};
pub(super) use rate_limits::{
    LIMIT as RATE_LIMIT, REMAINING as RATE_REMAINING, RESET as RATE_RESET, add_rate_limits,
};
pub(super) use request::{IDEMPOTENCY_KEY, IGNORED_PARAMETERS};

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
