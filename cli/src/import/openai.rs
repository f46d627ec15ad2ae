//! OpenAI chat messages: a JSON list, an object with `messages`, JSON lines of messages (one conversation), or JSON lines
//! of conversations (one each).

use anneal_core::message::{Media, Message, Part, Role};
use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One conversation of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Talk {
    /// What to call it.
    pub(crate) title: String,
    /// The system prompt: its first message, if that is the system's.
    pub(crate) system_prompt: String,
    /// The messages.
    pub(crate) messages: Vec<Message>,
}

/// The conversations of a file's text.
pub(crate) fn parse(text: &str, name: &str) -> anyhow::Result<Vec<Talk>> {
    if let Ok(whole) = serde_json::from_str::<Value>(text) {
        return conversations(whole, name);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let values: Vec<(usize, Value)> = lines
        .map(|(index, line)| {
            let value = serde_json::from_str(line).with_context(|| format!("line {} is not JSON", index + 1))?;
            Ok((index + 1, value))
        })
        .collect::<anyhow::Result<_>>()?;
    if values.is_empty() {
        bail!("there is nothing in it");
    }
    if values.iter().all(|(_, value)| value.get("role").is_some()) {
        return Ok(vec![talk(values.into_iter().map(|(_, value)| value).collect(), name)?]);
    }
    let count = values.len();
    values
        .into_iter()
        .map(|(line, value)| {
            let name = if count == 1 { name.to_owned() } else { format!("{name} {line}") };
            conversation(value, &name).with_context(|| format!("line {line}"))
        })
        .collect()
}

/// A whole file: one conversation, or a list of conversations.
fn conversations(value: Value, name: &str) -> anyhow::Result<Vec<Talk>> {
    match value {
        Value::Array(items) if items.first().is_some_and(|item| item.get("role").is_none()) => {
            let named = items.into_iter().enumerate();
            named.map(|(index, item)| conversation(item, &format!("{name} {}", index + 1))).collect()
        }
        other => Ok(vec![conversation(other, name)?]),
    }
}

/// A list of messages, or an object that holds one under `messages` (or `traj`).
fn conversation(value: Value, name: &str) -> anyhow::Result<Talk> {
    match value {
        Value::Array(messages) => talk(messages, name),
        Value::Object(object) if object.contains_key("role") => talk(vec![Value::Object(object)], name),
        Value::Object(mut object) => {
            let title = object.get("title").and_then(Value::as_str).unwrap_or(name).to_owned();
            match object.remove("messages").or_else(|| object.remove("traj")) {
                Some(Value::Array(messages)) => talk(messages, &title),
                _ => bail!("neither a list of messages nor an object with `messages`"),
            }
        }
        _ => bail!("neither a list of messages nor an object with `messages`"),
    }
}

fn talk(values: Vec<Value>, title: &str) -> anyhow::Result<Talk> {
    let mut talk = Talk { title: title.to_owned(), system_prompt: String::new(), messages: Vec::new() };
    for (index, value) in values.into_iter().enumerate() {
        let message = message(value).with_context(|| format!("message {}", index + 1))?;
        if index == 0 && message.role == Role::System {
            talk.system_prompt = anneal_core::message::plain_text(&message.parts);
        } else {
            talk.messages.push(message);
        }
    }
    if talk.messages.is_empty() {
        bail!("it holds no messages");
    }
    Ok(talk)
}

/// A message as OpenAI writes it; other fields are left out.
#[derive(Deserialize)]
struct Wire {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
    #[serde(default)]
    function_call: Option<WireFunction>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct WireCall {
    id: String,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

fn message(value: Value) -> anyhow::Result<Message> {
    let wire: Wire = serde_json::from_value(value).context("not a chat message")?;
    let role = match wire.role.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        "system" | "developer" => Role::System,
        other => bail!("unknown role {other}"),
    };
    let said = content(wire.content)?;
    let mut metadata = BTreeMap::new();
    let parts = if role == Role::Tool {
        let id = wire.tool_call_id.or_else(|| wire.name.clone()).context("a tool message needs a tool_call_id")?;
        vec![result(id, said)]
    } else {
        if let Some(name) = wire.name {
            metadata.insert("name".to_owned(), name);
        }
        let mut parts = Vec::new();
        parts.extend(wire.reasoning_content.map(|text| Part::Reasoning {
            text,
            signature: String::new(),
            provider: String::new(),
            redacted: false,
        }));
        parts.extend(said);
        parts.extend(wire.refusal.map(|text| Part::Text { text }));
        parts.extend(wire.tool_calls.into_iter().flatten().map(|call| call_part(call.id, call.function)));
        parts.extend(wire.function_call.map(|call| call_part(call.name.clone(), call)));
        if parts.is_empty() {
            parts.push(Part::Text { text: String::new() });
        }
        parts
    };
    Ok(Message { role, parts, metadata })
}

fn call_part(id: String, function: WireFunction) -> Part {
    Part::ToolUse { id, name: function.name, input: function.arguments }
}

/// A tool's answer: its texts as one, its pictures beside them.
fn result(id: String, said: Vec<Part>) -> Part {
    let mut texts = Vec::new();
    let mut media = Vec::new();
    for part in said {
        match part {
            Part::Text { text } => texts.push(text),
            Part::Media(one) => media.push(one),
            Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => {}
        }
    }
    Part::ToolResult { id, text: texts.join("\n"), is_error: false, media }
}

/// `content`: null, a text, or a list of text and picture parts.
fn content(content: Value) -> anyhow::Result<Vec<Part>> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text { text }]),
        Value::Array(items) => items.iter().map(content_part).collect(),
        _ => bail!("content is neither null nor a text nor a list"),
    }
}

fn content_part(item: &Value) -> anyhow::Result<Part> {
    let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    match item.get("type").and_then(Value::as_str).unwrap_or("text") {
        "text" | "input_text" | "output_text" => {
            Ok(Part::Text { text: text("text").context("a text part needs text")? })
        }
        "refusal" => Ok(Part::Text { text: text("refusal").unwrap_or_default() }),
        "image_url" => {
            let url = item.get("image_url");
            let uri = url.and_then(|url| url.get("url").or(Some(url)?.as_str().map(|_| url))).and_then(Value::as_str);
            let uri = uri.context("an image_url part needs a url")?.to_owned();
            Ok(Part::Media(Media { media_type: media_type(&uri), uri, bytes: 0, tokens: 0 }))
        }
        other => bail!("unknown part of type {other}"),
    }
}

/// The media type that a data: URI names; `image/*` for other addresses.
fn media_type(uri: &str) -> String {
    let named = uri.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
    named.filter(|named| !named.is_empty()).unwrap_or("image/*").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"look","arguments":"{\"n\":1e2}"}}]}"#;

    fn one(text: &str) -> Talk {
        parse(text, "file").expect("parses").pop().expect("one conversation")
    }

    #[test]
    fn a_list_an_object_and_lines_of_messages_are_one_conversation() {
        let list = r#"[{"role":"system","content":"be kind"},{"role":"user","content":"hi"}]"#;
        let talk = one(list);
        assert_eq!(talk.system_prompt, "be kind");
        assert_eq!(talk.messages.len(), 1);
        assert_eq!(one(&format!(r#"{{"messages":{list}}}"#)), talk);
        assert_eq!(
            one("{\"role\":\"system\",\"content\":\"be kind\"}\n\n{\"role\":\"user\",\"content\":\"hi\"}\n"),
            talk
        );
    }

    #[test]
    fn lines_of_conversations_are_one_each() {
        let line = r#"{"messages":[{"role":"user","content":"hi"}]}"#;
        let talks = parse(&format!("{line}\r\n{line}\r\n"), "file").expect("parses");
        assert_eq!(talks.iter().map(|talk| talk.title.as_str()).collect::<Vec<_>>(), ["file 1", "file 2"]);
    }

    #[test]
    fn tool_calls_keep_their_arguments_byte_for_byte() {
        let talk = one(&format!(r#"[{CALL},{{"role":"tool","tool_call_id":"c1","content":"seen"}}]"#));
        assert_eq!(
            talk.messages[0].parts,
            [Part::ToolUse { id: "c1".into(), name: "look".into(), input: "{\"n\":1e2}".into() }]
        );
        assert!(
            matches!(&talk.messages[1].parts[..], [Part::ToolResult { id, text, .. }] if id == "c1" && text == "seen")
        );
    }

    #[test]
    fn pictures_and_empty_answers_are_kept() {
        let picture = r#"[{"role":"user","content":[{"type":"text","text":"see"},
            {"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]},{"role":"assistant","content":null}]"#;
        let talk = one(picture);
        assert!(matches!(&talk.messages[0].parts[1], Part::Media(media) if media.media_type == "image/png"));
        assert_eq!(talk.messages[1].parts, [Part::Text { text: String::new() }]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| format!("{:#}", parse(text, "file").expect_err("refused"));
        assert!(error("{\"role\":\"user\",\"content\":\"a\"}\n{broken\n").contains("line 2"));
        assert!(error(r#"[{"role":"wizard","content":"a"}]"#).contains("unknown role wizard"));
        assert!(error("").contains("nothing"));
        assert!(error("7").contains("neither"));
    }
}
