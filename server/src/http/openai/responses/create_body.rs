//! The body of a create: what is honoured, and what is refused by name.

use std::{collections::HashMap, ops::RangeInclusive, sync::Arc};

use anneal_core::{caller::ConversationId, limits::SYSTEM_PROMPT_BYTES};
use anneal_proto::{
    convert::parse,
    v1::{self as pb, response_format},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::tools::{ToolSettings, check_name};
use crate::http::openai::{
    errors::ApiError,
    fields::{Fields, unsupported, unsupported_value},
    ids,
    request::{OUTPUT_TOKENS, check_included, parse_metadata},
};

/// Most characters of `safety_identifier`, `prompt_cache_key` and `user`.
const IDENTIFIER_CHARS: usize = 64;
/// Values of `max_output_tokens`. The specification names the least one.
const OUTPUT_RANGE: RangeInclusive<u64> = 16..=OUTPUT_TOKENS;
/// Most values of `include`, and entries of `context_management`.
const LIST_VALUES: usize = 16;

/// A create, read and checked.
#[derive(Debug, Clone)]
pub(super) struct CreateBody {
    pub(super) model: Option<String>,
    /// A text or a list of items, not read yet.
    input: Option<Arc<Value>>,
    pub(super) instructions: Option<String>,
    pub(super) origin: Origin,
    pub(super) background: bool,
    pub(super) store: bool,
    pub(super) reduction: Reduction,
    pub(super) tools: ToolSettings,
    pub(super) options: TextOptions,
    pub(super) max_tool_calls: Option<u64>,
    pub(super) labels: Labels,
    /// The names of the parameters that are unknown and ignored.
    pub(super) ignored: Vec<String>,
}

/// What a response continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nothing: it begins anew.
    Nothing,
    /// A conversation that the caller names. The response becomes a part of it.
    Conversation(ConversationId),
    /// An earlier response.
    Response(Uuid),
}

/// What may be left out of a context, so that it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reduction {
    /// Nothing: a context that is too long is refused (`truncation: disabled`).
    Nothing,
    /// Whatever the server's policy says (`truncation: auto`).
    Automatic,
    /// Older messages are summarized, at so many tokens if given (`context_management`).
    Compaction(Option<u64>),
}

/// How the model answers, beside tools.
#[derive(Debug, Clone, Default)]
pub(super) struct TextOptions {
    pub(super) format: Option<response_format::Format>,
    /// Whether `text.verbosity` was given, as its only accepted value.
    pub(super) has_verbosity: bool,
    pub(super) effort: pb::ReasoningEffort,
    /// Paths of options that have no effect.
    pub(super) ignored: Vec<String>,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    pub(super) parallel_tool_calls: Option<bool>,
}

/// What an answer shows again, and nothing else is done with.
#[derive(Debug, Clone, Default)]
pub(super) struct Labels {
    pub(super) metadata: HashMap<String, String>,
    pub(super) safety_identifier: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) user: Option<String>,
}

impl CreateBody {
    /// Reads and checks a body.
    pub(super) fn parse(body: Value) -> Result<Self, ApiError> {
        let mut body = match body {
            Value::Object(body) => body,
            other => return Err(ApiError::invalid_type("body", "an object", &other)),
        };
        // Another thread may read it, so it must not be a part of the body.
        let input = body.remove("input").filter(|input| !input.is_null());
        let mut body = Fields::of_object(&body, "");
        refuse_unsupported(&mut body)?;
        check_include(&mut body)?;
        // How the answer is sent is not a matter of the turn.
        body.flag("stream")?;
        let mut read = Self {
            model: body.text("model")?.map(str::to_owned),
            input: input.map(Arc::new),
            instructions: take_instructions(&mut body)?,
            origin: Origin::take(&mut body)?,
            background: body.flag("background")?.unwrap_or(false),
            store: body.flag("store")?.unwrap_or(true),
            reduction: Reduction::take(&mut body)?,
            tools: ToolSettings::take(&mut body)?,
            options: TextOptions::take(&mut body)?,
            max_tool_calls: body.integer("max_tool_calls", 1..=u64::MAX)?,
            labels: Labels::take(&mut body)?,
            ignored: body.ignored(),
        };
        let of_tools = std::mem::take(&mut read.tools.ignored);
        let of_options = std::mem::take(&mut read.options.ignored);
        read.ignored.extend(of_tools.into_iter().chain(of_options));
        read.check()?;
        Ok(read)
    }

    /// The input. Fails if there is none.
    pub(super) fn input(&self) -> Result<&Arc<Value>, ApiError> {
        let input = self.input.as_ref();
        input.ok_or_else(|| ApiError::missing_parameter("input"))
    }

    /// Refuses parameters that contradict each other.
    fn check(&self) -> Result<(), ApiError> {
        if !self.store && self.background {
            return Err(ApiError::invalid(
                "background",
                Some("invalid_value"),
                "A response in the background must be stored: 'background' needs 'store'.",
            ));
        }
        if !self.store && matches!(self.origin, Origin::Conversation(_)) {
            return Err(ApiError::invalid(
                "store",
                Some("invalid_value"),
                "A response in a conversation is stored there: 'store' must not be false together \
                 with 'conversation'.",
            ));
        }
        if matches!(self.origin, Origin::Conversation(_))
            && matches!(self.reduction, Reduction::Compaction(_))
        {
            return Err(unsupported(
                "context_management",
                "A conversation has a policy of its own: leave out 'context_management' together \
                 with 'conversation'.",
            ));
        }
        Ok(())
    }
}

/// Takes the instructions, which are a system prompt.
fn take_instructions(body: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    let text = body.text("instructions")?;
    let text = text.map(|text| parse::bounded_text("instructions", text, SYSTEM_PROMPT_BYTES));
    Ok(text.transpose()?.map(str::to_owned))
}

/// Refuses the parameters that are known and not supported. Their default values are accepted.
fn refuse_unsupported(body: &mut Fields<'_>) -> Result<(), ApiError> {
    for (name, supported) in [
        ("prompt", "Send the prompt's text as 'instructions'."),
        ("moderation", "Leave it out."),
        ("access_programs", "Leave it out."),
        ("background_options", "Leave it out."),
        ("prompt_cache_options", "Leave it out."),
        ("prompt_cache_retention", "Leave it out."),
        ("image", "Leave it out."),
    ] {
        body.refuse(name, supported)?;
    }
    for name in ["presence_penalty", "frequency_penalty"] {
        if body
            .number(name, -2.0..=2.0)?
            .is_some_and(|number| number != 0.0)
        {
            return Err(unsupported(name, "The supported value is 0."));
        }
    }
    if body.integer("top_logprobs", 0..=u64::MAX)?.unwrap_or(0) > 0 {
        return Err(unsupported("top_logprobs", "The supported value is 0."));
    }
    if let Some(tier) = body.text("service_tier")?
        && !matches!(tier, "auto" | "default")
    {
        return Err(unsupported(
            "service_tier",
            "Supported are 'auto' and 'default'.",
        ));
    }
    if let Some(mut options) = body.object("stream_options")? {
        if options.flag("include_obfuscation")? == Some(true) {
            return Err(unsupported(
                "stream_options.include_obfuscation",
                "The supported value is false.",
            ));
        }
        options.finish()?;
    }
    Ok(())
}

impl Origin {
    /// Takes `conversation` or `previous_response_id`.
    pub(super) fn take(body: &mut Fields<'_>) -> Result<Self, ApiError> {
        let conversation = match body.value("conversation") {
            None => None,
            Some(Value::String(id)) => Some(id.as_str()),
            Some(value @ Value::Object(_)) => {
                Some(Fields::of(value, "conversation")?.required_text("id")?)
            }
            Some(other) => {
                return Err(ApiError::invalid_type(
                    "conversation",
                    "a string or an object",
                    other,
                ));
            }
        };
        let previous = body.text("previous_response_id")?;
        match (conversation, previous) {
            (None, None) => Ok(Self::Nothing),
            (Some(_), Some(_)) => Err(ApiError::invalid(
                "conversation",
                Some("mutually_exclusive_parameters"),
                "Mutually exclusive parameters: 'conversation' and 'previous_response_id'. Only \
                 one of them may be given.",
            )),
            (Some(id), None) => ids::parse_conversation_id(id)
                .map(Self::Conversation)
                .ok_or_else(|| no_conversation_id(id)),
            (None, Some(id)) => ids::parse_response_id(id)
                .map(Self::Response)
                .ok_or_else(|| no_previous_response(id)),
        }
    }
}

fn no_conversation_id(id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    ApiError::invalid(
        "conversation",
        Some("invalid_value"),
        format!(
            "Invalid 'conversation': '{shown}'. Expected an ID that begins with 'conv_' and 32 \
             hexadecimal digits after it."
        ),
    )
}

/// The refusal of a response that continues an unknown one.
pub(super) fn no_previous_response(id: &str) -> ApiError {
    let shown: String = id.chars().take(64).collect();
    ApiError::not_found(format!("Previous response with id '{shown}' not found."))
        .with_code("previous_response_not_found")
}

impl Reduction {
    fn take(body: &mut Fields<'_>) -> Result<Self, ApiError> {
        let truncation = body.one_of("truncation", &["auto", "disabled"])?;
        let entries = body.short_list("context_management", LIST_VALUES)?;
        let mut compaction = None;
        for (index, entry) in entries.unwrap_or_default().iter().enumerate() {
            let path = format!("context_management[{index}]");
            let mut entry = Fields::of(entry, &path)?;
            let kind = entry.required_text("type")?;
            if kind != "compaction" {
                return Err(unsupported_value(
                    entry.param("type"),
                    kind,
                    &["compaction"],
                ));
            }
            if compaction.is_some() {
                return Err(unsupported(
                    &path,
                    "Give one entry of the type 'compaction'.",
                ));
            }
            compaction = Some(entry.integer("compact_threshold", 1..=u64::MAX)?);
            entry.finish()?;
        }
        Ok(match (compaction, truncation) {
            (Some(threshold), _) => Self::Compaction(threshold),
            (None, Some("auto")) => Self::Automatic,
            (None, _) => Self::Nothing,
        })
    }

    /// The value of `truncation` in an answer.
    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Automatic => "auto",
            Self::Nothing | Self::Compaction(_) => "disabled",
        }
    }

    /// What happens to a turn whose context is too long.
    pub(super) const fn on_overflow(self) -> pb::OnOverflow {
        match self {
            Self::Nothing => pb::OnOverflow::Fail,
            Self::Automatic | Self::Compaction(_) => pb::OnOverflow::Reduce,
        }
    }
}

/// Refuses values of `include` about what no answer has.
fn check_include(body: &mut Fields<'_>) -> Result<(), ApiError> {
    let values = body.short_list("include", LIST_VALUES)?;
    for (index, value) in values.unwrap_or_default().iter().enumerate() {
        let path = format!("include[{index}]");
        match value.as_str() {
            Some(text) => check_included(text, &path)?,
            None => return Err(ApiError::invalid_type(path, "a string", value)),
        }
    }
    Ok(())
}

impl TextOptions {
    fn take(body: &mut Fields<'_>) -> Result<Self, ApiError> {
        let mut options = Self {
            max_output_tokens: body.integer("max_output_tokens", OUTPUT_RANGE)?,
            temperature: body
                .number("temperature", 0.0..=2.0)?
                .map(|number| number as f32),
            top_p: body.number("top_p", 0.0..=1.0)?.map(|number| number as f32),
            parallel_tool_calls: body.flag("parallel_tool_calls")?,
            ..Self::default()
        };
        if let Some(text) = body.object("text")? {
            options.take_text(text)?;
        }
        if let Some(reasoning) = body.object("reasoning")? {
            options.take_reasoning(reasoning)?;
        }
        Ok(options)
    }

    fn take_text(&mut self, mut text: Fields<'_>) -> Result<(), ApiError> {
        if let Some(verbosity) = text.one_of("verbosity", &["low", "medium", "high"])? {
            if verbosity != "medium" {
                return Err(unsupported(
                    "text.verbosity",
                    "The supported value is 'medium'.",
                ));
            }
            self.has_verbosity = true;
        }
        if let Some(mut format) = text.object("format")? {
            let kind = format.one_of("type", &["text", "json_object", "json_schema"])?;
            self.format =
                match kind.ok_or_else(|| ApiError::missing_parameter("text.format.type"))? {
                    "json_object" => Some(response_format::Format::JsonObject(true)),
                    "json_schema" => Some(take_schema(&mut format)?),
                    _ => None,
                };
            format.finish()?;
        }
        text.finish()
    }

    fn take_reasoning(&mut self, mut reasoning: Fields<'_>) -> Result<(), ApiError> {
        // Those of the specification: an answer could not show another one.
        const EFFORTS: [(&str, pb::ReasoningEffort); 5] = [
            ("none", pb::ReasoningEffort::None),
            ("low", pb::ReasoningEffort::Low),
            ("medium", pb::ReasoningEffort::Medium),
            ("high", pb::ReasoningEffort::High),
            ("xhigh", pb::ReasoningEffort::Xhigh),
        ];
        let effort = reasoning.one_of("effort", &EFFORTS.map(|(name, _)| name))?;
        if let Some(name) = effort {
            let known = EFFORTS.iter().find(|(known, _)| *known == name);
            self.effort = known.map_or_else(pb::ReasoningEffort::default, |(_, effort)| *effort);
        }
        for name in ["summary", "generate_summary"] {
            let summary = reasoning.one_of(name, &["auto", "concise", "detailed"])?;
            if summary.is_some_and(|summary| summary != "auto") {
                return Err(unsupported(
                    &reasoning.param(name),
                    "The supported value is 'auto'.",
                ));
            }
            if summary.is_some() {
                self.ignored.push(reasoning.param(name));
            }
        }
        reasoning.finish()
    }
}

/// Takes a JSON schema. Its description is for the model, so it becomes a part of the schema, which
/// is what the model gets.
fn take_schema(format: &mut Fields<'_>) -> Result<response_format::Format, ApiError> {
    let name = format.required_text("name")?;
    check_name("text.format.name", name)?;
    let description = format.text("description")?;
    let strict = format.flag("strict")?.unwrap_or(false);
    let mut schema = match format.value("schema") {
        Some(Value::Object(schema)) => schema.clone(),
        Some(other) => {
            return Err(ApiError::invalid_type(
                "text.format.schema",
                "an object",
                other,
            ));
        }
        None => return Err(ApiError::missing_parameter("text.format.schema")),
    };
    if let Some(description) = description {
        schema
            .entry("description")
            .or_insert_with(|| json!(description));
    }
    Ok(response_format::Format::JsonSchema(
        response_format::JsonSchema {
            name: name.to_owned(),
            schema: Value::Object(schema).to_string(),
            strict,
        },
    ))
}

impl Labels {
    fn take(body: &mut Fields<'_>) -> Result<Self, ApiError> {
        Ok(Self {
            metadata: match body.value("metadata") {
                Some(metadata) => parse_metadata(metadata)?,
                None => HashMap::new(),
            },
            safety_identifier: body
                .short_text("safety_identifier", IDENTIFIER_CHARS)?
                .map(str::to_owned),
            prompt_cache_key: body
                .short_text("prompt_cache_key", IDENTIFIER_CHARS)?
                .map(str::to_owned),
            user: body
                .short_text("user", IDENTIFIER_CHARS)?
                .map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(mut body: Value) -> Result<CreateBody, ApiError> {
        body["input"] = json!("hi");
        CreateBody::parse(body)
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_path_and_its_default_is_accepted() {
        for (body, param) in [
            (json!({"prompt": {"id": "p"}}), "prompt"),
            (json!({"moderation": {}}), "moderation"),
            (json!({"prompt_cache_options": {}}), "prompt_cache_options"),
            (json!({"presence_penalty": 0.5}), "presence_penalty"),
            (json!({"frequency_penalty": -1}), "frequency_penalty"),
            (json!({"top_logprobs": 3}), "top_logprobs"),
            (json!({"service_tier": "flex"}), "service_tier"),
            (
                json!({"stream_options": {"include_obfuscation": true}}),
                "stream_options.include_obfuscation",
            ),
            (
                json!({"include": ["message.output_text.logprobs"]}),
                "include[0]",
            ),
            (json!({"text": {"verbosity": "high"}}), "text.verbosity"),
            (
                json!({"reasoning": {"summary": "detailed"}}),
                "reasoning.summary",
            ),
        ] {
            let error = parse(body.clone()).expect_err("is refused");
            assert_eq!(error.code(), Some("unsupported_parameter"), "{body}");
            assert_eq!(error.object()["param"], param, "{body}");
        }
        let defaults = json!({
            "prompt": null, "presence_penalty": 0, "frequency_penalty": 0.0, "top_logprobs": 0,
            "service_tier": "auto", "stream_options": {"include_obfuscation": false},
            "text": {"verbosity": "medium"}, "reasoning": {"summary": "auto"},
        });
        assert!(parse(defaults).is_ok());
    }

    #[test]
    fn unknown_parameters_are_listed_and_ignored_but_not_within_objects() {
        let body = parse(json!({"zeta": 1, "alpha": {}})).expect("is valid");
        assert_eq!(body.ignored, ["alpha", "zeta"]);
        let error = parse(json!({"reasoning": {"depth": 3}})).err();
        assert_eq!(
            error.expect("is refused").object()["param"],
            "reasoning.depth"
        );
    }

    #[test]
    fn parameters_that_contradict_each_other_are_refused() {
        let conversation = format!("conv_{:032x}", 7);
        let previous = format!("resp_{:032x}", 7);
        for (body, param) in [
            (json!({"store": false, "background": true}), "background"),
            (
                json!({"store": false, "conversation": conversation}),
                "store",
            ),
            (
                json!({"conversation": conversation, "previous_response_id": previous}),
                "conversation",
            ),
            (
                json!({"conversation": {"id": conversation},
                       "context_management": [{"type": "compaction"}]}),
                "context_management",
            ),
            (json!({"conversation": "cv_1"}), "conversation"),
            (json!({"max_output_tokens": 15}), "max_output_tokens"),
            (
                json!({"max_output_tokens": OUTPUT_TOKENS + 1}),
                "max_output_tokens",
            ),
            (
                json!({"reasoning": {"effort": "minimal"}}),
                "reasoning.effort",
            ),
            (json!({"reasoning": {"effort": "max"}}), "reasoning.effort"),
            (json!({"temperature": 2.1}), "temperature"),
            (json!({"metadata": {"a": 1}}), "metadata.a"),
        ] {
            let error = parse(body.clone()).expect_err("is refused");
            assert_eq!(
                (error.status(), error.object()["param"].as_str()),
                (400, Some(param)),
                "{body}"
            );
        }
        let error = parse(json!({"previous_response_id": "resp_x"})).err();
        let error = error.expect("is refused");
        assert_eq!(
            (error.status(), error.code()),
            (404, Some("previous_response_not_found"))
        );
    }

    #[test]
    fn a_body_that_is_no_object_is_refused_by_its_type() {
        for body in [json!([]), json!("a"), json!(null)] {
            let refused = CreateBody::parse(body).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!("body"), &json!("invalid_type"))
            );
        }
    }

    #[test]
    fn nothing_is_left_out_unless_the_request_asks_for_it() {
        let reduction = |body| parse(body).expect("is valid").reduction;
        assert_eq!(reduction(json!({})), Reduction::Nothing);
        assert_eq!(
            reduction(json!({"truncation": "auto"})),
            Reduction::Automatic
        );
        let asked = json!({"context_management": [{"type": "compaction", "compact_threshold": 9}]});
        assert_eq!(reduction(asked), Reduction::Compaction(Some(9)));
    }

    #[test]
    fn the_description_of_a_schema_reaches_the_model() {
        let body = parse(json!({"text": {"format": {
            "type": "json_schema", "name": "a", "description": "why", "schema": {"type": "object"},
            "strict": true
        }}}));
        let format = body.expect("is valid").options.format;
        let Some(response_format::Format::JsonSchema(schema)) = format else {
            panic!("{format:?} is no schema");
        };
        assert_eq!(schema.schema, r#"{"description":"why","type":"object"}"#);
        assert!(schema.strict);
    }
}
