//! The door of the AI SDK: its UI message stream, version 1. `useChat` with `DefaultChatTransport`
//! works with it. The client chooses the id of its chat, which is the place of a session here: any
//! server finds its conversation. What the server has stored is the history; of the client's copy
//! only what is new is read.
//!
//! - `post_turn`: runs a turn; `resume`: sends the answer that is under way once more
//! - `body`: the body of a turn; `parsed_message`: messages in it; `message`: the messages that are
//!   stored for them; `outputs`: outputs of its tool calls
//! - `prompt`: decides what a turn answers
//! - `stored_chat`: the conversation of a chat; `import`: keeps a history that the client brings
//! - `ids`: ids of answers, and the request ids of turns; `labels`: labels of stored messages
//! - `chunk`: the chunks of a stream; `answer_stream`: makes them of the events of a turn

mod answer_stream;
mod body;
mod chunk;
mod ids;
mod import;
mod labels;
mod message;
mod outputs;
mod parsed_message;
mod post_turn;
mod prompt;
mod resume;
mod stored_chat;

use axum::routing;

use super::{Route, caller::EndpointRpcs};
use crate::verbs::Rpc;

/// The routes of this module.
pub(super) const ROUTES: &[Route] = &[
    ("/api/agents/{id}/ui", || {
        routing::post(post_turn::post_turn)
    }),
    ("/api/agents/{id}/ui/{chat}/stream", || {
        routing::get(resume::resume)
    }),
];

/// The RPCs of both endpoints. Only `chat` is listed: its verbs, append and read, are enough for
/// the other RPCs that are called. A resumed turn may have to be run again, so it needs both too.
struct UiTurn;

impl EndpointRpcs for UiTurn {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("chat")];
}
