//! Options of a turn in a request: tools, the shape of the answer, sampling.

use std::fmt;

use anneal_core::limits::{STOP_TEXTS, TOOLS};
use anneal_proto::v1::{self as pb, response_format, tool_choice};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    bounded_collections::{BoundedLabels, ListReader},
    problem::Problem,
};

/// The options of a turn, as the fields of its request.
#[derive(Debug, Default, Clone)]
pub(super) struct NewChatOptions {
    pub(super) tools: Option<NewTools>,
    pub(super) tool_choice: Option<NewToolChoice>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) response_format: Option<NewResponseFormat>,
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    pub(super) stop: Option<StopTexts>,
    pub(super) reasoning_effort: Option<NewReasoningEffort>,
    pub(super) metadata: Option<BoundedLabels>,
}

/// Tools, at most one more than [`TOOLS`].
#[derive(Debug, Default, Clone)]
pub(super) struct NewTools(Vec<NewTool>);

/// A tool that the model may call.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewTool {
    /// 1 to 64 letters, digits, _ and -; unique within the request.
    name: String,
    /// Description for the model.
    #[serde(default)]
    description: String,
    /// JSON Schema of the input. It is sent as it is. Absent: an object with any fields.
    #[schema(value_type = Option<Object>)]
    #[serde(default)]
    input_schema: Option<Box<RawValue>>,
}

/// Whether the model calls a tool, and which: either a mode or a name.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewToolChoice {
    /// auto, none or required.
    #[serde(default)]
    mode: Option<NewToolMode>,
    /// The model calls this tool, which must be declared.
    #[serde(default)]
    name: Option<String>,
}

/// Whether the model calls a tool.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum NewToolMode {
    /// The model decides.
    Auto,
    /// The model calls none.
    None,
    /// The model calls at least one.
    Required,
}

/// The shape of the answer's text: either of the two.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewResponseFormat {
    /// JSON that follows a schema.
    #[serde(default)]
    json_schema: Option<NewJsonSchema>,
    /// true: any JSON object.
    #[serde(default)]
    json_object: Option<bool>,
}

/// A schema of the answer.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewJsonSchema {
    /// 1 to 64 letters, digits, _ and -.
    name: String,
    /// The JSON Schema, at most 64 KiB. It is sent as it is.
    #[schema(value_type = Object)]
    schema: Box<RawValue>,
    /// Whether the provider should hold the model to the schema.
    #[serde(default)]
    strict: bool,
}

/// Texts before which the model stops, at most one more than [`STOP_TEXTS`].
#[derive(Debug, Default, Clone)]
pub(super) struct StopTexts(Vec<String>);

/// How much the model thinks before it answers.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum NewReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

// Schemas are content of callers, which is not shown.
impl fmt::Debug for NewTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTool").finish_non_exhaustive()
    }
}

impl fmt::Debug for NewJsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewJsonSchema").finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for NewTools {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(TOOLS)).map(Self)
    }
}

impl<'de> Deserialize<'de> for StopTexts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(STOP_TEXTS)).map(Self)
    }
}

impl NewChatOptions {
    /// The options as the RPC takes and checks them; None: none is given.
    pub(super) fn into_options(self) -> Result<Option<pb::ChatOptions>, Problem> {
        let options = pb::ChatOptions {
            tools: self
                .tools
                .unwrap_or_default()
                .0
                .into_iter()
                .map(pb::Tool::from)
                .collect(),
            tool_choice: self
                .tool_choice
                .map(NewToolChoice::into_choice)
                .transpose()?,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self
                .response_format
                .map(NewResponseFormat::into_format)
                .transpose()?,
            temperature: self.temperature,
            top_p: self.top_p,
            stop: self.stop.unwrap_or_default().0,
            reasoning_effort: effort(self.reasoning_effort).into(),
            metadata: self.metadata.unwrap_or_default().0,
            max_output_tokens: None,
        };
        Ok((options != pb::ChatOptions::default()).then_some(options))
    }
}

impl From<NewTool> for pb::Tool {
    fn from(tool: NewTool) -> Self {
        let schema = tool.input_schema;
        Self {
            name: tool.name,
            description: tool.description,
            input_schema: schema.map_or_else(String::new, |schema| schema.get().to_owned()),
        }
    }
}

impl NewToolChoice {
    fn into_choice(self) -> Result<pb::ToolChoice, Problem> {
        let choice = match (self.mode, self.name) {
            (Some(mode), None) => tool_choice::Choice::Mode(mode.into_mode().into()),
            (None, Some(name)) => tool_choice::Choice::Name(name),
            _ => {
                return Err(Problem::invalid(
                    "toolChoice",
                    "must have either a mode or the name of a tool",
                ));
            }
        };
        Ok(pb::ToolChoice {
            choice: Some(choice),
        })
    }
}

impl NewToolMode {
    const fn into_mode(self) -> tool_choice::Mode {
        match self {
            Self::Auto => tool_choice::Mode::Auto,
            Self::None => tool_choice::Mode::None,
            Self::Required => tool_choice::Mode::Required,
        }
    }
}

impl NewResponseFormat {
    fn into_format(self) -> Result<pb::ResponseFormat, Problem> {
        let format = match (self.json_schema, self.json_object) {
            (Some(schema), None) => {
                response_format::Format::JsonSchema(response_format::JsonSchema {
                    name: schema.name,
                    schema: schema.schema.get().to_owned(),
                    strict: schema.strict,
                })
            }
            (None, Some(any_object)) => response_format::Format::JsonObject(any_object),
            _ => {
                return Err(Problem::invalid(
                    "responseFormat",
                    "must have either jsonSchema or jsonObject",
                ));
            }
        };
        Ok(pb::ResponseFormat {
            format: Some(format),
        })
    }
}

const fn effort(effort: Option<NewReasoningEffort>) -> pb::ReasoningEffort {
    match effort {
        None => pb::ReasoningEffort::Unspecified,
        Some(NewReasoningEffort::None) => pb::ReasoningEffort::None,
        Some(NewReasoningEffort::Minimal) => pb::ReasoningEffort::Minimal,
        Some(NewReasoningEffort::Low) => pb::ReasoningEffort::Low,
        Some(NewReasoningEffort::Medium) => pb::ReasoningEffort::Medium,
        Some(NewReasoningEffort::High) => pb::ReasoningEffort::High,
        Some(NewReasoningEffort::Xhigh) => pb::ReasoningEffort::Xhigh,
        Some(NewReasoningEffort::Max) => pb::ReasoningEffort::Max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(text: &str) -> NewTools {
        serde_json::from_str(text).expect("is read")
    }

    #[test]
    fn a_schema_keeps_its_bytes() {
        let options = NewChatOptions {
            tools: Some(tools(
                r#"[{"name": "look", "inputSchema": {"type":"object",  "maximum": 1.00}}]"#,
            )),
            ..NewChatOptions::default()
        };
        let sent = options.into_options().expect("is valid").expect("is given");
        assert_eq!(
            sent.tools[0].input_schema,
            r#"{"type":"object",  "maximum": 1.00}"#
        );
    }

    #[test]
    fn no_options_are_none() {
        let sent = NewChatOptions::default().into_options();
        assert_eq!(sent.expect("is valid"), None);
    }

    #[test]
    fn at_most_one_tool_and_one_text_above_the_limits_is_kept() {
        let list = format!("[{}]", vec![r#"{"name": "a"}"#; 1_000].join(","));
        assert_eq!(tools(&list).0.len(), TOOLS + 1);
        let list = format!("[{}]", vec![r#""a""#; 1_000].join(","));
        let texts: StopTexts = serde_json::from_str(&list).expect("is read");
        assert_eq!(texts.0.len(), STOP_TEXTS + 1);
    }
}
