//! The input of a response: its items as messages, and what of them the turn answers.

use std::{collections::BTreeSet, sync::Arc};

use anneal_core::{
    caller::ConversationId,
    limits::{REQUEST_BYTES, UNSTORED_MESSAGES},
};
use anneal_proto::v1::{self as pb, message_service_server::MessageService as _, part::Part};
use prost::Message as _;
use serde_json::Value;

use crate::http::{
    caller::HttpCaller,
    openai::{
        body_values,
        errors::ApiError,
        ids::{ItemId, conversation_id},
        items::{self, InputItem},
        sealing::CompactionOpener,
    },
};

/// Most items of the input that only name an item, and most bytes of what they name.
const REFERENCES: usize = 100;
const REFERENCED_BYTES: usize = REQUEST_BYTES;
/// Most bytes of a stored conversation that is sent without being stored: four requests' worth.
const HISTORY_BYTES: usize = 4 * REQUEST_BYTES;
/// Most messages that one turn answers.
const QUESTION_MESSAGES: usize = 100;
/// Messages of a page of a conversation, and most pages in which a call is looked for.
const PAGE_MESSAGES: i32 = 50;
const PAGES: usize = 10;

/// The messages of the input, in order. Items that are only named are read from the store.
pub(in crate::http::openai) async fn read(
    caller: &HttpCaller,
    input: &Arc<Value>,
) -> Result<Vec<pb::NewMessage>, ApiError> {
    if input
        .as_array()
        .is_some_and(|items| items.len() > UNSTORED_MESSAGES)
    {
        return Err(ApiError::invalid(
            "input",
            Some("array_above_max_length"),
            format!("Invalid 'input': expected at most {UNSTORED_MESSAGES} items."),
        ));
    }
    let parse = |input: Arc<Value>| items::parse_input(&input, "input");
    let items = body_values::run_on(caller, Arc::clone(input), parse).await??;
    let mut opener = CompactionOpener::new(caller);
    let (mut messages, mut references, mut loaded) = (Vec::new(), 0, 0);
    for (index, item) in items.into_iter().enumerate() {
        let param = format!("input[{index}]");
        match item {
            InputItem::Message(message) => messages.push(message),
            InputItem::Reference(id) => {
                references += 1;
                if references > REFERENCES {
                    let reason = format!("At most {REFERENCES} items can be named by their ids.");
                    return Err(ApiError::invalid(param, Some("invalid_value"), reason));
                }
                let message = load_item(&mut opener, caller, &param, &id).await?;
                loaded += message.encoded_len();
                if loaded > REFERENCED_BYTES {
                    let reason = format!(
                        "The items that are named by their ids have more than {REFERENCED_BYTES} \
                         bytes."
                    );
                    return Err(ApiError::invalid(param, Some("invalid_value"), reason));
                }
                messages.push(message);
            }
            InputItem::Compaction(encrypted) => {
                messages.push(opener.open_as_message(&encrypted, &param).await?);
            }
        }
    }
    Ok(messages)
}

/// The message of an item that is stored.
async fn load_item(
    opener: &mut CompactionOpener<'_>,
    caller: &HttpCaller,
    param: &str,
    id: &str,
) -> Result<pb::NewMessage, ApiError> {
    let shown: String = id.chars().take(128).collect();
    let not_found = || ApiError::not_found(format!("Item with id '{shown}' not found."));
    let item = ItemId::parse(id).ok_or_else(not_found)?;
    let ask = pb::GetMessageRequest {
        conversation_id: item.conversation.to_string(),
        message_id: item.message.0,
        ..pb::GetMessageRequest::default()
    };
    let found = caller.services.get_message(caller.request(ask)).await;
    let found = found.map_err(|status| match status.code() {
        tonic::Code::NotFound | tonic::Code::FailedPrecondition => not_found(),
        _ => status.into(),
    })?;
    let (_, found, _reservation) = found.into_parts();
    let message = found.message.unwrap_or_default();
    let items = items::items_of(item.conversation, &message);
    let item = items.into_iter().find(|item| item["id"] == id);
    let parsed = items::parse_items(&[item.ok_or_else(not_found)?], param)?;
    match parsed.into_iter().next() {
        Some(InputItem::Message(message)) => Ok(message),
        Some(InputItem::Compaction(encrypted)) => opener.open_as_message(&encrypted, param).await,
        Some(InputItem::Reference(_)) | None => Err(not_found()),
    }
}

/// Refuses an input that does not end with a message of the user or of a tool.
pub(super) fn check_last(messages: &[pb::NewMessage]) -> Result<(), ApiError> {
    let (code, message) = match messages.last().map(pb::NewMessage::role) {
        Some(pb::Role::User | pb::Role::Tool) => return Ok(()),
        Some(_) => (
            "invalid_value",
            "The last item of 'input' must be a message of the user or the output of a function \
             call: the model answers it.",
        ),
        None => (
            "empty_array",
            "Invalid 'input': empty array. Expected an array with at least one item.",
        ),
    };
    Err(ApiError::invalid("input", Some(code), message))
}

/// Splits the input into what is stored before the turn, and what the turn answers: the last
/// messages of the user, of tools and of the system, which end with one of the user or of a tool.
pub(super) fn split(
    mut messages: Vec<pb::NewMessage>,
) -> Result<(Vec<pb::NewMessage>, Vec<pb::NewMessage>), ApiError> {
    check_last(&messages)?;
    let answered = messages
        .iter()
        .rev()
        .take(QUESTION_MESSAGES)
        .take_while(|message| message.role() != pb::Role::Assistant)
        .count();
    let question = messages.split_off(messages.len() - answered);
    Ok((messages, question))
}

/// The ids of the calls whose results are in these messages, and that are not in them before.
pub(super) fn find_missing_calls(messages: &[pb::NewMessage]) -> BTreeSet<String> {
    let (mut calls, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for part in messages.iter().flat_map(|message| &message.parts) {
        match &part.part {
            Some(Part::ToolUse(call)) => {
                calls.insert(call.id.as_str());
            }
            Some(Part::ToolResult(result)) if !calls.contains(result.tool_use_id.as_str()) => {
                missing.insert(result.tool_use_id.clone());
            }
            _ => {}
        }
    }
    missing
}

/// Refuses results whose calls are not in the input before them. They may be among the newest
/// messages of the conversation up to `last`, if `place` names them.
pub(super) async fn check_results(
    caller: &HttpCaller,
    place: Option<(ConversationId, i64)>,
    messages: &[pb::NewMessage],
) -> Result<(), ApiError> {
    let mut missing = find_missing_calls(messages);
    let Some((conversation, last)) = place else {
        return refuse_results(&missing);
    };
    let mut page_token = String::new();
    for _ in 0..PAGES {
        if missing.is_empty() {
            return Ok(());
        }
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.to_string(),
            page_size: PAGE_MESSAGES,
            page_token,
            newest_first: true,
            ..pb::ListMessagesRequest::default()
        };
        let (listed, _reservation) = list(caller, conversation, ask).await?;
        let earlier = listed
            .messages
            .iter()
            .filter(|message| message.message_id <= last);
        for part in earlier.flat_map(|message| &message.parts) {
            if let Some(Part::ToolUse(call)) = &part.part {
                missing.remove(&call.id);
            }
        }
        page_token = listed.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    refuse_results(&missing)
}

/// Refuses results without their calls.
pub(super) fn refuse_results(missing: &BTreeSet<String>) -> Result<(), ApiError> {
    match missing.first() {
        None => Ok(()),
        Some(id) => Err(ApiError::invalid(
            "input",
            None,
            format!("No tool call found for function call output with call_id {id}."),
        )),
    }
}

/// The messages of a conversation up to `last`, as a request has them. Fails if they are too many
/// or too large to be sent without being stored.
pub(super) async fn load_messages(
    caller: &HttpCaller,
    conversation: ConversationId,
    last: i64,
) -> Result<Vec<pb::NewMessage>, ApiError> {
    let (mut messages, mut bytes) = (Vec::new(), 0);
    let mut page_token = String::new();
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.to_string(),
            page_size: 500,
            page_token,
            ..pb::ListMessagesRequest::default()
        };
        let (listed, _reservation) = list(caller, conversation, ask).await?;
        let is_over = listed
            .messages
            .last()
            .is_none_or(|message| message.message_id >= last);
        let standing = listed
            .messages
            .into_iter()
            .filter(|message| message.message_id <= last);
        let first_new = messages.len();
        messages.extend(standing.map(pb::NewMessage::from));
        bytes += messages[first_new..]
            .iter()
            .map(pb::NewMessage::encoded_len)
            .sum::<usize>();
        if messages.len() > UNSTORED_MESSAGES || bytes > HISTORY_BYTES {
            return Err(ApiError::invalid(
                "previous_response_id",
                Some("context_length_exceeded"),
                "What came before is too long to be sent without being stored.",
            ));
        }
        page_token = listed.next_page_token;
        if is_over || page_token.is_empty() {
            return Ok(messages);
        }
    }
}

/// Lists messages. The second value holds the memory of the content.
pub(super) async fn list(
    caller: &HttpCaller,
    conversation: ConversationId,
    ask: pb::ListMessagesRequest,
) -> Result<(pb::ListMessagesResponse, http::Extensions), ApiError> {
    let listed = caller.services.list_messages(caller.request(ask)).await;
    let listed = listed.map_err(|status| match status.code() {
        tonic::Code::NotFound => no_conversation(conversation),
        _ => status.into(),
    })?;
    let (_, listed, reservation) = listed.into_parts();
    Ok((listed, reservation))
}

/// The refusal of a conversation that does not exist.
pub(super) fn no_conversation(id: ConversationId) -> ApiError {
    let id = conversation_id(id);
    ApiError::not_found(format!("Conversation with id '{id}' not found."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: pb::Role, part: Part) -> pb::NewMessage {
        pb::NewMessage {
            role: role.into(),
            parts: vec![pb::Part { part: Some(part) }],
            ..pb::NewMessage::default()
        }
    }

    fn text(role: pb::Role) -> pb::NewMessage {
        message(role, Part::Text(pb::TextPart { text: "a".into() }))
    }

    fn call(id: &str) -> pb::NewMessage {
        let call = pb::ToolUsePart {
            id: id.into(),
            ..pb::ToolUsePart::default()
        };
        message(pb::Role::Assistant, Part::ToolUse(call))
    }

    fn result(id: &str) -> pb::NewMessage {
        let result = pb::ToolResultPart {
            tool_use_id: id.into(),
            ..pb::ToolResultPart::default()
        };
        message(pb::Role::Tool, Part::ToolResult(result))
    }

    #[test]
    fn the_turn_answers_what_follows_the_last_message_of_the_model() {
        use pb::Role::{Assistant, System, Tool, User};
        let lengths = |roles: &[pb::Role]| {
            let split = split(roles.iter().map(|role| text(*role)).collect());
            split
                .ok()
                .map(|(earlier, question)| (earlier.len(), question.len()))
        };
        assert_eq!(lengths(&[User]), Some((0, 1)));
        assert_eq!(lengths(&[User, Assistant, System, User]), Some((2, 2)));
        assert_eq!(lengths(&[Assistant, Tool]), Some((1, 1)));
        assert_eq!(lengths(&[User; 250]), Some((150, 100)));
        for refused in [&[][..], &[User, Assistant], &[User, System]] {
            assert_eq!(lengths(refused), None, "{refused:?}");
        }
    }

    #[test]
    fn a_result_needs_its_call_before_it() {
        let missing = |messages: &[pb::NewMessage]| find_missing_calls(messages);
        assert!(missing(&[call("a"), result("a")]).is_empty());
        assert_eq!(missing(&[result("a"), call("a")]).len(), 1);
        let error = refuse_results(&missing(&[call("a"), result("b")]));
        let error = error.expect_err("is refused");
        assert_eq!(
            (error.status(), error.object()["param"].as_str()),
            (400, Some("input"))
        );
    }
}
