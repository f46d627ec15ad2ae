//! Parses rendered contexts as a provider would: what it would refuse, the texts, and their token
//! count.

use std::collections::{BTreeMap, HashMap};

use anneal_core::tokens::{Encoding, FRAMING_PER_MESSAGE};
use anneal_shapes::{anthropic_messages, gemini_contents, openai_chat};
use pb::{Format, part::Part};
use serde_json::{Value, value::RawValue};

use crate::{Built, pb};

/// A context in a provider's format, parsed.
pub struct Rendered {
    /// The provider's format.
    pub format: Format,
    /// The request as JSON. Null if the context has no provider's format.
    pub body: Value,
    /// All texts, tool names, tool inputs and tool results, as they stand in the request.
    pub texts: Vec<String>,
    /// The number of messages, the system prompt included.
    pub messages: u64,
}

impl Rendered {
    /// Parses a built context in this format. An error says what is wrong.
    pub fn read(built: &Built, format: Format) -> Result<Self, String> {
        let Some(json) = &built.0.rendered else {
            let texts = built
                .0
                .messages
                .iter()
                .flat_map(|message| &message.parts)
                .flat_map(part_texts)
                .collect();
            let messages = built.0.messages.len() as u64;
            return if format == Format::Unspecified {
                Ok(Self {
                    format,
                    body: Value::Null,
                    texts,
                    messages,
                })
            } else {
                Err("the context has no rendered request".into())
            };
        };
        let body: Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let mut texts = Vec::new();
        let raw: Box<RawValue> = serde_json::from_str(json).map_err(|e| e.to_string())?;
        collect_texts(&raw, "", &mut texts).map_err(|e| e.to_string())?;
        let listed = body["messages"]
            .as_array()
            .or(body["contents"].as_array())
            .map_or(0, Vec::len);
        let has_system_prompt = body
            .get("system")
            .or(body.get("systemInstruction"))
            .is_some();
        Ok(Self {
            format,
            body,
            texts,
            messages: listed as u64 + u64::from(has_system_prompt),
        })
    }

    /// Reasons why the provider would refuse the request; empty for a valid one.
    pub fn refusals(&self) -> Vec<String> {
        let refusals = match self.format {
            Format::Unspecified => Vec::new(),
            Format::OpenaiChat => openai_chat(&self.body),
            Format::AnthropicMessages => anthropic_messages(&self.body),
            Format::GeminiContents => gemini_contents(&self.body),
        };
        refusals.iter().map(ToString::to_string).collect()
    }

    /// Whether one of the texts contains `some`.
    pub fn says(&self, some: &str) -> bool {
        self.texts.iter().any(|text| text.contains(some))
    }
}

fn part_texts(part: &pb::Part) -> Vec<String> {
    match part.part.as_ref() {
        Some(Part::Text(part)) => vec![part.text.clone()],
        Some(Part::ToolUse(part)) => vec![part.name.clone(), part.input.clone()],
        Some(Part::ToolResult(part)) => vec![part.text.clone()],
        Some(Part::Reasoning(part)) => vec![part.text.clone()],
        Some(Part::Media(_)) | None => Vec::new(),
    }
}

/// Collects the texts in the value of a key. A tool's input is kept as raw JSON, so that the order
/// of its keys stays.
fn collect_texts(value: &RawValue, key: &str, texts: &mut Vec<String>) -> serde_json::Result<()> {
    const TEXT_KEYS: [&str; 8] = [
        "text",
        "thinking",
        "name",
        "content",
        "result",
        "error",
        "arguments",
        "output",
    ];
    let json = value.get();
    match json.as_bytes().first() {
        _ if ["input", "args"].contains(&key) => texts.push(json.to_owned()),
        Some(b'{') => {
            for (key, value) in serde_json::from_str::<BTreeMap<String, &RawValue>>(json)? {
                collect_texts(value, &key, texts)?;
            }
        }
        Some(b'[') => {
            for value in serde_json::from_str::<Vec<&RawValue>>(json)? {
                collect_texts(value, key, texts)?;
            }
        }
        Some(b'"') if TEXT_KEYS.contains(&key) => texts.push(serde_json::from_str(json)?),
        _ => {}
    }
    Ok(())
}

/// Counts the tokens of texts again, and remembers the count of each text.
#[derive(Default)]
pub struct Recount(HashMap<String, u64>);

impl Recount {
    /// The lower bound of the request's tokens: those of its texts, and
    /// [`FRAMING_PER_MESSAGE`] per message.
    pub fn tokens(&mut self, rendered: &Rendered) -> u64 {
        let texts: u64 = rendered.texts.iter().map(|text| self.text(text)).sum();
        texts + FRAMING_PER_MESSAGE.get() * rendered.messages
    }

    /// The token count of a text.
    pub fn text(&mut self, text: &str) -> u64 {
        if let Some(known) = self.0.get(text) {
            return *known;
        }
        let tokens = Encoding::O200kBase.counter().count(text).get();
        self.0.insert(text.to_owned(), tokens);
        tokens
    }
}
