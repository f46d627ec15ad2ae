//! DELETE /v1/conversations/{id}/items/{item}.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::response::Response;
use serde_json::json;
use tonic::Status;

use super::{conversation::ConversationPath, get_item};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs, HttpCaller},
        extractors::{NoParams, PathParams, QueryParams},
        json,
        openai::{
            errors::ApiError,
            items::{Removal, plan_removal},
        },
        problem::Problem,
    },
    reason::Reason,
    verbs::Rpc,
};

/// How often the message is read again, if another request has edited it meanwhile.
const ATTEMPTS: usize = 4;

/// The RPCs of this endpoint.
pub(super) struct DeleteItem;

impl EndpointRpcs for DeleteItem {
    const RPCS: &'static [&'static Rpc] = &[
        Rpc::named("get_message"),
        Rpc::named("withdraw_messages"),
        Rpc::named("edit_message"),
        Rpc::named("get_conversation"),
    ];
}

/// Deletes one item of a conversation: contexts and new summaries no longer contain it, and
/// checkpoints that do no longer hold. Other items stay, also the other half of a call and its
/// output.
pub(super) async fn delete_item(
    Authorized(http_caller, _): Authorized<DeleteItem>,
    PathParams((id, item)): PathParams<(String, String)>,
    _: QueryParams<NoParams>,
) -> Result<Response, ApiError> {
    let path = ConversationPath::parse(id)?;
    let id = path.parse_item(&http_caller, &item).await?;
    let mut attempts_left = ATTEMPTS;
    loop {
        attempts_left -= 1;
        let (message, found) = get_item::find(&http_caller, &path, &id).await?;
        let removal = plan_removal(&message, &found);
        let Err(status) = remove(&http_caller, &path, &message, removal).await else {
            break;
        };
        let has_another_version = Problem::of_rpc(&status).is(Reason::VersionMismatch);
        if attempts_left == 0 || !has_another_version {
            return Err(path.refusal(&status));
        }
    }
    Ok(json::response(&json!({
        "id": item,
        "object": "conversation.item.deleted",
        "deleted": true,
    })))
}

async fn remove(
    http_caller: &HttpCaller,
    path: &ConversationPath,
    message: &pb::Message,
    removal: Removal,
) -> Result<(), Status> {
    let services = &http_caller.services;
    match removal {
        Removal::Withdraw => {
            let ask = pb::WithdrawMessagesRequest {
                conversation_id: path.uuid(),
                message_ids: vec![message.message_id],
                keep_tool_pairs_apart: true,
                ..pb::WithdrawMessagesRequest::default()
            };
            services.withdraw_messages(http_caller.request(ask)).await?;
        }
        Removal::Edit(new) => {
            let ask = pb::EditMessageRequest {
                conversation_id: path.uuid(),
                message_id: message.message_id,
                message: Some(new),
                expected_version: Some(message.version),
                keep_tool_pairs_apart: true,
                ..pb::EditMessageRequest::default()
            };
            services.edit_message(http_caller.request(ask)).await?;
        }
    }
    Ok(())
}
