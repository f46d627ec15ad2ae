//! Messages of the AI SDK in a request, as they are parsed.

use anneal_proto::{
    convert::{FieldError, parse},
    v1::{self as pb, part::Part},
};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::http::{bounded_collections::ListReader, problem::Problem};

/// Most parts of a message of the client, which may hold many steps.
const PARTS: usize = 10_000;
/// A message of the client. It may have further fields, which belong to the client.
#[derive(Debug, Deserialize)]
pub(super) struct UiMessage {
    /// The id that the client gave it.
    #[serde(default)]
    pub(super) id: String,
    pub(super) role: UiRole,
    pub(super) metadata: Option<Box<RawValue>>,
    pub(super) parts: UiParts,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum UiRole {
    System,
    User,
    Assistant,
}

/// Parts of a message, at most one more than [`PARTS`].
#[derive(Debug)]
pub(super) struct UiParts(pub(super) Vec<UiPart>);

/// A part of any type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UiPart {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    pub(super) media_type: Option<String>,
    pub(super) url: Option<String>,
    pub(super) filename: Option<String>,
    pub(super) provider_reference: Option<IgnoredAny>,
    pub(super) tool_call_id: Option<String>,
    pub(super) tool_name: Option<String>,
    pub(super) state: Option<String>,
    pub(super) input: Option<Box<RawValue>>,
    pub(super) raw_input: Option<Box<RawValue>>,
    pub(super) output: Option<Box<RawValue>>,
    pub(super) error_text: Option<String>,
    pub(super) provider_executed: Option<bool>,
}

impl<'de> Deserialize<'de> for UiParts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(PARTS)).map(Self)
    }
}

impl UiMessage {
    /// Parses a message, which is this field of the request.
    pub(super) fn parse(field: &str, raw: &RawValue) -> Result<Self, Problem> {
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        let parsed: Self =
            serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
                let inside = error.path().iter().next().map(|_| error.path().to_string());
                let field =
                    inside.map_or_else(|| field.to_owned(), |inside| format!("{field}.{inside}"));
                Problem::invalid(field, error.inner().to_string())
            })?;
        if parsed.parts.0.len() > PARTS {
            let reason = format!("must be at most {PARTS} parts");
            return Err(Problem::invalid(format!("{field}.parts"), reason));
        }
        Ok(parsed)
    }
}

impl UiPart {
    /// Whether the part is a tool call.
    pub(super) fn is_call(&self) -> bool {
        self.kind == "dynamic-tool" || self.kind.starts_with("tool-")
    }
}

/// A part as it is stored.
pub(super) const fn wire(part: Part) -> pb::Part {
    pb::Part { part: Some(part) }
}

/// Parses an id of the client: 1 to 128 bytes.
pub(super) fn parse_id<'a>(field: &str, id: &'a str) -> Result<&'a str, Problem> {
    parse::id(field, id).map_err(refused_field)
}

/// The problem of a field that keeps its name: other problems name it as a chat turn has it.
pub(super) fn refused_field(error: FieldError) -> Problem {
    match error {
        FieldError::Invalid { field, description } => Problem::invalid(field, description),
        FieldError::Limit { field, most, unit } => {
            Problem::invalid(field, format!("must be at most {most} {unit}"))
        }
    }
}
