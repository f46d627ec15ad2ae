//! POST /v1/conversations/{id}/items.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::{http::HeaderMap, response::Response};

use super::conversation::{self, ConversationPath};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs},
        extractors::{PathParams, QueryParams},
        json,
        openai::{
            errors::ApiError,
            items::Fields,
            request::{self, ObjectBody},
        },
    },
    verbs::Rpc,
};

/// The RPC of this endpoint.
pub(super) struct AddItems;

impl EndpointRpcs for AddItems {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("append_messages")];
}

/// Adds items at the end of a conversation: all of them, or none.
pub(super) async fn add_items(
    Authorized(http_caller, _): Authorized<AddItems>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<Vec<(String, String)>>,
    headers: HeaderMap,
    ObjectBody(body): ObjectBody,
) -> Result<Response, ApiError> {
    request::check_only_included(&query)?;
    let path = ConversationPath::parse(id)?;
    let request_id = request::idempotency_key(&headers)?;
    let mut fields = Fields::of_object(&body, "");
    let items = conversation::parse_items(&mut fields)?;
    let messages = conversation::open_items(&http_caller, items).await?;
    if messages.is_empty() {
        let message = "must hold at least one item.";
        return Err(if fields.value("items").is_none() {
            ApiError::missing_parameter("items")
        } else {
            ApiError::invalid("items", Some("empty_array"), message)
        });
    }
    let ask = pb::AppendMessagesRequest {
        conversation_id: path.uuid(),
        request_id,
        messages: messages.clone(),
        expected_last_message_id: None,
    };
    let appended = http_caller
        .services
        .append_messages(http_caller.request(ask))
        .await
        .map_err(|status| path.refusal(&status))?;
    let items = conversation::added_items(path.id, messages, appended.get_ref());
    let response = json::response(&conversation::show_list(&items, false));
    Ok(request::with_ignored(response, &fields.ignored()))
}
