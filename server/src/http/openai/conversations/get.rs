//! GET /v1/conversations/{id}.

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;

use super::conversation::{self, ConversationPath};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs},
        extractors::{NoParams, PathParams, QueryParams},
        openai::errors::ApiError,
    },
    verbs::Rpc,
};

/// The RPC of this endpoint.
pub(super) struct GetConversation;

impl EndpointRpcs for GetConversation {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("get_conversation")];
}

/// Returns a conversation.
pub(super) async fn get_conversation(
    Authorized(http_caller, _): Authorized<GetConversation>,
    PathParams(id): PathParams<String>,
    _: QueryParams<NoParams>,
) -> Result<Response, ApiError> {
    let path = ConversationPath::parse(id)?;
    let ask = pb::GetConversationRequest {
        conversation_id: path.uuid(),
    };
    let found = http_caller
        .services
        .get_conversation(http_caller.request(ask))
        .await
        .map_err(|status| path.refusal(&status))?;
    conversation::response(found.get_ref())
}
