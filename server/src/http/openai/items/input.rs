//! Items of a request become messages, one for each item. The ids that items come with are read and
//! not used: a stored item has an id of this server.

use anneal_proto::{
    convert::message::text_message,
    v1::{self as pb, part::Part},
};
use serde_json::Value;

use super::{
    content::{self, Author},
    labels::{self, Labels, PartNotes, Piece},
    reasoning,
};
use crate::http::openai::{
    errors::ApiError,
    fields::{Fields, unsupported_value},
};

/// An item of a request.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::http) enum InputItem {
    Message(pb::NewMessage),
    /// The `encrypted_content` of a compaction.
    Compaction(String),
    /// The id of an item.
    Reference(String),
}

/// The types of items that are parsed.
const ITEM_TYPES: [&str; 6] = [
    "message",
    "function_call",
    "function_call_output",
    "reasoning",
    "compaction",
    "item_reference",
];
/// The types of items about tools and functions that this server does not have.
const UNSUPPORTED_TYPES: [&str; 25] = [
    "additional_tools",
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction_trigger",
    "computer_call",
    "computer_call_output",
    "configuration_update",
    "custom_tool_call",
    "custom_tool_call_output",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];
const STATUSES: [&str; 3] = ["in_progress", "completed", "incomplete"];

/// Parses a text, which is one message of the user, or a list of items. `param` is the parameter
/// that it is.
pub(in crate::http) fn parse_input(input: &Value, param: &str) -> Result<Vec<InputItem>, ApiError> {
    match input {
        Value::String(text) if text.is_empty() => {
            let message = format!(
                "Invalid '{param}': empty string. Expected a string with minimum length 1, but got \
                 an empty string instead."
            );
            Err(ApiError::invalid(param, Some("empty_string"), message))
        }
        Value::String(text) => Ok(vec![InputItem::Message(text_message(pb::Role::User, text))]),
        Value::Array(items) => parse_items(items, param),
        other => Err(ApiError::invalid_type(param, "a string or an array", other)),
    }
}

/// Parses a list of items. `param` is the parameter that it is.
pub(in crate::http) fn parse_items(
    items: &[Value],
    param: &str,
) -> Result<Vec<InputItem>, ApiError> {
    let items = items.iter().enumerate();
    items
        .map(|(index, item)| parse_item(item, &format!("{param}[{index}]")))
        .collect()
}

fn parse_item(item: &Value, path: &str) -> Result<InputItem, ApiError> {
    let mut fields = Fields::of(item, path)?;
    let id = fields.text("id")?;
    let kind = match fields.text("type")? {
        Some(kind) => kind,
        None if fields.value("role").is_some() => "message",
        None if id.is_some() && fields.value("content").is_none() => "item_reference",
        None => return Err(ApiError::missing_parameter(fields.param("type"))),
    };
    let parsed = match kind {
        "message" => InputItem::Message(parse_message(&mut fields)?),
        "function_call" => InputItem::Message(parse_call(&mut fields)?),
        "function_call_output" => InputItem::Message(parse_output(&mut fields)?),
        "reasoning" => InputItem::Message(parse_thought(&mut fields)?),
        "compaction" => {
            // A compaction of this server shows its summary, which it also holds.
            fields.value("summary");
            fields.value("created_by");
            InputItem::Compaction(fields.required_text("encrypted_content")?.to_owned())
        }
        "item_reference" => InputItem::Reference(fields.required_text("id")?.to_owned()),
        other => return Err(unsupported_item(&fields, other)),
    };
    fields.finish()?;
    Ok(parsed)
}

fn unsupported_item(fields: &Fields<'_>, kind: &str) -> ApiError {
    let param = fields.param("type");
    if !UNSUPPORTED_TYPES.contains(&kind) {
        return unsupported_value(param, kind, &ITEM_TYPES);
    }
    let message = format!(
        "Items of the type '{kind}' are not supported: this server runs function tools only. Supported types are: {}.",
        ITEM_TYPES.join(", ")
    );
    ApiError::unsupported_tool(param, message)
}

fn parse_message(fields: &mut Fields<'_>) -> Result<pb::NewMessage, ApiError> {
    let role = fields.one_of("role", &["user", "assistant", "system", "developer"])?;
    let Some(name) = role else {
        return Err(ApiError::missing_parameter(fields.param("role")));
    };
    let (role, author) = match name {
        "user" => (pb::Role::User, Author::User),
        "assistant" => (pb::Role::Assistant, Author::Assistant),
        _ => (pb::Role::System, Author::System),
    };
    let mut labels = Labels::new();
    if name == "developer" {
        labels.insert(labels::ROLE.to_owned(), name.to_owned());
    }
    read_status(fields, &mut labels)?;
    if let Some(phase) = fields.one_of("phase", &["commentary", "final_answer"])? {
        if author != Author::Assistant {
            let message = "only messages of the assistant have a phase.";
            let param = fields.param("phase");
            return Err(ApiError::invalid(param, Some("invalid_value"), message));
        }
        labels.insert(labels::PHASE.to_owned(), phase.to_owned());
    }
    let parts = parse_message_content(fields, author, &mut labels)?;
    Ok(message(role, parts, labels))
}

fn parse_message_content(
    fields: &mut Fields<'_>,
    author: Author,
    labels: &mut Labels,
) -> Result<Vec<Part>, ApiError> {
    let path = fields.param("content");
    let parts = match fields.value("content") {
        None => return Err(ApiError::missing_parameter(path)),
        Some(Value::String(text)) => {
            return Ok(vec![Part::Text(pb::TextPart { text: text.clone() })]);
        }
        Some(Value::Array(parts)) => content::parse_content(parts, &path, author)?,
        Some(other) => return Err(ApiError::invalid_type(path, "a string or an array", other)),
    };
    if parts.is_empty() {
        let message = "must hold at least one part.";
        return Err(ApiError::invalid(path, Some("empty_array"), message));
    }
    let mut notes = PartNotes::default();
    let parts = parts.into_iter().enumerate().map(|(place, (part, note))| {
        notes.add(place, note);
        part
    });
    let parts = parts.collect();
    notes.write(labels);
    Ok(parts)
}

fn parse_call(fields: &mut Fields<'_>) -> Result<pb::NewMessage, ApiError> {
    let call = Part::ToolUse(pb::ToolUsePart {
        id: fields.required_text("call_id")?.to_owned(),
        name: fields.required_text("name")?.to_owned(),
        input: fields.required_text("arguments")?.to_owned(),
    });
    let mut labels = Labels::new();
    read_status(fields, &mut labels)?;
    Ok(message(pb::Role::Assistant, vec![call], labels))
}

fn parse_output(fields: &mut Fields<'_>) -> Result<pb::NewMessage, ApiError> {
    let mut labels = Labels::new();
    let mut result = pb::ToolResultPart {
        tool_use_id: fields.required_text("call_id")?.to_owned(),
        is_error: fields.flag("is_error")?.unwrap_or_default(),
        ..pb::ToolResultPart::default()
    };
    read_status(fields, &mut labels)?;
    let path = fields.param("output");
    match fields.value("output") {
        None => return Err(ApiError::missing_parameter(path)),
        Some(Value::String(text)) => result.text.clone_from(text),
        Some(Value::Array(parts)) => {
            let parts = content::parse_content(parts, &path, Author::User)?;
            fill_result(&mut result, &parts, &mut labels);
        }
        Some(other) => return Err(ApiError::invalid_type(path, "a string or an array", other)),
    }
    Ok(message(
        pb::Role::Tool,
        vec![Part::ToolResult(result)],
        labels,
    ))
}

/// Puts these parts into the result, which has one text and a list of media. The labels say how
/// they stood.
fn fill_result(
    result: &mut pb::ToolResultPart,
    parts: &[(Part, labels::PartNote)],
    labels: &mut Labels,
) {
    let mut notes = PartNotes::default();
    let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(parts.len());
    for (place, (part, note)) in parts.iter().enumerate() {
        notes.add(place, note.clone());
        match part {
            Part::Media(media) => {
                result.media.push(media.clone());
                pieces.push((labels::MEDIA, ""));
            }
            Part::Text(part) => pieces.push(('t', &part.text)),
            Part::ToolUse(_) | Part::ToolResult(_) | Part::Reasoning(_) => {}
        }
    }
    let (text, layout) = labels::join(&pieces);
    result.text = text;
    labels.insert(labels::LAYOUT.to_owned(), layout);
    notes.write(labels);
}

fn parse_thought(fields: &mut Fields<'_>) -> Result<pb::NewMessage, ApiError> {
    let mut labels = Labels::new();
    read_status(fields, &mut labels)?;
    let thought = reasoning::parse_reasoning(fields, &mut labels)?;
    Ok(message(
        pb::Role::Assistant,
        vec![Part::Reasoning(thought)],
        labels,
    ))
}

/// Reads the status, and keeps it as a label unless it is the one that items have by themselves.
fn read_status(fields: &mut Fields<'_>, labels: &mut Labels) -> Result<(), ApiError> {
    let status = fields.one_of("status", &STATUSES)?;
    if let Some(status) = status.filter(|status| *status != "completed") {
        labels.insert(labels::STATUS.to_owned(), status.to_owned());
    }
    Ok(())
}

fn message(role: pb::Role, parts: Vec<Part>, labels: Labels) -> pb::NewMessage {
    let parts = parts.into_iter();
    pb::NewMessage {
        role: role.into(),
        parts: parts.map(|part| pb::Part { part: Some(part) }).collect(),
        metadata: labels,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The only message that this item becomes.
    fn message_of(item: &Value) -> pb::NewMessage {
        let items = parse_input(&json!([item]), "input").expect("is an item");
        match items.as_slice() {
            [InputItem::Message(message)] => message.clone(),
            other => panic!("no message: {other:?}"),
        }
    }

    #[test]
    fn a_text_is_a_message_of_the_user_and_roles_become_roles() {
        let text = parse_input(&json!("Hello."), "input").expect("is a text");
        let same = message_of(&json!({"role": "user", "content": "Hello."}));
        assert_eq!(text, [InputItem::Message(same)]);
        for (name, role, label) in [
            ("user", pb::Role::User, None),
            ("assistant", pb::Role::Assistant, None),
            ("system", pb::Role::System, None),
            ("developer", pb::Role::System, Some("developer")),
        ] {
            let message = message_of(&json!({"type": "message", "role": name, "content": "a"}));
            assert_eq!(message.role(), role);
            let kept = message.metadata.get(labels::ROLE).map(String::as_str);
            assert_eq!(kept, label);
        }
    }

    #[test]
    fn calls_and_their_outputs_become_parts_of_the_assistant_and_of_a_tool() {
        let call = message_of(&json!({
            "type": "function_call", "id": "fc_1", "call_id": "c", "name": "look",
            "arguments": "{}", "status": "completed",
        }));
        assert_eq!(call.role(), pb::Role::Assistant);
        assert!(call.metadata.is_empty());
        let output = message_of(&json!({
            "type": "function_call_output", "call_id": "c", "is_error": true,
            "output": [
                {"type": "input_text", "text": "a"},
                {"type": "input_image", "image_url": "https://a.example/b.png"},
                {"type": "input_text", "text": "b"},
            ],
        }));
        assert_eq!(output.role(), pb::Role::Tool);
        let Some(Part::ToolResult(result)) = output.parts[0].part.clone() else {
            panic!("no result: {output:?}");
        };
        assert_eq!(
            (result.text.as_str(), result.media.len(), result.is_error),
            ("a\n\nb", 1, true)
        );
        assert_eq!(output.metadata[labels::LAYOUT], "t1,m,t1");
    }

    #[test]
    fn a_compaction_and_a_reference_are_handed_on() {
        let items = json!([
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "x", "created_by": null},
            {"id": "msg_1"},
            {"type": "item_reference", "id": "msg_2"},
        ]);
        let items = parse_input(&items, "input").expect("are items");
        assert_eq!(
            items,
            [
                InputItem::Compaction("x".into()),
                InputItem::Reference("msg_1".into()),
                InputItem::Reference("msg_2".into()),
            ]
        );
    }

    #[test]
    fn items_that_are_not_understood_are_refused_by_name() {
        for (input, param, code) in [
            (json!(1), "input", "invalid_type"),
            (json!(""), "input", "empty_string"),
            (json!([1]), "input[0]", "invalid_type"),
            (
                json!([{"content": "a"}]),
                "input[0].type",
                "missing_required_parameter",
            ),
            (
                json!([{"type": "message", "content": "a"}]),
                "input[0].role",
                "missing_required_parameter",
            ),
            (
                json!([{"role": "critic", "content": "a"}]),
                "input[0].role",
                "invalid_value",
            ),
            (
                json!([{"role": "user"}]),
                "input[0].content",
                "missing_required_parameter",
            ),
            (
                json!([{"role": "user", "content": []}]),
                "input[0].content",
                "empty_array",
            ),
            (
                json!([{"role": "user", "content": "a"}, {"role": "user", "content": "a", "x": 1}]),
                "input[1].x",
                "unknown_parameter",
            ),
            (
                json!([{"role": "user", "content": "a", "phase": "commentary"}]),
                "input[0].phase",
                "invalid_value",
            ),
            (
                json!([{"type": "web_search_call", "id": "ws_1"}]),
                "input[0].type",
                "unsupported_tool",
            ),
            (
                json!([{"type": "custom_tool_call", "call_id": "c"}]),
                "input[0].type",
                "unsupported_tool",
            ),
            (
                json!([{"type": "nonsense"}]),
                "input[0].type",
                "invalid_value",
            ),
            (
                json!([{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]),
                "input[0].arguments",
                "invalid_type",
            ),
            (
                json!([{"type": "function_call_output", "call_id": "c"}]),
                "input[0].output",
                "missing_required_parameter",
            ),
            (
                json!([{"type": "reasoning", "encrypted_content": "anneal-reasoning-1.!"}]),
                "input[0].encrypted_content",
                "invalid_encrypted_content",
            ),
        ] {
            let refused = parse_input(&input, "input").expect_err("is refused");
            let refused = refused.object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{input}"
            );
        }
    }
}
