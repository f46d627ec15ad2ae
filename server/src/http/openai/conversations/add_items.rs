//! POST /v1/conversations/{id}/items.

use anneal_proto::v1::{self as pb, message_service_server::MessageService as _};
use axum::{http::HeaderMap, response::Response};
use serde_json::Value;

use super::conversation::{self, ConversationPath};
use crate::{
    http::{
        caller::{Authorized, EndpointRpcs},
        extractors::{PathParams, QueryParams},
        json,
        openai::{
            body_values,
            errors::ApiError,
            fields::Fields,
            items::InputItem,
            page_query,
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
    let parse_body = |body: Value| parse(&body);
    let parsed = body_values::run_on(&http_caller, Value::Object(body), parse_body).await?;
    let (items, ignored) = parsed?;
    let messages = conversation::open_items(&http_caller, items).await?;
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
    let response = json::response(&page_query::show_list(&items, false));
    Ok(request::with_ignored(response, &ignored))
}

/// The items of a body, at least one, and the parameters that have no effect.
fn parse(body: &Value) -> Result<(Vec<InputItem>, Vec<String>), ApiError> {
    let mut fields = Fields::of_body(body)?;
    let items = conversation::parse_items(&mut fields)?;
    if !items.is_empty() {
        return Ok((items, fields.ignored()));
    }
    Err(if fields.value("items").is_none() {
        ApiError::missing_parameter("items")
    } else {
        let message = "Invalid 'items': empty array. Expected an array with at least one item.";
        ApiError::invalid("items", Some("empty_array"), message)
    })
}
