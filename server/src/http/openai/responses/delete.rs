//! DELETE /v1/responses/{id}.

use axum::{extract::State, response::Response};
use serde_json::json;

use super::record::{Record, no_response};
use crate::{
    failure::Failure,
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs},
        extractors::{NoParams, PathParams, QueryParams},
        json,
        openai::errors::ApiError,
    },
    verbs::Rpc,
};
use anneal_proto::v1::{self as pb, conversation_service_server::ConversationService as _};
use anneal_store::{Entity, StoreError};

/// The RPCs of this endpoint.
pub(super) struct DeleteResponse;

impl EndpointRpcs for DeleteResponse {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("delete_conversation")];
}

/// Deletes a response; with the last response of a chain, the messages of the chain, too. The
/// messages of a response in a conversation stay there.
pub(super) async fn delete(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<DeleteResponse>,
    PathParams(id): PathParams<String>,
    _: QueryParams<NoParams>,
) -> Result<Response, ApiError> {
    let record = Record::get(&state, &http_caller, &id).await?;
    let store = &state.services.state.store;
    let deleted = store
        .delete_response(http_caller.caller, record.row.response_id)
        .await
        .map_err(|error| match error {
            StoreError::NotFound(Entity::Response) => no_response(&id),
            error => Failure::from(error).into(),
        })?;
    if deleted.is_chain && !deleted.others {
        let ask = pb::DeleteConversationRequest {
            conversation_id: deleted.conversation.to_string(),
            ..pb::DeleteConversationRequest::default()
        };
        let ask = http_caller.request(ask);
        match http_caller.services.delete_conversation(ask).await {
            Err(status) if status.code() != tonic::Code::NotFound => return Err(status.into()),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(json::response(
        &json!({"id": id, "object": "response.deleted", "deleted": true}),
    ))
}
