//! The pages of conversations: the list, and a conversation to read, to talk in and to change.
//! Forms answer with a redirect to the page, so that they work without a script.
//!
//! - `list`, `create`: the list, and a new conversation
//! - `open`, `entries`: a conversation, and what it shows of its messages
//! - `send`, `answer_anew`, `stop`: turns; `turn`: begins a turn, and finds the one that runs
//! - `turn_events`, `watch`: server-sent events of a turn, and of a conversation
//! - `update`, `delete`, `fork`, `change`, `separator`: changes
//! - `message`, `media`: a long message piece by piece, and its pictures
//! - `view`: conversations and messages as the page shows them
//! - `paths`: the paths of these pages

mod answer_anew;
mod change;
mod create;
mod delete;
mod entries;
mod fork;
mod list;
mod media;
mod message;
mod open;
pub(super) mod paths;
mod send;
mod separator;
mod stop;
mod turn;
mod turn_events;
mod update;
pub(super) mod view;
mod watch;

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::routing;

use super::page::WebRoute;
use crate::{
    http::{
        caller::{EndpointRpcs, HttpCaller},
        problem::Problem,
    },
    verbs::Rpc,
};

/// The routes of these pages.
pub(super) const ROUTES: &[WebRoute] = &[
    ("/conversations", || {
        routing::get(list::list).post(create::create)
    }),
    ("/conversations/{id}", || routing::get(open::open)),
    ("/conversations/{id}/entries", || {
        routing::get(entries::show_entries)
    }),
    ("/conversations/{id}/events", || routing::get(watch::watch)),
    ("/conversations/{id}/turn", || routing::post(send::send)),
    ("/conversations/{id}/turns/{request}/events", || {
        routing::get(turn_events::turn_events)
    }),
    ("/conversations/{id}/stop", || routing::post(stop::stop)),
    ("/conversations/{id}/rename", || {
        routing::post(update::rename)
    }),
    ("/conversations/{id}/pin", || routing::post(update::pin)),
    ("/conversations/{id}/archive", || {
        routing::post(update::archive)
    }),
    ("/conversations/{id}/delete", || {
        routing::get(delete::ask).post(delete::delete)
    }),
    ("/conversations/{id}/fork", || routing::post(fork::fork)),
    ("/conversations/{id}/rewind", || {
        routing::post(change::rewind)
    }),
    ("/conversations/{id}/choose", || {
        routing::post(change::choose)
    }),
    ("/conversations/{id}/separator", || {
        routing::post(separator::separator)
    }),
    ("/conversations/{id}/messages/{mid}", || {
        routing::get(message::message)
    }),
    ("/conversations/{id}/messages/{mid}/edit", || {
        routing::post(answer_anew::edit)
    }),
    ("/conversations/{id}/messages/{mid}/regenerate", || {
        routing::post(answer_anew::regenerate)
    }),
    ("/conversations/{id}/messages/{mid}/withdraw", || {
        routing::post(change::withdraw)
    }),
    ("/conversations/{id}/messages/{mid}/restore", || {
        routing::post(change::restore)
    }),
    ("/conversations/{id}/messages/{mid}/media/{n}", || {
        routing::get(media::media)
    }),
];

/// The RPCs that show a conversation.
struct OpenConversation;

impl EndpointRpcs for OpenConversation {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_conversation"),
        Rpc::named("list_messages"),
        Rpc::named("list_checkpoints"),
    ];
}

/// The RPC that shows a message.
struct ShowMessage;

impl EndpointRpcs for ShowMessage {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("get_message")];
}

/// Loads a conversation.
async fn get_conversation(http_caller: &HttpCaller, id: &str) -> Result<pb::Conversation, Problem> {
    let ask = pb::GetConversationRequest {
        conversation_id: id.to_owned(),
    };
    let found = http_caller
        .services
        .get_conversation(http_caller.request(ask))
        .await?;
    Ok(found.into_inner())
}
