//! Options of a turn: tools, the shape of the answer, sampling.

use std::collections::{BTreeMap, HashMap, HashSet};

use anneal_core::{
    chat_options::{ChatOptions, ReasoningEffort, ResponseFormat, Tool, ToolChoice, ToolError},
    limits::{ID_BYTES, RESPONSE_SCHEMA_BYTES, STOP_TEXTS, TOOLS, TOOLS_BYTES},
    tokens::Tokens,
};
use pb::{response_format, tool_choice};

use super::{FieldError, parse};
use crate::v1 as pb;

/// The input schema of a tool that gives none.
const ANY_OBJECT_SCHEMA: &str = r#"{"type":"object"}"#;

/// Parses the options in the field of this name. An empty list or map sets nothing.
pub fn parse(field: &str, options: pb::ChatOptions) -> Result<ChatOptions, FieldError> {
    let within = |name: &str| format!("{field}.{name}");
    if options.max_output_tokens == Some(0) {
        return Err(FieldError::invalid(
            within("max_output_tokens"),
            "must be at least 1",
        ));
    }
    let tools = parse_tools(&within("tools"), options.tools)?;
    let tool_choice = options
        .tool_choice
        .map(|choice| parse_tool_choice(&within("tool_choice"), choice))
        .transpose()?;
    Ok(ChatOptions {
        tools: (!tools.is_empty()).then_some(tools),
        tool_choice,
        parallel_tool_calls: options.parallel_tool_calls,
        response_format: options
            .response_format
            .map(|format| parse_response_format(&within("response_format"), format))
            .transpose()?,
        temperature: parse_number(&within("temperature"), options.temperature, 2.0)?,
        top_p: parse_number(&within("top_p"), options.top_p, 1.0)?,
        stop: parse_stop(&within("stop"), options.stop)?,
        reasoning_effort: parse_effort(&within("reasoning_effort"), options.reasoning_effort)?,
        metadata: parse_metadata(&within("metadata"), options.metadata)?,
        output_tokens: options.max_output_tokens.map(Tokens::new),
    })
}

/// Parses the tools in the field of this name.
pub fn parse_tools(field: &str, tools: Vec<pb::Tool>) -> Result<Vec<Tool>, FieldError> {
    if tools.len() > TOOLS {
        return Err(FieldError::limit(field, TOOLS, "tools"));
    }
    if tools.iter().map(tool_bytes).sum::<usize>() > TOOLS_BYTES {
        return Err(FieldError::limit(field, TOOLS_BYTES, "bytes in all"));
    }
    let mut names = HashSet::new();
    if let Some(index) = tools
        .iter()
        .position(|tool| !names.insert(tool.name.as_str()))
    {
        return Err(FieldError::invalid(
            format!("{field}[{index}].name"),
            "must not be another tool's",
        ));
    }
    tools
        .into_iter()
        .enumerate()
        .map(|(index, tool)| parse_tool(&format!("{field}[{index}]"), tool))
        .collect()
}

fn parse_tool(field: &str, tool: pb::Tool) -> Result<Tool, FieldError> {
    let schema = if tool.input_schema.is_empty() {
        ANY_OBJECT_SCHEMA.to_owned()
    } else {
        tool.input_schema
    };
    Tool::new(tool.name, tool.description, schema).map_err(|error| {
        let name = match error {
            ToolError::Name => "name",
            ToolError::Schema => "input_schema",
        };
        FieldError::invalid(format!("{field}.{name}"), error.to_string())
    })
}

const fn tool_bytes(tool: &pb::Tool) -> usize {
    tool.name.len() + tool.description.len() + tool.input_schema.len()
}

/// Parses a temperature in the field of this name: 0 to 2.
pub fn parse_temperature(field: &str, value: Option<f32>) -> Result<Option<f32>, FieldError> {
    parse_number(field, value, 2.0)
}

/// A number from 0 to `most`.
fn parse_number(field: &str, value: Option<f32>, most: f32) -> Result<Option<f32>, FieldError> {
    match value {
        Some(value) if !(0.0..=most).contains(&value) => {
            Err(FieldError::invalid(field, format!("must be 0 to {most}")))
        }
        valid => Ok(valid),
    }
}

fn parse_tool_choice(field: &str, choice: pb::ToolChoice) -> Result<ToolChoice, FieldError> {
    let refused = || FieldError::invalid(field, "must be a mode or the name of a tool");
    match choice.choice.ok_or_else(refused)? {
        tool_choice::Choice::Name(name) => {
            parse::id(&format!("{field}.name"), &name)?;
            Ok(ToolChoice::Named(name))
        }
        tool_choice::Choice::Mode(mode) => match tool_choice::Mode::try_from(mode) {
            Ok(tool_choice::Mode::Auto) => Ok(ToolChoice::Auto),
            Ok(tool_choice::Mode::None) => Ok(ToolChoice::None),
            Ok(tool_choice::Mode::Required) => Ok(ToolChoice::Required),
            Ok(tool_choice::Mode::Unspecified) | Err(_) => Err(refused()),
        },
    }
}

fn parse_response_format(
    field: &str,
    format: pb::ResponseFormat,
) -> Result<ResponseFormat, FieldError> {
    match format.format {
        Some(response_format::Format::JsonObject(true)) => Ok(ResponseFormat::JsonObject),
        Some(response_format::Format::JsonObject(false)) => Err(FieldError::invalid(
            format!("{field}.json_object"),
            "must be true or absent",
        )),
        Some(response_format::Format::JsonSchema(schema)) => {
            let within = |name: &str| format!("{field}.json_schema.{name}");
            if schema.schema.len() > RESPONSE_SCHEMA_BYTES {
                return Err(FieldError::limit(
                    within("schema"),
                    RESPONSE_SCHEMA_BYTES,
                    "bytes",
                ));
            }
            // A schema has the rules of a tool: a plain name, and the JSON text of an object.
            let checked = Tool::new(schema.name, String::new(), schema.schema);
            let checked = checked.map_err(|error| match error {
                ToolError::Name => FieldError::invalid(
                    within("name"),
                    "must be 1 to 64 letters, digits, underscores or dashes",
                ),
                ToolError::Schema => FieldError::invalid(within("schema"), "must be a JSON object"),
            })?;
            Ok(ResponseFormat::JsonSchema {
                name: checked.name().to_owned(),
                schema: checked.input_schema().to_owned(),
                strict: schema.strict,
            })
        }
        None => Err(FieldError::invalid(
            field,
            "must be json_schema or json_object",
        )),
    }
}

fn parse_stop(field: &str, stop: Vec<String>) -> Result<Option<Vec<String>>, FieldError> {
    if stop.len() > STOP_TEXTS {
        return Err(FieldError::limit(field, STOP_TEXTS, "texts"));
    }
    for (index, text) in stop.iter().enumerate() {
        let field = format!("{field}[{index}]");
        if text.is_empty() {
            return Err(FieldError::invalid(field, "must not be empty"));
        }
        parse::bounded_text(&field, text, ID_BYTES)?;
    }
    Ok((!stop.is_empty()).then_some(stop))
}

fn parse_effort(field: &str, number: i32) -> Result<Option<ReasoningEffort>, FieldError> {
    use pb::ReasoningEffort as Effort;
    Ok(Some(match Effort::try_from(number) {
        Ok(Effort::Unspecified) => return Ok(None),
        Ok(Effort::None) => ReasoningEffort::None,
        Ok(Effort::Minimal) => ReasoningEffort::Minimal,
        Ok(Effort::Low) => ReasoningEffort::Low,
        Ok(Effort::Medium) => ReasoningEffort::Medium,
        Ok(Effort::High) => ReasoningEffort::High,
        Ok(Effort::Xhigh) => ReasoningEffort::XHigh,
        Ok(Effort::Max) => ReasoningEffort::Max,
        Err(_) => {
            return Err(FieldError::invalid(
                field,
                format!("{number} is not one of its values"),
            ));
        }
    }))
}

fn parse_metadata(
    field: &str,
    metadata: HashMap<String, String>,
) -> Result<Option<BTreeMap<String, String>>, FieldError> {
    let metadata = parse::metadata(field, metadata)?;
    Ok((!metadata.is_empty()).then_some(metadata))
}

impl From<ChatOptions> for pb::ChatOptions {
    fn from(options: ChatOptions) -> Self {
        Self {
            tools: options
                .tools
                .unwrap_or_default()
                .iter()
                .map(pb::Tool::from)
                .collect(),
            tool_choice: options.tool_choice.map(Into::into),
            parallel_tool_calls: options.parallel_tool_calls,
            response_format: options.response_format.map(Into::into),
            temperature: options.temperature,
            top_p: options.top_p,
            stop: options.stop.unwrap_or_default(),
            reasoning_effort: effort(options.reasoning_effort).into(),
            metadata: options.metadata.unwrap_or_default().into_iter().collect(),
            max_output_tokens: options.output_tokens.map(Tokens::get),
        }
    }
}

impl From<&Tool> for pb::Tool {
    fn from(tool: &Tool) -> Self {
        Self {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.input_schema().to_owned(),
        }
    }
}

impl From<ToolChoice> for pb::ToolChoice {
    fn from(choice: ToolChoice) -> Self {
        let mode = |mode: tool_choice::Mode| tool_choice::Choice::Mode(mode.into());
        Self {
            choice: Some(match choice {
                ToolChoice::Auto => mode(tool_choice::Mode::Auto),
                ToolChoice::None => mode(tool_choice::Mode::None),
                ToolChoice::Required => mode(tool_choice::Mode::Required),
                ToolChoice::Named(name) => tool_choice::Choice::Name(name),
            }),
        }
    }
}

impl From<ResponseFormat> for pb::ResponseFormat {
    fn from(format: ResponseFormat) -> Self {
        Self {
            format: Some(match format {
                ResponseFormat::JsonObject => response_format::Format::JsonObject(true),
                ResponseFormat::JsonSchema {
                    name,
                    schema,
                    strict,
                } => response_format::Format::JsonSchema(response_format::JsonSchema {
                    name,
                    schema,
                    strict,
                }),
            }),
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
        Some(ReasoningEffort::XHigh) => pb::ReasoningEffort::Xhigh,
        Some(ReasoningEffort::Max) => pb::ReasoningEffort::Max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stay_the_same_there_and_back() {
        let tool = Tool::new("look".into(), "Looks.".into(), "{}".into()).expect("a valid tool");
        let options = ChatOptions {
            tools: Some(vec![tool]),
            tool_choice: Some(ToolChoice::Named("look".into())),
            parallel_tool_calls: Some(false),
            response_format: Some(ResponseFormat::JsonSchema {
                name: "answer".into(),
                schema: "{\"n\": 1.0}".into(),
                strict: true,
            }),
            temperature: Some(0.5),
            top_p: Some(0.25),
            stop: Some(vec!["END".into()]),
            reasoning_effort: Some(ReasoningEffort::XHigh),
            metadata: Some(BTreeMap::from([("a".into(), "b".into())])),
            output_tokens: Some(Tokens::new(7)),
        };
        let sent = pb::ChatOptions::from(options.clone());
        assert_eq!(parse("options", sent), Ok(options));
        assert_eq!(
            parse("options", pb::ChatOptions::default()),
            Ok(ChatOptions::default())
        );
    }

    #[test]
    fn a_refusal_names_the_field() {
        let field_of = |options: pb::ChatOptions| match parse("options", options) {
            Err(FieldError::Invalid { field, .. } | FieldError::Limit { field, .. }) => field,
            Ok(parsed) => panic!("{parsed:?} is accepted"),
        };
        assert_eq!(
            field_of(pb::ChatOptions {
                tool_choice: Some(pb::ToolChoice { choice: None }),
                ..Default::default()
            }),
            "options.tool_choice"
        );
        assert_eq!(
            field_of(pb::ChatOptions {
                response_format: Some(pb::ResponseFormat {
                    format: Some(response_format::Format::JsonSchema(
                        response_format::JsonSchema {
                            name: "a".into(),
                            schema: "[]".into(),
                            strict: false,
                        }
                    )),
                }),
                ..Default::default()
            }),
            "options.response_format.json_schema.schema"
        );
        assert_eq!(
            field_of(pb::ChatOptions {
                top_p: Some(1.5),
                ..Default::default()
            }),
            "options.top_p"
        );
        assert_eq!(
            field_of(pb::ChatOptions {
                stop: vec!["a".into(), String::new()],
                ..Default::default()
            }),
            "options.stop[1]"
        );
    }
}
