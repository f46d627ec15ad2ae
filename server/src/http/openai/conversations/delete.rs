//! DELETE /v1/conversations/{id}.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use serde_json::json;

use super::conversation::ConversationPath;
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs},
        extractors::{NoParams, PathParams, QueryParams},
        json,
        openai::{errors::ApiError, ids},
    },
    verbs::Rpc,
};

/// The RPC of this endpoint.
pub(super) struct DeleteConversation;

impl EndpointRpcs for DeleteConversation {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("delete_conversation")];
}

/// Deletes a conversation, its items and everything derived from them.
pub(super) async fn delete_conversation(
    Authorized(http_caller, _): Authorized<DeleteConversation>,
    PathParams(id): PathParams<String>,
    _: QueryParams<NoParams>,
) -> Result<Response, ApiError> {
    let path = ConversationPath::parse(id)?;
    let ask = pb::DeleteConversationRequest {
        conversation_id: path.uuid(),
        ..pb::DeleteConversationRequest::default()
    };
    http_caller
        .services
        .delete_conversation(http_caller.request(ask))
        .await
        .map_err(|status| path.refusal(&status))?;
    Ok(json::response(&json!({
        "id": ids::conversation_id(path.id),
        "object": "conversation.deleted",
        "deleted": true,
    })))
}
