//! A conversation as it is shown, and what its endpoints share.

use anneal_core::caller::ConversationId;
use anneal_proto::{
    convert::{message, parse, time},
    v1::{self as pb, conversation_service_server::ConversationService as _},
};
use serde_json::{Value, json};
use tonic::Status;

use crate::{
    http::{
        caller::HttpCaller,
        json,
        openai::{
            errors::{self, ApiError},
            fields::Fields,
            ids::{self, ItemId},
            items::{self, InputItem, items_of},
            sealing::CompactionOpener,
        },
        problem::Problem,
    },
    reason::Reason,
    truncated_text::TruncatedText,
};

/// Items that one request adds.
const ITEMS: usize = 20;

/// The id of a conversation in a path.
#[derive(Debug, Clone)]
pub(super) struct ConversationPath {
    pub(super) id: ConversationId,
    /// The id as the path has it.
    text: String,
}

impl ConversationPath {
    /// Parses the id. A text that is none is not found.
    pub(super) fn parse(text: String) -> Result<Self, ApiError> {
        match ids::parse_conversation_id(&text) {
            Some(id) => Ok(Self { id, text }),
            None => Err(not_found(&text)),
        }
    }

    /// The id as RPCs take it.
    pub(super) fn uuid(&self) -> String {
        self.id.to_string()
    }

    /// The error of an RPC about this conversation.
    pub(super) fn refusal(&self, status: &Status) -> ApiError {
        let problem = Problem::of_rpc(status);
        if problem.is(Reason::ConversationNotFound) {
            not_found(&self.text)
        } else {
            ApiError::of_problem(&problem, param_name)
        }
    }

    /// Parses the id of an item. Fails if it is none of this conversation.
    pub(super) async fn parse_item(
        &self,
        http_caller: &HttpCaller,
        item: &str,
    ) -> Result<ItemId, ApiError> {
        match ItemId::parse(item).filter(|id| id.conversation == self.id) {
            Some(id) => Ok(id),
            None => Err(self.item_refusal(http_caller, item).await),
        }
    }

    /// The error for an item that this conversation does not have, if there is the conversation.
    async fn item_refusal(&self, http_caller: &HttpCaller, item: &str) -> ApiError {
        let ask = pb::GetConversationRequest {
            conversation_id: self.uuid(),
        };
        let services = &http_caller.services;
        match services.get_conversation(http_caller.request(ask)).await {
            Ok(_) => item_not_found(item),
            Err(status) => self.refusal(&status),
        }
    }
}

fn not_found(id: &str) -> ApiError {
    let id = TruncatedText::new(id);
    ApiError::not_found(format!("Conversation with id '{id}' not found."))
}

/// The error for an item that the conversation does not have.
pub(super) fn item_not_found(id: &str) -> ApiError {
    let id = TruncatedText::new(id);
    ApiError::not_found(format!("Item with id '{id}' not found in conversation."))
}

/// The name that a field of an RPC has in these requests: each message is an item.
pub(super) fn param_name(field: &str) -> String {
    let Some(rest) = field.strip_prefix("messages") else {
        return errors::param_name(field);
    };
    let index = rest.split_once(']').map(|(index, _)| index);
    index.map_or_else(|| "items".to_owned(), |index| format!("items{index}]"))
}

/// Parses the items of a body. Each message is checked as the RPC checks it, before anything is
/// stored.
pub(super) fn parse_items(fields: &mut Fields<'_>) -> Result<Vec<InputItem>, ApiError> {
    let list = fields.short_list("items", ITEMS)?.unwrap_or_default();
    let items = items::parse_items(list, "items")?;
    for (index, item) in items.iter().enumerate() {
        match item {
            InputItem::Message(message) => {
                let checked = message::parse(&format!("messages[{index}]"), message.clone());
                checked
                    .map_err(|error| ApiError::of_problem(&Problem::of_field(error), param_name))?;
            }
            InputItem::Compaction(_) => {}
            InputItem::Reference(_) => {
                return Err(ApiError::unsupported_parameter(
                    format!("items[{index}].type"),
                    "A reference cannot be added to a conversation; send the item itself.",
                ));
            }
        }
    }
    Ok(items)
}

/// The messages that these items become.
pub(super) async fn open_items(
    http_caller: &HttpCaller,
    items: Vec<InputItem>,
) -> Result<Vec<pb::NewMessage>, ApiError> {
    let mut messages = Vec::with_capacity(items.len());
    let mut opener = CompactionOpener::new(http_caller);
    for (index, item) in items.into_iter().enumerate() {
        match item {
            InputItem::Message(message) => messages.push(message),
            InputItem::Compaction(encrypted) => {
                let param = format!("items[{index}]");
                messages.push(opener.open_as_message(&encrypted, &param).await?);
            }
            // `parse_items` has refused it.
            InputItem::Reference(_) => {}
        }
    }
    Ok(messages)
}

/// The items of these messages, which were just appended. Messages that were not stored have none.
pub(super) fn added_items(
    conversation: ConversationId,
    messages: Vec<pb::NewMessage>,
    appended: &pb::AppendMessagesResponse,
) -> Vec<Value> {
    let messages = messages.into_iter().enumerate();
    let stored = messages.filter(|(index, _)| {
        let index = i32::try_from(*index).unwrap_or(i32::MAX);
        !appended.skipped.contains(&index)
    });
    let items = stored
        .zip(&appended.messages)
        .flat_map(|((_, message), place)| {
            let stored = pb::Message {
                message_id: place.message_id,
                role: message.role,
                parts: message.parts,
                metadata: message.metadata,
                ..pb::Message::default()
            };
            items_of(conversation, &stored)
        });
    items.collect()
}

/// A conversation as an answer.
pub(super) fn response(
    conversation: &pb::Conversation,
) -> Result<axum::response::Response, ApiError> {
    let id = parse::conversation_id(&conversation.conversation_id)?;
    let created = conversation.created_time.as_ref();
    let created_ms = created.map_or(0, |created| time::millis(*created));
    Ok(json::response(&json!({
        "id": ids::conversation_id(id),
        "object": "conversation",
        "created_at": created_ms / 1_000,
        "metadata": conversation.metadata,
    })))
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_field_of_a_message_is_its_item() {
        assert_eq!(param_name("messages[3].parts[0].text"), "items[3]");
        assert_eq!(param_name("messages"), "items");
        assert_eq!(param_name("request_id"), "Idempotency-Key");
        assert_eq!(param_name("metadata"), "metadata");
    }

    #[test]
    fn items_beyond_the_limit_and_items_that_no_message_can_hold_are_refused() {
        let user = json!({"role": "user", "content": "a"});
        let parsed = |items: Value| {
            let body = json!({"items": items});
            let mut fields = Fields::of(&body, "").expect("is an object");
            parse_items(&mut fields)
        };
        assert_eq!(
            parsed(json!(vec![user.clone(); 20])).map(|list| list.len()),
            Ok(20)
        );
        assert_eq!(parsed(Value::Null), Ok(Vec::new()));
        let compaction = json!([{"type": "compaction", "encrypted_content": "x"}]);
        assert_eq!(parsed(compaction).map(|list| list.len()), Ok(1));
        let long_name = "n".repeat(200);
        for (items, param, code) in [
            (
                json!(vec![user.clone(); 21]),
                "items",
                "array_above_max_length",
            ),
            (json!("a"), "items", "invalid_type"),
            (
                json!([{"type": "item_reference", "id": "msg_1"}]),
                "items[0].type",
                "unsupported_parameter",
            ),
            (
                json!([user, {"type": "function_call", "call_id": "c", "name": long_name, "arguments": ""}]),
                "items[1]",
                "limit_exceeded",
            ),
        ] {
            let refused = parsed(items.clone()).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{items}"
            );
        }
    }

    #[test]
    fn messages_that_were_not_stored_have_no_items() {
        let messages = vec![
            text_message(pb::Role::User, "a"),
            text_message(pb::Role::User, "b"),
        ];
        let appended = pb::AppendMessagesResponse {
            messages: vec![pb::AppendedMessage {
                message_id: 5,
                ..pb::AppendedMessage::default()
            }],
            skipped: vec![0],
            ..pb::AppendMessagesResponse::default()
        };
        let items = added_items(ConversationId(Uuid::nil()), messages, &appended);
        assert_eq!(items.len(), 1);
        assert_eq!(items[0]["content"][0]["text"], "b");
    }
}
