//! POST /v1/conversations/{id}.

use std::collections::HashMap;

use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use axum::response::Response;
use prost_types::FieldMask;

use super::conversation::{self, ConversationPath};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs},
        extractors::{NoParams, PathParams, QueryParams},
        openai::{
            errors::ApiError,
            fields::Fields,
            request::{self, ObjectBody},
        },
    },
    verbs::Rpc,
};

/// The RPC of this endpoint.
pub(super) struct UpdateConversation;

impl EndpointRpcs for UpdateConversation {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("update_conversation")];
}

/// Replaces the metadata of a conversation; null removes them.
pub(super) async fn update_conversation(
    Authorized(http_caller, _): Authorized<UpdateConversation>,
    PathParams(id): PathParams<String>,
    _: QueryParams<NoParams>,
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    let path = ConversationPath::parse(id)?;
    let mut fields = Fields::of_object(&body, "");
    let metadata = match fields.value("metadata") {
        Some(metadata) => request::parse_metadata(metadata)?,
        None if body.contains_key("metadata") => HashMap::new(),
        None => return Err(ApiError::missing_parameter("metadata")),
    };
    let ask = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: path.uuid(),
            metadata,
            ..pb::Conversation::default()
        }),
        update_mask: Some(FieldMask {
            paths: vec!["metadata".to_owned()],
        }),
        ..pb::UpdateConversationRequest::default()
    };
    let changed = http_caller
        .services
        .update_conversation(http_caller.request(ask))
        .await
        .map_err(|status| path.refusal(&status))?;
    let response = conversation::response(changed.get_ref())?;
    Ok(request::with_ignored(response, &fields.ignored()))
}
