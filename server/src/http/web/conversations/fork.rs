//! POST /conversations/{id}/fork: another conversation that begins as this one.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use serde::Deserialize;

use super::{paths, turn};
use crate::{
    http::{
        caller::EndpointRpcs,
        extractors::PathParams,
        web::{
            error::WebError,
            form::Form,
            page::{self, NoticeCode, WebCaller},
        },
    },
    verbs::Rpc,
};

/// The fields of a fork.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fork {
    /// The newest message that the fork takes over; 0: the newest one.
    message_id: i64,
    /// Makes the form repeatable.
    request_id: String,
}

/// The RPC of this route.
pub(super) struct ForkConversation;

impl EndpointRpcs for ForkConversation {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("fork_conversation")];
}

/// Forks a conversation, and shows the fork.
pub(super) async fn fork(
    WebCaller(http_caller, ..): WebCaller<ForkConversation>,
    PathParams(id): PathParams<String>,
    Form(fork): Form<Fork>,
) -> Result<Response, WebError> {
    let ask = pb::ForkConversationRequest {
        conversation_id: id,
        request_id: turn::request_id_of(&format!("fork {}", fork.message_id), &fork.request_id),
        message_id: fork.message_id,
        ..pb::ForkConversationRequest::default()
    };
    let forked = http_caller
        .services
        .fork_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    let path = paths::conversation(&forked.conversation_id);
    Ok(page::see_other(&path, Some(NoticeCode::Forked)))
}
