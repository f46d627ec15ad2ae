//! How a model answers in a turn: the tools that it may call, the shape of its answer, sampling.
//! What a model's provider accepts of it is decided in `llm/`. The serialized form is the stored
//! one, and that of settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{
    cache::RequestIdentity,
    digest,
    provider_format::Format,
    tokens::{Encoding, FRAMING_PER_MESSAGE, Tokens},
};

/// The options of a turn. None: not set, so the next level or the provider decides.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatOptions {
    /// Tools that the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// Whether it calls one, and which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one answer may call several tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The shape of the answer's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// Sampling temperature, 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Texts before which the model stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// How much the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<ReasoningEffort>,
    /// Labels for the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Most tokens of the answer.
    #[serde(rename = "max_output_tokens", skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Tokens>,
}

/// An option of [`ChatOptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatOption {
    /// `tools` of [`ChatOptions`].
    Tools,
    /// `tool_choice` of [`ChatOptions`].
    ToolChoice,
    /// `parallel_tool_calls` of [`ChatOptions`].
    ParallelToolCalls,
    /// `response_format` of [`ChatOptions`].
    ResponseFormat,
    /// `temperature` of [`ChatOptions`].
    Temperature,
    /// `top_p` of [`ChatOptions`].
    TopP,
    /// `stop` of [`ChatOptions`].
    Stop,
    /// `reasoning_effort` of [`ChatOptions`].
    ReasoningEffort,
    /// `metadata` of [`ChatOptions`].
    Metadata,
    /// `output_tokens` of [`ChatOptions`].
    OutputTokens,
}

impl ChatOption {
    /// Its name in requests, in settings and in stored options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::ToolChoice => "tool_choice",
            Self::ParallelToolCalls => "parallel_tool_calls",
            Self::ResponseFormat => "response_format",
            Self::Temperature => "temperature",
            Self::TopP => "top_p",
            Self::Stop => "stop",
            Self::ReasoningEffort => "reasoning_effort",
            Self::Metadata => "metadata",
            Self::OutputTokens => "max_output_tokens",
        }
    }
}

/// No number is NaN: temperature and `top_p` are checked to be in their ranges.
impl Eq for ChatOptions {}

impl ChatOptions {
    /// These options, with those of `other` where one is not set here.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self {
            tools: self.tools.or(other.tools),
            tool_choice: self.tool_choice.or(other.tool_choice),
            parallel_tool_calls: self.parallel_tool_calls.or(other.parallel_tool_calls),
            response_format: self.response_format.or(other.response_format),
            temperature: self.temperature.or(other.temperature),
            top_p: self.top_p.or(other.top_p),
            stop: self.stop.or(other.stop),
            reasoning_effort: self.reasoning_effort.or(other.reasoning_effort),
            metadata: self.metadata.or(other.metadata),
            output_tokens: self.output_tokens.or(other.output_tokens),
        }
    }

    /// The options that are set.
    pub fn given(&self) -> Vec<ChatOption> {
        let Self {
            tools,
            tool_choice,
            parallel_tool_calls,
            response_format,
            temperature,
            top_p,
            stop,
            reasoning_effort,
            metadata,
            output_tokens,
        } = self;
        let all = [
            (ChatOption::Tools, tools.is_some()),
            (ChatOption::ToolChoice, tool_choice.is_some()),
            (ChatOption::ParallelToolCalls, parallel_tool_calls.is_some()),
            (ChatOption::ResponseFormat, response_format.is_some()),
            (ChatOption::Temperature, temperature.is_some()),
            (ChatOption::TopP, top_p.is_some()),
            (ChatOption::Stop, stop.is_some()),
            (ChatOption::ReasoningEffort, reasoning_effort.is_some()),
            (ChatOption::Metadata, metadata.is_some()),
            (ChatOption::OutputTokens, output_tokens.is_some()),
        ];
        let given = all.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(option, _)| option).collect()
    }

    /// The declared tools.
    pub fn tools(&self) -> &[Tool] {
        self.tools.as_deref().unwrap_or_default()
    }

    /// Bytes of the texts that the options hold.
    pub fn bytes(&self) -> usize {
        let tools = self.tools().iter().flat_map(Tool::texts).map(str::len);
        let schema = match &self.response_format {
            Some(ResponseFormat::JsonSchema { name, schema, .. }) => name.len() + schema.len(),
            Some(ResponseFormat::JsonObject) | None => 0,
        };
        let stop = self.stop.iter().flatten().map(String::len);
        let labels = self.metadata.iter().flatten();
        let labels = labels.map(|(key, value)| key.len() + value.len());
        tools.sum::<usize>() + schema + stop.sum::<usize>() + labels.sum::<usize>()
    }

    /// What a provider's cache depends on, beside the context, in a call of this model with these
    /// options. Tokens are estimated in the encoding. The digests are stored, so they are of the
    /// stored form, which later versions keep.
    pub fn identity(&self, model: &str, encoding: Encoding) -> RequestIdentity {
        let tool_texts = self.tools().iter().flat_map(Tool::texts);
        let options = Self {
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.response_format.clone(),
            reasoning_effort: self.reasoning_effort,
            ..Self::default()
        };
        // Texts, enums and booleans always serialize.
        let options = serde_json::to_string(&options).unwrap_or_default();
        RequestIdentity {
            model: Some(model.to_owned()),
            tools: Some(digest::of_fields(tool_texts.map(str::as_bytes))),
            options: Some(digest::of_content(&options)),
            tools_tokens: self
                .tools()
                .iter()
                .map(|tool| tool.estimate_tokens(encoding))
                .sum(),
        }
    }
}

/// Whether a model calls a tool, and which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// It calls none.
    None,
    /// It calls at least one.
    Required,
    /// It calls the tool of this name.
    #[serde(rename = "name")]
    Named(String),
}

/// The shape of an answer's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema {
        /// The schema's name.
        name: String,
        /// The schema, as JSON text.
        schema: String,
        /// Whether the provider should hold the model to it.
        #[serde(default)]
        strict: bool,
    },
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// Not at all.
    None,
    /// As little as it can.
    Minimal,
    /// Little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
    /// More than [`Self::High`].
    XHigh,
    /// As much as it can.
    Max,
}

/// A tool that the model may call.
///
/// [`Tool::new`] accepts the names that OpenAI and Anthropic accept, and
/// [`Tool::is_accepted_by`] says what Gemini refuses beyond that. The names in stored tool calls
/// follow a rule of their own, which replaces names that the provider refuses:
/// `context/repair/tool_identifiers.rs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ToolFields")]
pub struct Tool {
    name: String,
    description: String,
    input_schema: String,
}

/// The fields of a serialized tool, which are checked.
#[derive(Deserialize)]
struct ToolFields {
    name: String,
    #[serde(default)]
    description: String,
    input_schema: String,
}

impl TryFrom<ToolFields> for Tool {
    type Error = ToolError;

    fn try_from(fields: ToolFields) -> Result<Self, ToolError> {
        Self::new(fields.name, fields.description, fields.input_schema)
    }
}

/// Why a tool is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The name is not 1 to 64 letters, digits, `_` and `-`.
    #[error("a tool's name must be 1 to 64 letters, digits, underscores or dashes")]
    Name,
    /// The schema is not a JSON object.
    #[error("a tool's input schema must be a JSON object")]
    Schema,
}

impl Tool {
    /// Longest name that OpenAI, Anthropic and Gemini accept. The names in stored calls may be
    /// longer: `context/repair/tool_identifiers.rs` replaces them when a context is built.
    const MAX_NAME_BYTES: usize = 64;

    /// A tool with a name, a description, and the JSON Schema of its input as JSON text, which is
    /// sent unchanged.
    pub fn new(name: String, description: String, input_schema: String) -> Result<Self, ToolError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > Self::MAX_NAME_BYTES || !name.bytes().all(is_plain) {
            return Err(ToolError::Name);
        }
        let is_json = serde_json::from_str::<IgnoredAny>(&input_schema).is_ok();
        if !is_json || !input_schema.trim_start().starts_with('{') {
            return Err(ToolError::Schema);
        }
        Ok(Self {
            name,
            description,
            input_schema,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its description for the model.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON Schema of its input, as JSON text.
    pub fn input_schema(&self) -> &str {
        &self.input_schema
    }

    /// Name, description and schema.
    fn texts(&self) -> [&str; 3] {
        [&self.name, &self.description, &self.input_schema]
    }

    /// Estimated tokens of its declaration, with the framing of a message.
    pub fn estimate_tokens(&self, encoding: Encoding) -> Tokens {
        let texts = self.texts().into_iter();
        texts.map(|text| encoding.estimate(text)).sum::<Tokens>() + FRAMING_PER_MESSAGE
    }

    /// Whether providers of this format accept the name. Gemini refuses a call with a tool whose
    /// name begins with a digit or a dash.
    pub fn is_accepted_by(&self, format: Format) -> bool {
        let begins_with_digit_or_dash = self
            .name
            .starts_with(|c: char| c.is_ascii_digit() || c == '-');
        format != Format::GeminiContents || !begins_with_digit_or_dash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_set_stays_and_one_that_is_not_comes_from_the_next_level() {
        let own = ChatOptions {
            temperature: Some(0.5),
            tool_choice: Some(ToolChoice::None),
            ..ChatOptions::default()
        };
        let next = ChatOptions {
            temperature: Some(1.0),
            top_p: Some(0.25),
            ..ChatOptions::default()
        };
        let expected = ChatOptions {
            temperature: Some(0.5),
            top_p: Some(0.25),
            tool_choice: Some(ToolChoice::None),
            ..ChatOptions::default()
        };
        assert_eq!(own.over(next), expected);
    }

    #[test]
    fn an_identity_differs_with_the_tools_and_with_the_options_of_a_caches_key() {
        let tool =
            |name: &str| Tool::new(name.into(), String::new(), "{}".into()).expect("a valid tool");
        let with_tools = |names: &[&str]| ChatOptions {
            tools: Some(names.iter().map(|name| tool(name)).collect()),
            ..ChatOptions::default()
        };
        let identity = |options: &ChatOptions| options.identity("m", Encoding::default());
        let (one, two) = (with_tools(&["a"]), with_tools(&["a", "b"]));
        assert_ne!(identity(&one).tools, identity(&two).tools);
        assert!(identity(&one).tools_tokens < identity(&two).tools_tokens);
        assert_eq!(identity(&one).options, identity(&two).options);
        let forced = ChatOptions {
            tool_choice: Some(ToolChoice::Required),
            ..one.clone()
        };
        assert_ne!(identity(&one).options, identity(&forced).options);
        let warmer = ChatOptions {
            temperature: Some(1.5),
            ..one.clone()
        };
        assert_eq!(identity(&one), identity(&warmer));
    }

    #[test]
    fn the_bytes_of_options_are_those_of_their_texts() {
        let tool = Tool::new("look".into(), "Looks.".into(), "{}".into()).expect("a valid tool");
        let options = ChatOptions {
            tools: Some(vec![tool.clone(), tool]),
            tool_choice: Some(ToolChoice::Required),
            response_format: Some(ResponseFormat::JsonSchema {
                name: "answer".into(),
                schema: "{}".into(),
                strict: true,
            }),
            stop: Some(vec!["END".into()]),
            metadata: Some(BTreeMap::from([("a".into(), "bc".into())])),
            ..ChatOptions::default()
        };
        let (tools, schema, stop, labels) = (2 * (4 + 6 + 2), 6 + 2, 3, 3);
        assert_eq!(options.bytes(), tools + schema + stop + labels);
        assert_eq!(ChatOptions::default().bytes(), 0);
    }

    #[test]
    fn the_digest_of_options_is_that_of_their_stored_form() {
        let options = ChatOptions {
            tool_choice: Some(ToolChoice::Named("look".into())),
            parallel_tool_calls: Some(false),
            response_format: Some(ResponseFormat::JsonObject),
            reasoning_effort: Some(ReasoningEffort::XHigh),
            ..ChatOptions::default()
        };
        let digest = |options: &ChatOptions| options.identity("m", Encoding::default()).options;
        let stored = r#"{"tool_choice":{"name":"look"},"parallel_tool_calls":false,"response_format":"json_object","reasoning_effort":"xhigh"}"#;
        assert_eq!(digest(&options), Some(digest::of_content(stored)));
        let none = ChatOptions::default();
        assert_eq!(digest(&none), Some(digest::of_content("{}")));
    }

    #[test]
    fn options_stay_the_same_when_they_are_stored() {
        let schema = r#"{"type": "object", "maximum": 1.00, "z": 1e5}"#;
        let tool = Tool::new("look".into(), "Looks.".into(), schema.into()).expect("a valid tool");
        let options = ChatOptions {
            tools: Some(vec![tool]),
            tool_choice: Some(ToolChoice::Named("look".into())),
            parallel_tool_calls: Some(false),
            response_format: Some(ResponseFormat::JsonSchema {
                name: "answer".into(),
                schema: schema.into(),
                strict: true,
            }),
            temperature: Some(0.1),
            top_p: Some(0.7),
            stop: Some(vec!["END".into()]),
            reasoning_effort: Some(ReasoningEffort::XHigh),
            metadata: Some(BTreeMap::from([("a".into(), "b".into())])),
            output_tokens: Some(Tokens::new(7)),
        };
        let stored = serde_json::to_string(&options).expect("serializes");
        assert_eq!(
            serde_json::from_str::<ChatOptions>(&stored).expect("is read"),
            options
        );
        assert!(
            stored.contains(r#""tool_choice":{"name":"look"}"#),
            "{stored}"
        );
        assert!(stored.contains(r#""reasoning_effort":"xhigh""#), "{stored}");
        let fields: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(&stored).expect("an object");
        let mut names: Vec<&str> = options.given().into_iter().map(ChatOption::name).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            fields.keys().map(String::as_str).collect::<Vec<_>>(),
            "all are given"
        );
        let none = serde_json::to_string(&ChatOptions::default()).expect("serializes");
        assert_eq!(none, "{}");
        let invalid = r#"{"tools": [{"name": "two words", "input_schema": "{}"}]}"#;
        serde_json::from_str::<ChatOptions>(invalid).expect_err("has an invalid tool");
        let later = r#"{"a_later_option": 1, "temperature": 0.5}"#;
        let read =
            serde_json::from_str::<ChatOptions>(later).expect("ignores what it does not know");
        assert_eq!(read.temperature, Some(0.5));
    }

    #[test]
    fn only_gemini_refuses_names_that_begin_with_a_digit_or_a_dash() {
        for (name, is_accepted) in [("_9", true), ("look", true), ("9a", false), ("-a", false)] {
            let tool = Tool::new(name.into(), String::new(), "{}".into()).expect("is valid");
            assert_eq!(
                tool.is_accepted_by(Format::GeminiContents),
                is_accepted,
                "{name}"
            );
            assert!(tool.is_accepted_by(Format::OpenAiChat), "{name}");
            assert!(tool.is_accepted_by(Format::AnthropicMessages), "{name}");
        }
    }

    #[test]
    fn a_tool_with_a_malformed_name_or_schema_is_invalid() {
        let tool = |name: &str, schema: &str| {
            Tool::new(name.into(), String::new(), schema.into()).map(drop)
        };
        assert_eq!(tool("look_up-2", " {\"type\": \"object\"}"), Ok(()));
        for name in ["", "two words", "größe", "a.b", &"x".repeat(65)] {
            assert_eq!(tool(name, "{}"), Err(ToolError::Name), "{name}");
        }
        for schema in ["", "{", "[]", "\"{}\"", "{} {}", "{\"a\":1,}"] {
            assert_eq!(tool("look", schema), Err(ToolError::Schema), "{schema}");
        }
    }
}
