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
    if let Some(checkpoint) = find_checkpoint(&http_caller, &path, &item).await? {
        return Ok(json::response(&checkpoint.value));
    }
    let (_, found) = find(&http_caller, &path, &item).await?;
    Ok(json::response(&found.value))
}

/// The checkpoint with this id. None: it is not the id of a checkpoint that holds.
async fn find_checkpoint(
    http_caller: &HttpCaller,
    path: &ConversationPath,
    item: &str,
) -> Result<Option<StoredItem>, ApiError> {
    let id = ItemId::parse(item).filter(|id| id.conversation == path.id);
    match id.filter(|id| id.index == CHECKPOINT_INDEX) {
        None => Ok(None),
        Some(id) => {
            let refuse = |status: &tonic::Status| path.refusal(status);
            compaction::find_checkpoint(http_caller, &id, refuse).await
        }
    }
}

/// The item with this id, and its message. One that was deleted is not found.
pub(super) async fn find(
    http_caller: &HttpCaller,
    path: &ConversationPath,
    item: &str,
) -> Result<(pb::Message, StoredItem), ApiError> {
    let Some(message_id) = conversation::message_of_item(path.id, item) else {
        return Err(path.item_refusal(http_caller, item).await);
    };
    let ask = pb::GetMessageRequest {
        conversation_id: path.uuid(),
        message_id: message_id.0,
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
            conversation::item_not_found(item)
        } else {
            path.refusal(&status)
        }
    })?;
    let message = found.into_inner().message.unwrap_or_default();
    let mut items = stored_items(path.id, &message).into_iter();
    let found = items.find(|stored| stored.id.to_string() == item);
    let found = found.ok_or_else(|| conversation::item_not_found(item))?;
    Ok((message, found))
}
