//! POST /conversations: a new conversation, with its first message.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::{extract::State, response::Response};
use serde::Deserialize;

use super::{paths, turn};
use crate::{
    http::{
        caller::EndpointRpcs,
        chat_body::ChatBody,
        resumable_turns::SessionOrigin,
        state::HttpState,
        web::{
            error::WebError,
            form::MessageForm,
            page::{self, WebCaller},
        },
    },
    verbs::Rpc,
};

/// The fields of a new conversation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewConversation {
    agent: String,
    /// Empty: a conversation without messages.
    message: String,
    /// Makes the form repeatable.
    request_id: String,
}

/// The RPCs of this route.
pub(super) struct CreateConversation;

impl EndpointRpcs for CreateConversation {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("create_conversation")];
}

/// Creates a conversation and begins its first turn. If the turn is refused, the conversation is
/// deleted again.
pub(super) async fn create(
    State(state): State<HttpState>,
    WebCaller(http_caller, ..): WebCaller<CreateConversation>,
    MessageForm(new): MessageForm<NewConversation>,
) -> Result<Response, WebError> {
    let request_id = turn::request_id(new.request_id);
    let ask = pb::CreateConversationRequest {
        request_id: request_id.clone(),
        agent_id: new.agent,
        ..pb::CreateConversationRequest::default()
    };
    let created = http_caller
        .services
        .create_conversation(http_caller.request(ask))
        .await?
        .into_inner();
    let id = created.conversation_id;
    if new.message.trim().is_empty() {
        return Ok(page::see_other(&paths::conversation(&id), None));
    }
    let body = ChatBody {
        message: turn::text(&new.message),
        ..ChatBody::default()
    };
    let names = (id.as_str(), request_id);
    let notice = turn::begin(&state, http_caller, names, body, SessionOrigin::Created).await?;
    Ok(turn::show(&id, notice))
}
