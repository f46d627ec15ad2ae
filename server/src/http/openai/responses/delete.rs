//! DELETE /v1/responses/{id}.

use axum::{extract::State, response::Response};
use serde_json::json;

use super::record::{Record, no_response};
use crate::{
    audit,
    call_metrics::code_name,
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
use anneal_store::{DeletedResponse, Entity, StoreError};
use tonic::Code;

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
    let deleted = delete_in_store(&record)
        .await
        .map_err(|failure| match failure {
            Failure::Store(StoreError::NotFound(Entity::Response)) => no_response(&id),
            failure => failure.into(),
        })?;
    if deleted.is_chain && !deleted.others {
        let ask = pb::DeleteConversationRequest {
            conversation_id: deleted.conversation.to_string(),
            ..pb::DeleteConversationRequest::default()
        };
        let ask = http_caller.request(ask);
        match http_caller.services.delete_conversation(ask).await {
            Err(status) if status.code() != Code::NotFound => return Err(status.into()),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(json::response(
        &json!({"id": id, "object": "response.deleted", "deleted": true}),
    ))
}

/// Deletes the response, or says that its conversation is to be deleted, which writes a line in the
/// audit log of its own.
async fn delete_in_store(record: &Record) -> Result<DeletedResponse, Failure> {
    let (row, caller) = (&record.row, &record.caller);
    let store = &record.state.services.state.store;
    let deleted = store.delete_response(caller.caller, row.response_id).await;
    let deleted = deleted.map_err(Failure::from);
    let (conversation, code) = match &deleted {
        Ok(deleted) if deleted.is_chain && !deleted.others => return Ok(*deleted),
        Ok(deleted) => (deleted.conversation, Code::Ok),
        Err(failure) => (row.conversation_id, failure.reason().code()),
    };
    audit::log_call(
        caller.caller.tenant(),
        &caller.identity(),
        "delete_response",
        Some(conversation.0),
        code_name(code),
    );
    deleted
}
