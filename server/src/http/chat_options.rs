//! Options of turns, in requests and in answers: tools, the shape of the answer, sampling.

use std::fmt;

use anneal_core::limits::{STOP_TEXTS, TOOLS};
use anneal_proto::v1::{self as pb, response_format, tool_choice};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    bounded_collections::{BoundedLabels, ListReader},
    problem::Problem,
};

/// Options of the turns of a session. The request of a turn has the same fields.
#[derive(Debug, Default, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ChatOptions {
    /// Tools that the model may call: at most 128, 256 KiB in all.
    #[schema(value_type = Option<Vec<Tool>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Tools>,
    /// Whether the model calls a tool, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_choice: Option<ToolChoice>,
    /// Whether one answer may call several tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parallel_tool_calls: Option<bool>,
    /// The shape of the answer's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_format: Option<ResponseFormat>,
    /// Sampling temperature, 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f32>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) top_p: Option<f32>,
    /// Texts before which the model stops: at most 16, each 1 to 128 bytes.
    #[schema(value_type = Option<Vec<String>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stop: Option<StopTexts>,
    /// How much the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_effort: Option<ReasoningEffort>,
    /// Labels for the provider: at most 32, with 4 KiB in all.
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<BoundedLabels>,
    /// Most tokens of the answer, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
}

/// Tools, at most one more than [`TOOLS`].
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct Tools(Vec<Tool>);

/// A tool that the model may call.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Tool {
    /// 1 to 64 letters, digits, _ and -; unique within the request.
    name: String,
    /// Description for the model.
    #[serde(default)]
    description: String,
    /// JSON Schema of the input. It is sent as it is. Absent: an object with any fields.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_schema: Option<Box<RawValue>>,
}

/// Whether the model calls a tool, and which: either a mode or a name.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ToolChoice {
    /// auto, none or required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<ToolMode>,
    /// The model calls this tool, which must be declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Whether the model calls a tool.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ToolMode {
    /// The model decides.
    Auto,
    /// The model calls none.
    None,
    /// The model calls at least one.
    Required,
}

/// The shape of the answer's text: either of the two.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResponseFormat {
    /// JSON that follows a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    json_schema: Option<JsonSchema>,
    /// true: any JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    json_object: Option<bool>,
}

/// A schema of the answer.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonSchema {
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
#[derive(Debug, Default, Clone, Serialize)]
pub(super) struct StopTexts(Vec<String>);

/// How much the model thinks before it answers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

// Schemas are content of callers, which is not shown.
impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").finish_non_exhaustive()
    }
}

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonSchema").finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Tools {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(TOOLS)).map(Self)
    }
}

impl<'de> Deserialize<'de> for StopTexts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(ListReader::new(STOP_TEXTS)).map(Self)
    }
}

impl ChatOptions {
    /// The options as the RPCs take and check them. `within`: what precedes the name of an option
    /// in the name of a field.
    pub(super) fn into_options(self, within: &str) -> Result<pb::ChatOptions, Problem> {
        Ok(pb::ChatOptions {
            tools: self
                .tools
                .unwrap_or_default()
                .0
                .into_iter()
                .map(pb::Tool::from)
                .collect(),
            tool_choice: self
                .tool_choice
                .map(|choice| choice.into_choice(within))
                .transpose()?,
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self
                .response_format
                .map(|format| format.into_format(within))
                .transpose()?,
            temperature: self.temperature,
            top_p: self.top_p,
            stop: self.stop.unwrap_or_default().0,
            reasoning_effort: effort(self.reasoning_effort).into(),
            metadata: self.metadata.unwrap_or_default().0,
            max_output_tokens: self.max_output_tokens,
        })
    }
}

impl From<pb::ChatOptions> for ChatOptions {
    fn from(options: pb::ChatOptions) -> Self {
        let tools: Vec<Tool> = options.tools.into_iter().map(Tool::from).collect();
        let effort = pb::ReasoningEffort::try_from(options.reasoning_effort);
        Self {
            tools: (!tools.is_empty()).then_some(Tools(tools)),
            tool_choice: options.tool_choice.and_then(ToolChoice::of),
            parallel_tool_calls: options.parallel_tool_calls,
            response_format: options.response_format.and_then(ResponseFormat::of),
            temperature: options.temperature,
            top_p: options.top_p,
            stop: (!options.stop.is_empty()).then_some(StopTexts(options.stop)),
            reasoning_effort: effort.ok().and_then(ReasoningEffort::of),
            metadata: (!options.metadata.is_empty()).then_some(BoundedLabels(options.metadata)),
            max_output_tokens: options.max_output_tokens,
        }
    }
}

impl From<pb::Tool> for Tool {
    fn from(tool: pb::Tool) -> Self {
        Self {
            name: tool.name,
            description: tool.description,
            // A stored schema is JSON.
            input_schema: RawValue::from_string(tool.input_schema).ok(),
        }
    }
}

impl From<Tool> for pb::Tool {
    fn from(tool: Tool) -> Self {
        let schema = tool.input_schema;
        Self {
            name: tool.name,
            description: tool.description,
            input_schema: schema.map_or_else(String::new, |schema| schema.get().to_owned()),
        }
    }
}

impl ToolChoice {
    fn into_choice(self, within: &str) -> Result<pb::ToolChoice, Problem> {
        let choice = match (self.mode, self.name) {
            (Some(mode), None) => tool_choice::Choice::Mode(mode.into_mode().into()),
            (None, Some(name)) => tool_choice::Choice::Name(name),
            _ => {
                return Err(Problem::invalid(
                    format!("{within}toolChoice"),
                    "must have either a mode or the name of a tool",
                ));
            }
        };
        Ok(pb::ToolChoice {
            choice: Some(choice),
        })
    }

    fn of(choice: pb::ToolChoice) -> Option<Self> {
        let (mode, name) = match choice.choice? {
            tool_choice::Choice::Mode(mode) => {
                let mode = tool_choice::Mode::try_from(mode).ok()?;
                (Some(ToolMode::of(mode)?), None)
            }
            tool_choice::Choice::Name(name) => (None, Some(name)),
        };
        Some(Self { mode, name })
    }
}

impl ToolMode {
    const fn into_mode(self) -> tool_choice::Mode {
        match self {
            Self::Auto => tool_choice::Mode::Auto,
            Self::None => tool_choice::Mode::None,
            Self::Required => tool_choice::Mode::Required,
        }
    }

    const fn of(mode: tool_choice::Mode) -> Option<Self> {
        match mode {
            tool_choice::Mode::Unspecified => None,
            tool_choice::Mode::Auto => Some(Self::Auto),
            tool_choice::Mode::None => Some(Self::None),
            tool_choice::Mode::Required => Some(Self::Required),
        }
    }
}

impl ResponseFormat {
    fn into_format(self, within: &str) -> Result<pb::ResponseFormat, Problem> {
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
                    format!("{within}responseFormat"),
                    "must have either jsonSchema or jsonObject",
                ));
            }
        };
        Ok(pb::ResponseFormat {
            format: Some(format),
        })
    }

    fn of(format: pb::ResponseFormat) -> Option<Self> {
        let (json_schema, json_object) = match format.format? {
            response_format::Format::JsonSchema(schema) => {
                let json_schema = JsonSchema {
                    name: schema.name,
                    // A stored schema is JSON.
                    schema: RawValue::from_string(schema.schema).ok()?,
                    strict: schema.strict,
                };
                (Some(json_schema), None)
            }
            response_format::Format::JsonObject(any_object) => (None, Some(any_object)),
        };
        Some(Self {
            json_schema,
            json_object,
        })
    }
}

impl ReasoningEffort {
    const fn of(effort: pb::ReasoningEffort) -> Option<Self> {
        match effort {
            pb::ReasoningEffort::Unspecified => None,
            pb::ReasoningEffort::None => Some(Self::None),
            pb::ReasoningEffort::Minimal => Some(Self::Minimal),
            pb::ReasoningEffort::Low => Some(Self::Low),
            pb::ReasoningEffort::Medium => Some(Self::Medium),
            pb::ReasoningEffort::High => Some(Self::High),
            pb::ReasoningEffort::Xhigh => Some(Self::Xhigh),
            pb::ReasoningEffort::Max => Some(Self::Max),
        }
    }
}

const fn effort(effort: Option<ReasoningEffort>) -> pb::ReasoningEffort {
    match effort {
        None => pb::ReasoningEffort::Unspecified,
        Some(ReasoningEffort::None) => pb::ReasoningEffort::None,
        Some(ReasoningEffort::Minimal) => pb::ReasoningEffort::Minimal,
        Some(ReasoningEffort::Low) => pb::ReasoningEffort::Low,
        Some(ReasoningEffort::Medium) => pb::ReasoningEffort::Medium,
        Some(ReasoningEffort::High) => pb::ReasoningEffort::High,
        Some(ReasoningEffort::Xhigh) => pb::ReasoningEffort::Xhigh,
        Some(ReasoningEffort::Max) => pb::ReasoningEffort::Max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(text: &str) -> Tools {
        serde_json::from_str(text).expect("is read")
    }

    #[test]
    fn a_schema_keeps_its_bytes() {
        let options = ChatOptions {
            tools: Some(tools(
                r#"[{"name": "look", "inputSchema": {"type":"object",  "maximum": 1.00}}]"#,
            )),
            ..ChatOptions::default()
        };
        let sent = options.into_options("").expect("is valid");
        assert_eq!(
            sent.tools[0].input_schema,
            r#"{"type":"object",  "maximum": 1.00}"#
        );
    }

    #[test]
    fn options_stay_the_same_there_and_back() {
        for text in [
            "{}",
            r#"{"toolChoice":{"mode":"required"},"responseFormat":{"jsonObject":true}}"#,
            concat!(
                r#"{"tools":[{"name":"look","description":"","inputSchema":{"n": 1.0}}],"#,
                r#""toolChoice":{"name":"look"},"parallelToolCalls":false,"#,
                r#""responseFormat":{"jsonSchema":{"name":"a","schema":{"n": 1.0},"strict":true}},"#,
                r#""temperature":0.7,"topP":0.5,"stop":["END"],"reasoningEffort":"xhigh","#,
                r#""metadata":{"k":"v"},"maxOutputTokens":7}"#,
            ),
        ] {
            let options: ChatOptions = serde_json::from_str(text).expect("is read");
            let sent = options.into_options("").expect("is valid");
            assert_eq!(sent == pb::ChatOptions::default(), text == "{}");
            let shown = serde_json::to_string(&ChatOptions::from(sent)).expect("is written");
            assert_eq!(shown, text);
        }
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
