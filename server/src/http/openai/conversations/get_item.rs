//! GET /v1/conversations/{id}/items/{item}.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::response::Response;

use super::conversation::{self, ConversationPath};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{PathParams, QueryParams},
        json,
        openai::{
            compaction,
            errors::ApiError,
            ids::{CHECKPOINT_INDEX, ItemId},
            items::{StoredItem, stored_items},
            request,
        },
        problem::Problem,
    },
    reason::Reason,
    verbs::Rpc,
};

/// The RPCs of this endpoint.
pub(super) struct GetItem;

impl EndpointRpcs for GetItem {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_message"),
        Rpc::named("list_checkpoints"),
        Rpc::named("get_conversation"),
    ];
}

/// Returns one item of a conversation.
pub(super) async fn get_item(
    Authorized(http_caller, _): Authorized<GetItem>,
    PathParams((id, item)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    request::check_only_included(&query)?;
    let path = ConversationPath::parse(id)?;
    let id = path.parse_item(&http_caller, &item).await?;
    if id.index == CHECKPOINT_INDEX {
        let refuse = |status: &tonic::Status| path.refusal(status);
        let checkpoint = compaction::find_checkpoint(&http_caller, &id, refuse).await?;
        if let Some(checkpoint) = checkpoint {
            return Ok(json::response(&checkpoint.value));
        }
    }
    let (_, found) = find(&http_caller, &path, &id).await?;
    Ok(json::response(&found.value))
}

/// The item with this id, and its message. One that was deleted is not found.
pub(super) async fn find(
    http_caller: &HttpCaller,
    path: &ConversationPath,
    id: &ItemId,
) -> Result<(pb::Message, StoredItem), ApiError> {
    let not_found = || conversation::item_not_found(&id.to_string());
    let ask = pb::GetMessageRequest {
        conversation_id: path.uuid(),
        message_id: id.message.0,
        ..pb::GetMessageRequest::default()
    };
    let services = &http_caller.services;
    let found = services.get_message(http_caller.request(ask)).await;
    let found = found.map_err(|status| {
        let problem = Problem::of_rpc(&status);
        let is_gone = [
            Reason::MessageNotFound,
            Reason::MessageWithdrawn,
            Reason::MessageErased,
        ];
        if is_gone.into_iter().any(|reason| problem.is(reason)) {
            not_found()
        } else {
            path.refusal(&status)
        }
    })?;
    let message = found.into_inner().message.unwrap_or_default();
    let mut items = stored_items(path.id, &message).into_iter();
    let found = items.find(|stored| stored.id == *id);
    let found = found.ok_or_else(not_found)?;
    Ok((message, found))
}
