//! Writes OpenAI chat messages.

use anneal_core::message::{Media, Message, Part, Role};
use serde::Serialize;

#[derive(Serialize)]
struct Chat<'m> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'m str>,
    content: Option<Content<'m>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'m>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'m> {
    Text(&'m str),
    Items(Vec<Item<'m>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'m> {
    Text { text: &'m str },
    ImageUrl { image_url: Url<'m> },
}

#[derive(Serialize)]
struct Url<'m> {
    url: &'m str,
}

#[derive(Serialize)]
struct Call<'m> {
    id: &'m str,
    r#type: &'static str,
    function: Function<'m>,
}

#[derive(Serialize)]
struct Function<'m> {
    name: &'m str,
    arguments: &'m str,
}

/// The system prompt as the first message.
pub(super) fn prompt(prompt: &str) -> String {
    let content = Some(Content::Text(prompt));
    let chat = Chat {
        role: "system",
        tool_call_id: None,
        name: None,
        reasoning_content: None,
        content,
        tool_calls: Vec::new(),
    };
    json(&chat)
}

/// The records of a message: one, or for a tool message one for each part.
pub(super) fn records(message: &Message) -> Vec<String> {
    let name = message.metadata.get("name").map(String::as_str);
    if message.role == Role::Tool && !message.parts.is_empty() {
        return message
            .parts
            .iter()
            .map(|part| json(&result(part, name)))
            .collect();
    }
    let reasoning = message.parts.iter().find_map(|part| match part {
        Part::Reasoning {
            text,
            redacted: false,
            ..
        } => Some(text.as_str()),
        _ => None,
    });
    let tool_calls = message.parts.iter().filter_map(|part| match part {
        Part::ToolUse { id, name, input } => Some(Call {
            id,
            r#type: "function",
            function: Function {
                name,
                arguments: input,
            },
        }),
        _ => None,
    });
    vec![json(&Chat {
        role: message.role.name(),
        tool_call_id: None,
        name,
        reasoning_content: reasoning,
        content: content(message.parts.iter().filter_map(item).collect()),
        tool_calls: tool_calls.collect(),
    })]
}

fn result<'m>(part: &'m Part, name: Option<&'m str>) -> Chat<'m> {
    let (id, items) = match part {
        Part::ToolResult {
            id, text, media, ..
        } => {
            let images = media.iter().map(image);
            let text_item = (!text.is_empty() || media.is_empty()).then_some(Item::Text { text });
            (id.as_str(), text_item.into_iter().chain(images).collect())
        }
        other => ("", item(other).into_iter().collect()),
    };
    Chat {
        role: "tool",
        tool_call_id: Some(id),
        name,
        reasoning_content: None,
        content: content(items),
        tool_calls: Vec::new(),
    }
}

fn item(part: &Part) -> Option<Item<'_>> {
    match part {
        Part::Text { text } => Some(Item::Text { text }),
        Part::Media(media) => Some(image(media)),
        Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Reasoning { .. } => None,
    }
}

fn image(media: &Media) -> Item<'_> {
    Item::ImageUrl {
        image_url: Url { url: &media.uri },
    }
}

fn content(mut items: Vec<Item<'_>>) -> Option<Content<'_>> {
    match items.as_slice() {
        [] => None,
        [Item::Text { .. }] => match items.pop() {
            Some(Item::Text { text }) => Some(Content::Text(text)),
            _ => None,
        },
        _ => Some(Content::Items(items)),
    }
}

fn json(chat: &Chat) -> String {
    serde_json::to_string(chat).expect("texts and lists are always JSON")
}
