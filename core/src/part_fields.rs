//! The stored form of a part, read in one pass: serde's own way with tagged enums keeps every field aside until it has seen the
//! tag, which doubles what reading a message costs.

use serde::Deserialize;

use crate::message::{Media, Part};

/// What any kind of part may have.
#[derive(Deserialize)]
pub(crate) struct PartFields {
    #[serde(rename = "type")]
    kind: Kind,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<String>,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    media: Vec<Media>,
    uri: Option<String>,
    media_type: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    provider: String,
    #[serde(default)]
    redacted: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Text,
    ToolUse,
    ToolResult,
    Media,
    Reasoning,
}

/// A field without which there is no such part.
#[derive(Debug, thiserror::Error)]
#[error("missing field `{0}`")]
pub(crate) struct MissingField(&'static str);

impl TryFrom<PartFields> for Part {
    type Error = MissingField;

    fn try_from(fields: PartFields) -> Result<Self, MissingField> {
        let text = fields.text.ok_or(MissingField("text"));
        let id = fields.id.ok_or(MissingField("id"));
        Ok(match fields.kind {
            Kind::Text => Self::Text { text: text? },
            Kind::ToolUse => Self::ToolUse {
                id: id?,
                name: fields.name.ok_or(MissingField("name"))?,
                input: fields.input.ok_or(MissingField("input"))?,
            },
            Kind::ToolResult => {
                Self::ToolResult { id: id?, text: text?, is_error: fields.is_error, media: fields.media }
            }
            Kind::Media => Self::Media(Media {
                uri: fields.uri.ok_or(MissingField("uri"))?,
                media_type: fields.media_type.ok_or(MissingField("media_type"))?,
                bytes: fields.bytes,
                tokens: fields.tokens,
            }),
            Kind::Reasoning => Self::Reasoning {
                text: text?,
                signature: fields.signature,
                provider: fields.provider,
                redacted: fields.redacted,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what is stored, and writes it again.
    fn again(stored: &str) -> Result<String, String> {
        let part: Part = serde_json::from_str(stored).map_err(|error| error.to_string())?;
        Ok(serde_json::to_string(&part).expect("parts are written as JSON"))
    }

    #[test]
    fn every_kind_is_written_as_it_was_read() {
        for stored in [
            r#"{"type":"text","text":"a \"word\"\u0000\n"}"#,
            r#"{"type":"tool_use","id":"1","name":"ls","input":"{\"a\": 1}"}"#,
            r#"{"type":"tool_result","id":"1","text":"x"}"#,
            r#"{"type":"tool_result","id":"1","text":"x","is_error":true,"media":[{"uri":"u","media_type":"image/png"}]}"#,
            r#"{"type":"media","uri":"u","media_type":"image/png","bytes":7,"tokens":8}"#,
            r#"{"type":"media","uri":"u","media_type":"image/png"}"#,
            r#"{"type":"reasoning","text":"","signature":"s","provider":"anthropic","redacted":true}"#,
            r#"{"type":"reasoning","text":"hm"}"#,
        ] {
            assert_eq!(again(stored).as_deref(), Ok(stored));
        }
    }

    #[test]
    fn fields_may_come_in_any_order_and_others_beside_them() {
        let stored = r#"{"later":[1,{"x":2}],"text":"hello","type":"text"}"#;
        assert_eq!(again(stored).as_deref(), Ok(r#"{"type":"text","text":"hello"}"#));
    }

    #[test]
    fn what_is_no_part_says_what_it_lacks() {
        for (stored, lacks) in [
            (r#"{"type":"text"}"#, "missing field `text`"),
            (r#"{"type":"tool_use","id":"1","name":"ls"}"#, "missing field `input`"),
            (r#"{"type":"tool_result","text":"x"}"#, "missing field `id`"),
            (r#"{"type":"media","uri":"u"}"#, "missing field `media_type`"),
            (r#"{"text":"x"}"#, "missing field `type`"),
            (r#"{"type":"poem","text":"x"}"#, "unknown variant `poem`"),
        ] {
            let error = again(stored).expect_err(stored);
            assert!(error.contains(lacks), "{stored}: {error}");
        }
    }
}
