//! GET /v1/responses/{id}/input_items.

use anneal_proto::v1 as pb;
use axum::{extract::State, response::Response};
use serde_json::Value;

use super::{input::list, outcome::Status, record::Record};
use crate::{
    http::{
        HttpState,
        caller::{Authorized, EndpointRpcs},
        extractors::{PathParams, QueryParams},
        json,
        openai::{
            errors::ApiError,
            items,
            page_query::{Order, PageAsk, show_list},
        },
    },
    verbs::Rpc,
};

/// Messages of a page of the conversation.
const PAGE_MESSAGES: i32 = 500;

/// The RPCs of this endpoint.
pub(super) struct ListInputItems;

impl EndpointRpcs for ListInputItems {
    const RPCS: &'static [&'static Rpc] = &[Rpc::named("list_messages")];
}

/// The input of one response, without that of the responses before it.
pub(super) async fn list_input_items(
    State(state): State<HttpState>,
    Authorized(http_caller, _): Authorized<ListInputItems>,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let ask = PageAsk::parse(&query)?;
    let mut record = Record::get(&state, &http_caller, &id).await?;
    let status = record.settle().await?.status();
    let items = load_items(&record, status).await?;
    Ok(json::response(&page(items, &ask)?))
}

/// The items of the input, in order. Also those that were withdrawn because the response keeps nothing.
async fn load_items(record: &Record, status: Status) -> Result<Vec<Value>, ApiError> {
    let row = &record.row;
    let Some(last) = row.question_last_id else {
        return Ok(Vec::new());
    };
    let mut items = Vec::new();
    let mut page_token = String::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: row.conversation_id.to_string(),
            page_size: PAGE_MESSAGES,
            page_token,
            after_message_id: row.after_message_id.0,
            include_withdrawn: matches!(status, Status::Failed | Status::Cancelled),
            ..pb::ListMessagesRequest::default()
        };
        let (listed, _reservation) = list(&record.caller, row.conversation_id, ask).await?;
        let is_over = listed
            .messages
            .last()
            .is_none_or(|message| message.message_id >= last.0);
        let own = listed
            .messages
            .iter()
            .filter(|message| message.message_id <= last.0);
        items.extend(own.flat_map(|message| items::items_of(row.conversation_id, message)));
        page_token = listed.next_page_token;
        if is_over || page_token.is_empty() {
            break;
        }
    }
    Ok(items)
}

/// One page of the items.
fn page(mut items: Vec<Value>, ask: &PageAsk) -> Result<Value, ApiError> {
    if ask.order == Order::NewestFirst {
        items.reverse();
    }
    if let Some(after) = &ask.after {
        let place = items.iter().position(|item| item["id"] == **after);
        let place = place.ok_or_else(|| {
            let shown: String = after.chars().take(128).collect();
            ApiError::invalid(
                "after",
                Some("invalid_value"),
                format!("Item with id '{shown}' not found in the input."),
            )
        })?;
        items.drain(..=place);
    }
    let has_more = items.len() > ask.limit;
    items.truncate(ask.limit);
    Ok(show_list(&items, has_more))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(page: &Value) -> Vec<&str> {
        let data = page["data"].as_array().into_iter().flatten();
        data.filter_map(|item| item["id"].as_str()).collect()
    }

    #[test]
    fn pages_follow_one_another_in_both_orders() {
        let items: Vec<Value> = ["a", "b", "c"].map(|id| json!({"id": id})).into();
        let mut ask = PageAsk {
            limit: 2,
            order: Order::NewestFirst,
            after: None,
        };
        let first = page(items.clone(), &ask).expect("is a page");
        assert_eq!(
            (ids(&first), &first["has_more"]),
            (vec!["c", "b"], &json!(true))
        );
        ask.after = Some("b".into());
        let second = page(items.clone(), &ask).expect("is a page");
        assert_eq!(
            (ids(&second), &second["has_more"]),
            (vec!["a"], &json!(false))
        );
        ask.order = Order::OldestFirst;
        assert_eq!(ids(&page(items.clone(), &ask).expect("is a page")), ["c"]);
        ask.after = Some("x".into());
        assert!(page(items, &ask).is_err());
    }
}
