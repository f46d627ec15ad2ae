//! Results of tool calls in a request.

use anneal_core::limits::PARTS_PER_MESSAGE;
use anneal_proto::v1::{self as pb, part::Part};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::{
    bounded_collections::ListReader,
    new_block::{BoundedMedia, NewMedia},
};

/// Results of tool calls, at most one more than [`PARTS_PER_MESSAGE`].
#[derive(Debug, Default, Clone)]
pub(super) struct NewToolResults(Vec<NewToolResult>);

/// The result of a tool call.
#[derive(Debug, Default, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct NewToolResult {
    /// The id of the call. Required.
    tool_use_id: String,
    /// The result.
    text: String,
    /// Whether the tool has failed.
    is_error: bool,
    /// Pictures and files of the result.
    #[schema(value_type = Vec<NewMedia>)]
    media: BoundedMedia,
}

impl<'de> Deserialize<'de> for NewToolResults {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(PARTS_PER_MESSAGE))
            .map(Self)
    }
}

impl NewToolResults {
    /// The results as one message of a tool; None: there are none.
    pub(super) fn into_message(self) -> Option<pb::NewMessage> {
        let parts: Vec<pb::Part> = self.0.into_iter().map(pb::Part::from).collect();
        (!parts.is_empty()).then(|| pb::NewMessage {
            role: pb::Role::Tool.into(),
            parts,
            ..pb::NewMessage::default()
        })
    }

    /// Whether there are none.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<NewToolResult> for pb::Part {
    fn from(result: NewToolResult) -> Self {
        let result = pb::ToolResultPart {
            tool_use_id: result.tool_use_id,
            text: result.text,
            is_error: result.is_error,
            media: result.media.into_parts(),
        };
        Self {
            part: Some(Part::ToolResult(result)),
        }
    }
}
