//! The messages of a request. Those of the system at its beginning are the system prompt of the
//! call. Each other one is translated to items, and so becomes a message as it is stored.

use anneal_core::{limits::UNSTORED_MESSAGES, message::PART_JOIN};
use anneal_proto::v1::{self as pb, part::Part};
use serde_json::{Value, json};

use crate::{
    http::openai::{
        errors::ApiError,
        fields::{Fields, unsupported_value},
        items::{InputItem, parse_items},
    },
    truncated_text::TruncatedText,
};

const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// The messages of a request.
#[derive(Debug, PartialEq)]
pub(super) struct RequestMessages {
    /// The texts of the system's messages at the beginning. None: there are none.
    pub(super) system_prompt: Option<String>,
    /// The messages after them, at least one. The last one is of the user or of a tool.
    pub(super) messages: Vec<pb::NewMessage>,
    /// How many messages of the request stand before these.
    pub(super) before: usize,
}

impl RequestMessages {
    /// Parses the parameter `messages`.
    pub(super) fn parse(fields: &mut Fields<'_>) -> Result<Self, ApiError> {
        let list = match fields.value("messages") {
            None => return Err(ApiError::missing_parameter("messages")),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(ApiError::invalid_type("messages", "an array", other)),
        };
        if list.len() > UNSTORED_MESSAGES {
            let sentence = format!(
                "Invalid 'messages': array too long. Expected an array with maximum length {UNSTORED_MESSAGES}, but got an array with length {} instead.",
                list.len()
            );
            let code = Some("array_above_max_length");
            return Err(ApiError::invalid("messages", code, sentence));
        }
        let mut messages = Vec::with_capacity(list.len());
        for (index, message) in list.iter().enumerate() {
            messages.push(parse_message(message, &format!("messages[{index}]"))?);
        }
        let is_system = |message: &pb::NewMessage| message.role() == pb::Role::System;
        let before = messages
            .iter()
            .take_while(|message| is_system(message))
            .count();
        let rest = messages.split_off(before);
        match rest.last().map(pb::NewMessage::role) {
            Some(pb::Role::User | pb::Role::Tool) => {}
            Some(_) => {
                let param = format!("messages[{}].role", before + rest.len() - 1);
                let sentence = "the last message must be of the role 'user' or 'tool'.";
                return Err(ApiError::invalid(param, Some("invalid_value"), sentence));
            }
            None => {
                let sentence = "must hold at least one message of the role 'user' or 'tool'.";
                return Err(ApiError::invalid("messages", Some("empty_array"), sentence));
            }
        }
        let texts: Vec<String> = messages.iter().map(text_of).collect();
        Ok(Self {
            system_prompt: (before > 0).then(|| texts.join(PART_JOIN)),
            messages: rest,
            before,
        })
    }
}

/// The texts of a message.
fn text_of(message: &pb::NewMessage) -> String {
    let texts = message.parts.iter().filter_map(|part| match &part.part {
        Some(Part::Text(part)) => Some(part.text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<&str>>().join(PART_JOIN)
}

fn parse_message(message: &Value, path: &str) -> Result<pb::NewMessage, ApiError> {
    let mut fields = Fields::of(message, path)?;
    let Some(role) = fields.one_of("role", &ROLES)? else {
        return Err(ApiError::missing_parameter(fields.param("role")));
    };
    let items = match role {
        "user" => {
            let content = required_content(&mut fields, &["text", "image_url"], "input_text")?;
            vec![json!({"role": role, "content": content})]
        }
        "assistant" => assistant_items(&mut fields)?,
        "tool" => {
            let call_id = fields.required_text("tool_call_id")?;
            let output = required_content(&mut fields, &["text"], "input_text")?;
            vec![json!({"type": "function_call_output", "call_id": call_id, "output": output})]
        }
        "function" => {
            let message = "Messages of the role 'function' are not supported; send the result of a call as a message of the role 'tool'.";
            return Err(ApiError::unsupported_parameter(
                fields.param("role"),
                message,
            ));
        }
        _ => {
            let content = required_content(&mut fields, &["text"], "input_text")?;
            vec![json!({"role": role, "content": content})]
        }
    };
    if fields.value("name").is_some() {
        let message = "Names of participants are not supported: models do not get them. Write the name into the text.";
        return Err(ApiError::unsupported_parameter(
            fields.param("name"),
            message,
        ));
    }
    fields.finish()?;
    let parsed = parse_items(&items, path).map_err(|error| error.with_param(path))?;
    Ok(merge(parsed))
}

/// The items of a message of the assistant: its content, and each of its calls.
fn assistant_items(fields: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    for (name, instead) in [
        ("audio", "Only texts are supported."),
        ("function_call", "Send calls as tool_calls."),
    ] {
        if fields.value(name).is_some() {
            let message = format!("Unsupported parameter: '{name}'. {instead}");
            return Err(ApiError::unsupported_parameter(fields.param(name), message));
        }
    }
    if !fields.list("annotations")?.is_empty() {
        let message = "Annotations of earlier answers are not kept; send an empty list, or none.";
        return Err(ApiError::unsupported_parameter(
            fields.param("annotations"),
            message,
        ));
    }
    let mut content = match content(fields, &["text", "refusal"], "output_text")? {
        Some(Value::Array(parts)) => parts,
        Some(Value::String(text)) if !text.is_empty() => {
            vec![json!({"type": "output_text", "text": text})]
        }
        _ => Vec::new(),
    };
    if let Some(refusal) = fields.text("refusal")? {
        content.push(json!({"type": "refusal", "refusal": refusal}));
    }
    let calls = fields.list("tool_calls")?;
    let path = fields.param("tool_calls");
    let mut items = Vec::with_capacity(calls.len() + 1);
    if !content.is_empty() {
        items.push(json!({"role": "assistant", "content": content}));
    }
    for (index, call) in calls.iter().enumerate() {
        items.push(call_item(call, &format!("{path}[{index}]"))?);
    }
    if items.is_empty() {
        items.push(json!({"role": "assistant", "content": ""}));
    }
    Ok(items)
}

fn call_item(call: &Value, path: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::of(call, path)?;
    let id = fields.required_text("id")?;
    if let Some(kind) = fields.text("type")?
        && kind != "function"
    {
        let kind = TruncatedText::new(kind);
        let message = format!("Calls of the type '{kind}' are not supported: only functions are.");
        return Err(ApiError::unsupported_tool(fields.param("type"), message));
    }
    // A client that has put an answer together from chunks may send their index.
    fields.value("index");
    let path = fields.param("function");
    let Some(function) = fields.value("function") else {
        return Err(ApiError::missing_parameter(path));
    };
    fields.finish()?;
    let mut fields = Fields::of(function, &path)?;
    let (name, arguments) = (
        fields.required_text("name")?,
        fields.required_text("arguments")?,
    );
    fields.finish()?;
    Ok(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}))
}

fn required_content(
    fields: &mut Fields<'_>,
    kinds: &[&'static str],
    text_type: &str,
) -> Result<Value, ApiError> {
    let content = content(fields, kinds, text_type)?;
    content.ok_or_else(|| ApiError::missing_parameter(fields.param("content")))
}

/// The content of an item: a text, or parts of these kinds. None: the message has none.
fn content(
    fields: &mut Fields<'_>,
    kinds: &[&'static str],
    text_type: &str,
) -> Result<Option<Value>, ApiError> {
    let path = fields.param("content");
    match fields.value("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str().into())),
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate();
            let parts = parts
                .map(|(index, part)| item_part(part, &format!("{path}[{index}]"), kinds, text_type))
                .collect::<Result<Vec<Value>, ApiError>>()?;
            Ok(Some(parts.into()))
        }
        Some(other) => Err(ApiError::invalid_type(path, "a string or an array", other)),
    }
}

fn item_part(
    part: &Value,
    path: &str,
    kinds: &[&'static str],
    text_type: &str,
) -> Result<Value, ApiError> {
    let mut fields = Fields::of(part, path)?;
    let kind = fields.required_text("type")?;
    if !kinds.contains(&kind) {
        let param = fields.param("type");
        return Err(if matches!(kind, "input_audio" | "file") {
            let message = format!("Parts of the type '{kind}' are not supported.");
            ApiError::unsupported_parameter(param, message)
        } else {
            unsupported_value(param, kind, kinds)
        });
    }
    let item = match kind {
        "refusal" => json!({"type": kind, "refusal": fields.required_text("refusal")?}),
        "image_url" => image_item(&mut fields)?,
        _ => json!({"type": text_type, "text": fields.required_text("text")?}),
    };
    fields.finish()?;
    Ok(item)
}

fn image_item(fields: &mut Fields<'_>) -> Result<Value, ApiError> {
    let path = fields.param("image_url");
    let Some(image) = fields.value("image_url") else {
        return Err(ApiError::missing_parameter(path));
    };
    let mut image = Fields::of(image, &path)?;
    let url = image.required_text("url")?;
    let detail = image.one_of("detail", &["auto", "low", "high", "original"])?;
    image.finish()?;
    Ok(json!({"type": "input_image", "image_url": url, "detail": detail}))
}

/// One message of the messages that the items of one message have become. Its labels are about its
/// first item.
fn merge(items: Vec<InputItem>) -> pb::NewMessage {
    let messages = items.into_iter().filter_map(|item| match item {
        InputItem::Message(message) => Some(message),
        InputItem::Compaction(_) | InputItem::Reference(_) => None,
    });
    let merged = messages.reduce(|mut merged, next| {
        merged.parts.extend(next.parts);
        merged
    });
    merged.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(messages: &Value) -> Result<RequestMessages, ApiError> {
        let body = json!({ "messages": messages });
        RequestMessages::parse(&mut Fields::of(&body, "").expect("is an object"))
    }

    #[test]
    fn messages_of_every_role_become_messages_and_the_first_of_the_system_become_the_prompt() {
        use pb::Role::{Assistant, System, Tool, User};
        let request = parsed(&json!([
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}},
            ]},
            {"role": "assistant", "content": "I look.", "refusal": null, "annotations": [], "audio": null,
                "function_call": null, "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ]},
            {"role": "tool", "tool_call_id": "c", "content": "Seen."},
            {"role": "system", "content": "Answer now."},
            {"role": "user", "content": "And?"},
        ]));
        let request = request.expect("is valid");
        assert_eq!(
            (request.system_prompt.as_deref(), request.before),
            (Some("Be brief.\n\nBe kind."), 2)
        );
        let roles = request.messages.iter().map(pb::NewMessage::role);
        let roles: Vec<pb::Role> = roles.collect();
        assert_eq!(roles, [User, Assistant, Tool, System, User]);
        let part = |message: usize, part: usize| request.messages[message].parts[part].part.clone();
        assert!(matches!(part(0, 1), Some(Part::Media(media)) if media.media_type == "image/png"));
        assert!(matches!(part(1, 0), Some(Part::Text(part)) if part.text == "I look."));
        assert!(matches!(part(1, 1), Some(Part::ToolUse(call)) if call.id == "c"));
        assert!(matches!(part(2, 0), Some(Part::ToolResult(result)) if result.text == "Seen."));
    }

    #[test]
    fn a_message_of_the_assistant_may_have_calls_alone_a_refusal_or_nothing() {
        let call = json!({"id": "c", "type": "function", "index": 0,
            "function": {"name": "look", "arguments": ""}});
        let user = json!({"role": "user", "content": "a"});
        for (message, parts) in [
            (
                json!({"role": "assistant", "content": null, "tool_calls": [call, call]}),
                2,
            ),
            (
                json!({"role": "assistant", "content": "", "tool_calls": [call]}),
                1,
            ),
            (
                json!({"role": "assistant", "content": [], "refusal": "No."}),
                1,
            ),
            (json!({"role": "assistant"}), 1),
        ] {
            let request = parsed(&json!([message, user])).expect("is valid");
            assert_eq!(request.messages[0].parts.len(), parts, "{message}");
            assert_eq!((request.system_prompt, request.before), (None, 0));
        }
    }

    #[test]
    fn messages_that_are_not_understood_are_refused_by_name() {
        let user = json!({"role": "user", "content": "a"});
        for (messages, param, code) in [
            (Value::Null, "messages", "missing_required_parameter"),
            (json!("a"), "messages", "invalid_type"),
            (json!([]), "messages", "empty_array"),
            (
                json!([{"role": "system", "content": "a"}]),
                "messages",
                "empty_array",
            ),
            (json!([1]), "messages[0]", "invalid_type"),
            (
                json!([{"content": "a"}]),
                "messages[0].role",
                "missing_required_parameter",
            ),
            (
                json!([{"role": "critic", "content": "a"}]),
                "messages[0].role",
                "invalid_value",
            ),
            (
                json!([{"role": "function", "name": "f", "content": "a"}]),
                "messages[0].role",
                "unsupported_parameter",
            ),
            (
                json!([user, {"role": "assistant", "content": "a"}]),
                "messages[1].role",
                "invalid_value",
            ),
            (
                json!([{"role": "user"}]),
                "messages[0].content",
                "missing_required_parameter",
            ),
            (
                json!([{"role": "user", "content": 1}]),
                "messages[0].content",
                "invalid_type",
            ),
            (
                json!([{"role": "user", "content": []}]),
                "messages[0]",
                "empty_array",
            ),
            (
                json!([{"role": "user", "content": "a", "name": "bob"}]),
                "messages[0].name",
                "unsupported_parameter",
            ),
            (
                json!([{"role": "user", "content": "a", "color": 1}]),
                "messages[0].color",
                "unknown_parameter",
            ),
            (
                json!([{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]),
                "messages[0].content[0].type",
                "unsupported_parameter",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "ftp://a"}}]}]),
                "messages[0]",
                "invalid_value",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": "a"}]}]),
                "messages[0].content[0].image_url",
                "invalid_type",
            ),
            (
                json!([{"role": "tool", "content": "a"}]),
                "messages[0].tool_call_id",
                "missing_required_parameter",
            ),
            (
                json!([{"role": "assistant", "audio": {"id": "a"}}, user]),
                "messages[0].audio",
                "unsupported_parameter",
            ),
            (
                json!([{"role": "assistant", "annotations": [{}]}, user]),
                "messages[0].annotations",
                "unsupported_parameter",
            ),
            (
                json!([{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}, user]),
                "messages[0].tool_calls[0].type",
                "unsupported_tool",
            ),
            (
                json!([{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}, user]),
                "messages[0].tool_calls[0].function.arguments",
                "missing_required_parameter",
            ),
        ] {
            let refused = parsed(&messages).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{messages}"
            );
        }
    }
}
