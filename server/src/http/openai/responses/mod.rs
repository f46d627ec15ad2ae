//! Responses: turns, and what is stored of them. A response that is stored is a row, a question and
//! an answer in a conversation. The conversation is the one that the caller names, or one of a chain
//! of responses (docs/openai.md).
//!
//! - `create`, `retrieve`, `delete`, `cancel`, `input_items`, `input_tokens`: the endpoints
//! - `create_body`: the body of a create: what is honoured, and what is refused by name
//! - `query`: the parameters of a retrieval
//! - `tools`: tools, and which of them an answer may and must call
//! - `parameters`: the response object
//! - `input`: the input as messages
//! - `target`: the conversation of a response
//! - `begin`: begins a response: `stored` or `unstored`; `run`: reads its events
//! - `events`: pieces of an answer as events; `sse`: events as server-sent events
//! - `outcome`: how a response has ended; `record`: a stored response; `withdrawal`: withdraws its
//!   messages; `request_ids`: the request ids of its calls; `retries`: repeats them

mod begin;
mod cancel;
mod create;
mod create_body;
mod delete;
mod events;
mod input;
mod input_items;
mod input_tokens;
mod outcome;
mod parameters;
mod query;
mod record;
mod request_ids;
mod retries;
mod retrieve;
mod run;
mod sse;
mod stored;
mod target;
mod tools;
mod unstored;
mod withdrawal;

use axum::routing;

pub(super) use begin::{Medium, begin};
pub(super) use create::acquire_reader;
pub(super) use input::read as read_input;
pub(super) use outcome::{Usage, now};
pub(super) use run::{RunningResponse, UnstoredHistory};
pub(super) use tools::check_unique;
pub(super) use unstored::load_history;

use crate::http::Route;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[
    ("/v1/responses", || routing::post(create::create)),
    ("/v1/responses/input_tokens", || {
        routing::post(input_tokens::count_input_tokens)
    }),
    ("/v1/responses/{id}", || {
        routing::get(retrieve::retrieve).delete(delete::delete)
    }),
    ("/v1/responses/{id}/cancel", || {
        routing::post(cancel::cancel)
    }),
    ("/v1/responses/{id}/input_items", || {
        routing::get(input_items::list_input_items)
    }),
];
