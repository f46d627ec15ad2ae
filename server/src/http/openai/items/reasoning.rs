//! Thoughts as reasoning items, both ways. `encrypted_content` holds what only the provider of the
//! model understands, and which provider that is.

use anneal_proto::v1 as pb;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::labels::{self, Labels, Piece};
use crate::http::openai::{errors::ApiError, fields::Fields};

/// The beginning of an `encrypted_content` of this server.
const PREFIX: &str = "anneal-reasoning-1.";
/// The provider whose own `encrypted_content` is a signature as it is.
const OPENAI: &str = "openai";
/// The letters of a summary and of a readable thought in a layout.
const SUMMARY: char = 's';
const CONTENT: char = 'c';

/// Parses the thought in these fields of a reasoning item. Adds to the labels what the part has no
/// place for.
pub(super) fn parse_reasoning(
    fields: &mut Fields<'_>,
    labels: &mut Labels,
) -> Result<pb::ReasoningPart, ApiError> {
    let summary = parse_texts(fields, "summary", "summary_text")?;
    let content = parse_texts(fields, "content", "reasoning_text")?;
    let summary = summary.into_iter().map(|text| (SUMMARY, text));
    let content = content.into_iter().map(|text| (CONTENT, text));
    let pieces: Vec<Piece<'_>> = summary.chain(content).collect();
    let (text, layout) = labels::join(&pieces);
    if !has_own_layout(&pieces) {
        labels.insert(labels::LAYOUT.to_owned(), layout);
    }
    let encrypted = fields.text("encrypted_content")?.unwrap_or_default();
    let signature = Signature::parse(encrypted).ok_or_else(|| {
        let message = "is not as this server has written it.";
        let param = fields.param("encrypted_content");
        ApiError::invalid(param, Some("invalid_encrypted_content"), message)
    })?;
    Ok(pb::ReasoningPart {
        text,
        signature: signature.text,
        provider: signature.provider,
        redacted: signature.redacted,
    })
}

/// A thought as a reasoning item.
pub(super) fn show_reasoning(part: &pb::ReasoningPart, labels: &Labels, id: &str) -> Value {
    let layout = labels.get(labels::LAYOUT);
    let pieces = layout
        .and_then(|layout| labels::split(layout, &part.text))
        .unwrap_or_else(|| own_layout(&part.text));
    let texts = |letter: char, kind: &str| {
        let pieces = pieces.iter().filter(|(other, _)| *other == letter);
        let texts = pieces.map(|(_, text)| json!({"type": kind, "text": text}));
        texts.collect::<Vec<Value>>()
    };
    let mut item = json!({
        "id": id,
        "type": "reasoning",
        "summary": texts(SUMMARY, "summary_text"),
    });
    let content = texts(CONTENT, "reasoning_text");
    if !content.is_empty() {
        item["content"] = content.into();
    }
    if let Some(encrypted) = Signature::of(part).encrypted_content() {
        item["encrypted_content"] = encrypted.into();
    }
    if let Some(status) = labels.get(labels::STATUS) {
        item["status"] = status.as_str().into();
    }
    item
}

/// The pieces of a text without a layout.
fn own_layout(text: &str) -> Vec<Piece<'_>> {
    if text.is_empty() {
        Vec::new()
    } else {
        vec![(CONTENT, text)]
    }
}

fn has_own_layout(pieces: &[Piece<'_>]) -> bool {
    match pieces {
        [] => true,
        [(CONTENT, text)] => !text.is_empty(),
        _ => false,
    }
}

/// The texts of a list of parts that all have this type.
fn parse_texts<'v>(
    fields: &mut Fields<'v>,
    name: &'static str,
    kind: &'static str,
) -> Result<Vec<&'v str>, ApiError> {
    let parts = fields.list(name)?.iter().enumerate();
    parts
        .map(|(index, part)| {
            let mut part = Fields::of(part, &fields.param(&format!("{name}[{index}]")))?;
            if part.one_of("type", &[kind])?.is_none() {
                return Err(ApiError::missing_parameter(part.param("type")));
            }
            let text = part.required_text("text")?;
            part.finish()?;
            Ok(text)
        })
        .collect()
}

/// What only a provider understands of a thought.
#[derive(Debug, Default, PartialEq, Eq)]
struct Signature {
    provider: String,
    text: String,
    redacted: bool,
}

impl Signature {
    fn of(part: &pb::ReasoningPart) -> Self {
        Self {
            provider: part.provider.clone(),
            text: part.signature.clone(),
            redacted: part.redacted,
        }
    }

    /// Parses an `encrypted_content`; empty: there is none. A text that this server has not written
    /// is a signature of `OpenAI`. None: it begins like one of this server, and is none.
    fn parse(encrypted: &str) -> Option<Self> {
        let Some(encoded) = encrypted.strip_prefix(PREFIX) else {
            let provider = if encrypted.is_empty() { "" } else { OPENAI };
            return Some(Self {
                provider: provider.to_owned(),
                text: encrypted.to_owned(),
                redacted: false,
            });
        };
        let json = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let (provider, text, redacted) = serde_json::from_slice(&json).ok()?;
        Some(Self {
            provider,
            text,
            redacted,
        })
    }

    /// The `encrypted_content`. None: there is nothing to keep.
    fn encrypted_content(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        let is_plain = !self.text.is_empty() && !self.text.starts_with(PREFIX);
        if self.provider == OPENAI && !self.redacted && is_plain {
            return Some(self.text.clone());
        }
        let fields = (&self.provider, &self.text, self.redacted);
        let json = serde_json::to_vec(&fields).expect("texts can be written");
        Some(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(json)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_read_as_it_was_written() {
        for (provider, signature, redacted) in [
            ("", "", false),
            ("openai", "gAAA", false),
            ("openai", "gAAA", true),
            ("openai", "", false),
            ("openai", "anneal-reasoning-1.x", false),
            ("anthropic", "é==", false),
            ("anthropic", "x", true),
            ("", "x", false),
        ] {
            let signature = Signature {
                provider: provider.to_owned(),
                text: signature.to_owned(),
                redacted,
            };
            let encrypted = signature.encrypted_content().unwrap_or_default();
            assert_eq!(Signature::parse(&encrypted), Some(signature), "{encrypted}");
        }
    }

    #[test]
    fn a_text_of_another_service_is_a_signature_of_openai_and_stays_as_it_is() {
        let foreign = Signature::parse("gAAAAABo").expect("is kept");
        assert_eq!(foreign.provider, "openai");
        assert_eq!(foreign.encrypted_content().as_deref(), Some("gAAAAABo"));
        assert_eq!(Signature::parse("anneal-reasoning-1.!"), None);
        assert_eq!(Signature::parse("anneal-reasoning-1.e30"), None);
    }
}
