//! Blocks of a message in a request, in the form in which answers have them.

use anneal_core::limits::{MEDIA_PER_RESULT, PARTS_PER_MESSAGE};
use anneal_proto::v1::{self as pb, part::Part as Wire};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::{bounded_collections::ListReader, problem::Problem};

/// Blocks of a message, at most one more than [`PARTS_PER_MESSAGE`].
#[derive(Debug, Default, Serialize)]
pub(super) struct NewBlocks(Vec<NewBlock>);

/// A block of any type. The fields that belong to its type are read, and others are refused. It is
/// no enum with a tag, because serde would keep a copy of the whole block to find the tag.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct NewBlock {
    #[serde(rename = "type")]
    kind: Option<BlockType>,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<String>,
    tool_use_id: Option<String>,
    is_error: Option<bool>,
    media: Option<BoundedMedia>,
    uri: Option<String>,
    media_type: Option<String>,
    size_bytes: Option<u64>,
    signature: Option<String>,
    provider: Option<String>,
    redacted: Option<bool>,
}

/// The type of a block.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum BlockType {
    Text,
    ToolUse,
    ToolResult,
    Media,
    Reasoning,
}

/// Media of a tool result, at most one more than [`MEDIA_PER_RESULT`].
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct BoundedMedia(Vec<NewMedia>);

/// A picture or file of a tool result.
#[derive(Debug, Default, Clone, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct NewMedia {
    uri: String,
    media_type: String,
    size_bytes: u64,
}

impl<'de> Deserialize<'de> for NewBlocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(PARTS_PER_MESSAGE))
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for BoundedMedia {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(MEDIA_PER_RESULT))
            .map(Self)
    }
}

impl BoundedMedia {
    /// The media as parts of a tool result.
    pub(super) fn into_parts(self) -> Vec<pb::MediaPart> {
        self.0.into_iter().map(pb::MediaPart::from).collect()
    }
}

impl NewBlocks {
    /// The blocks as parts of a message. `field` is the name of the list in the request.
    pub(super) fn into_parts(self, field: &str) -> Result<Vec<pb::Part>, Problem> {
        let blocks = self.0.into_iter().enumerate();
        blocks
            .map(|(index, block)| {
                let part = block.into_part().map_err(|(name, description)| {
                    Problem::invalid(format!("{field}[{index}].{name}"), description)
                })?;
                Ok(pb::Part { part: Some(part) })
            })
            .collect()
    }
}

impl NewBlock {
    /// The block as a part. Err: the name of a field at fault, and why it is refused. Absent fields
    /// are empty; the RPC refuses them where they must not be.
    fn into_part(mut self) -> Result<Wire, (&'static str, &'static str)> {
        let kind = self.kind.ok_or(("type", "is required"))?;
        let part = match kind {
            BlockType::Text => Wire::Text(pb::TextPart {
                text: taken(&mut self.text),
            }),
            BlockType::ToolUse => Wire::ToolUse(pb::ToolUsePart {
                id: taken(&mut self.id),
                name: taken(&mut self.name),
                input: taken(&mut self.input),
            }),
            BlockType::ToolResult => Wire::ToolResult(pb::ToolResultPart {
                tool_use_id: taken(&mut self.tool_use_id),
                text: taken(&mut self.text),
                is_error: taken(&mut self.is_error),
                media: taken(&mut self.media).into_parts(),
            }),
            BlockType::Media => Wire::Media(pb::MediaPart::from(NewMedia {
                uri: taken(&mut self.uri),
                media_type: taken(&mut self.media_type),
                size_bytes: taken(&mut self.size_bytes),
            })),
            BlockType::Reasoning => Wire::Reasoning(pb::ReasoningPart {
                text: taken(&mut self.text),
                signature: taken(&mut self.signature),
                provider: taken(&mut self.provider),
                redacted: taken(&mut self.redacted),
            }),
        };
        self.first_given().map_or(Ok(part), |name| {
            Err((name, "is no field of blocks of this type"))
        })
    }

    /// The name of a field that is given, except the type.
    fn first_given(&self) -> Option<&'static str> {
        let fields = [
            ("text", self.text.is_some()),
            ("id", self.id.is_some()),
            ("name", self.name.is_some()),
            ("input", self.input.is_some()),
            ("toolUseId", self.tool_use_id.is_some()),
            ("isError", self.is_error.is_some()),
            ("media", self.media.is_some()),
            ("uri", self.uri.is_some()),
            ("mediaType", self.media_type.is_some()),
            ("sizeBytes", self.size_bytes.is_some()),
            ("signature", self.signature.is_some()),
            ("provider", self.provider.is_some()),
            ("redacted", self.redacted.is_some()),
        ];
        let given = fields.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }
}

/// The value of a field, which counts as read from then on.
fn taken<T: Default>(field: &mut Option<T>) -> T {
    field.take().unwrap_or_default()
}

impl From<NewMedia> for pb::MediaPart {
    fn from(media: NewMedia) -> Self {
        Self {
            uri: media.uri,
            media_type: media.media_type,
            size_bytes: media.size_bytes,
            tokens: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn blocks(value: serde_json::Value) -> NewBlocks {
        serde_json::from_value(value).expect("is read")
    }

    #[test]
    fn each_type_of_block_becomes_its_part() {
        let given = json!([
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c", "name": "look", "input": "{}"},
            {"type": "tool_result", "toolUseId": "c", "text": "b", "isError": true,
             "media": [{"uri": "u", "mediaType": "image/png", "sizeBytes": 1}]},
            {"type": "media", "uri": "u", "mediaType": "image/png", "sizeBytes": 1},
            {"type": "reasoning", "text": "r", "signature": "s", "provider": "p", "redacted": true},
        ]);
        let media = || pb::MediaPart {
            uri: "u".into(),
            media_type: "image/png".into(),
            size_bytes: 1,
            tokens: 0,
        };
        let expected = [
            Wire::Text(pb::TextPart { text: "a".into() }),
            Wire::ToolUse(pb::ToolUsePart {
                id: "c".into(),
                name: "look".into(),
                input: "{}".into(),
            }),
            Wire::ToolResult(pb::ToolResultPart {
                tool_use_id: "c".into(),
                text: "b".into(),
                is_error: true,
                media: vec![media()],
            }),
            Wire::Media(media()),
            Wire::Reasoning(pb::ReasoningPart {
                text: "r".into(),
                signature: "s".into(),
                provider: "p".into(),
                redacted: true,
            }),
        ];
        let parts = blocks(given).into_parts("content").expect("are parts");
        let parts: Vec<_> = parts.into_iter().filter_map(|part| part.part).collect();
        assert_eq!(parts, expected);
    }

    #[test]
    fn fields_of_other_types_and_a_missing_type_are_refused() {
        for (block, field) in [
            (json!({"text": "a"}), "type"),
            (json!({"type": "text", "text": "a", "uri": "u"}), "uri"),
            (json!({"type": "media", "uri": "u", "id": "c"}), "id"),
            (json!({"type": "tool_use", "redacted": false}), "redacted"),
        ] {
            let refused = blocks(json!([block.clone()]))
                .0
                .remove(0)
                .into_part()
                .expect_err("is refused");
            assert_eq!(refused.0, field, "{block}");
        }
    }

    #[test]
    fn at_most_one_block_and_one_file_above_the_limit_is_kept() {
        let many = vec![json!({"type": "text", "text": "a"}); 1_000];
        assert_eq!(blocks(json!(many)).0.len(), PARTS_PER_MESSAGE + 1);
        let files = vec![json!({}); 1_000];
        let result = blocks(json!([{"type": "tool_result", "media": files}]));
        let media = result.0[0].media.as_ref().map(|media| media.0.len());
        assert_eq!(media, Some(MEDIA_PER_RESULT + 1));
    }
}
