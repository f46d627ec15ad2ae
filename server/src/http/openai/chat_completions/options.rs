//! How the model answers: tools, the shape of the answer, sampling. Ranges are checked by the RPC.

use anneal_core::limits::{STOP_TEXTS, TOOLS};
use anneal_proto::v1::{self as pb, response_format, tool_choice};
use serde_json::{Value, json};

use crate::{
    http::openai::{
        errors::ApiError,
        fields::{Fields, unsupported_value},
        responses::check_unique,
    },
    truncated_text::TruncatedText,
};

/// The name under which `strict` of a function is said to have no effect.
const STRICT: &str = "tools[].function.strict";

/// Parses the options. `is_stored`: the turn has a conversation, which may have tools of its own.
/// Adds the names of parameters without effect to `ignored`.
pub(super) fn parse_options(
    fields: &mut Fields<'_>,
    is_stored: bool,
    ignored: &mut Vec<String>,
) -> Result<pb::ChatOptions, ApiError> {
    let tools = parse_tools(fields, ignored)?;
    let choice = parse_tool_choice(fields)?;
    let parallel_tool_calls = fields.flag("parallel_tool_calls")?;
    // Without tools both change nothing, but providers refuse them.
    let has_tools = !tools.is_empty() || is_stored;
    let changes_nothing = |choice: &tool_choice::Choice| {
        use tool_choice::Mode;
        let harmless = [Mode::Auto, Mode::None].map(|mode| tool_choice::Choice::Mode(mode.into()));
        !has_tools && harmless.contains(choice)
    };
    let choice = choice.filter(|choice| !changes_nothing(choice));
    Ok(pb::ChatOptions {
        tools,
        tool_choice: choice.map(|choice| pb::ToolChoice {
            choice: Some(choice),
        }),
        parallel_tool_calls: parallel_tool_calls.filter(|_| has_tools),
        response_format: parse_format(fields)?,
        temperature: parse_number(fields, "temperature")?,
        top_p: parse_number(fields, "top_p")?,
        stop: parse_stop(fields)?,
        reasoning_effort: parse_effort(fields)?.into(),
        ..pb::ChatOptions::default()
    })
}

fn parse_tools(
    fields: &mut Fields<'_>,
    ignored: &mut Vec<String>,
) -> Result<Vec<pb::Tool>, ApiError> {
    let list = fields.short_list("tools", TOOLS)?.unwrap_or_default();
    let mut tools = Vec::with_capacity(list.len());
    let mut is_any_strict = false;
    for (index, tool) in list.iter().enumerate() {
        let (tool, is_strict) = parse_tool(tool, &format!("tools[{index}]"))?;
        is_any_strict |= is_strict;
        tools.push(tool);
    }
    check_unique(&tools, |index| format!("tools[{index}].function.name"))?;
    if is_any_strict {
        ignored.push(STRICT.to_owned());
    }
    Ok(tools)
}

/// A tool, and whether its calls should follow their schema strictly.
fn parse_tool(tool: &Value, path: &str) -> Result<(pb::Tool, bool), ApiError> {
    let mut fields = Fields::of(tool, path)?;
    let kind = fields.required_text("type")?;
    if kind != "function" {
        return Err(unsupported_tool(fields.param("type"), kind));
    }
    let path = fields.param("function");
    let Some(function) = fields.value("function") else {
        return Err(ApiError::missing_parameter(path));
    };
    fields.finish()?;
    let mut fields = Fields::of(function, &path)?;
    let input_schema = match fields.value("parameters") {
        None => String::new(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(other) => {
            let param = fields.param("parameters");
            return Err(ApiError::invalid_type(param, "an object", other));
        }
    };
    let tool = pb::Tool {
        name: fields.required_text("name")?.to_owned(),
        description: fields.text("description")?.unwrap_or_default().to_owned(),
        input_schema,
    };
    let is_strict = fields.flag("strict")?.unwrap_or_default();
    fields.finish()?;
    Ok((tool, is_strict))
}

fn unsupported_tool(param: String, kind: &str) -> ApiError {
    let kind = TruncatedText::new(kind);
    let message = format!(
        "Tools of the type '{kind}' are not supported. Supported are tools of the type 'function'."
    );
    ApiError::unsupported_tool(param, message)
}

fn parse_tool_choice(fields: &mut Fields<'_>) -> Result<Option<tool_choice::Choice>, ApiError> {
    const MODES: [&str; 3] = ["none", "auto", "required"];
    let param = "tool_choice";
    let value = match fields.value(param) {
        None => return Ok(None),
        Some(Value::String(mode)) => {
            let mode = match mode.as_str() {
                "none" => tool_choice::Mode::None,
                "auto" => tool_choice::Mode::Auto,
                "required" => tool_choice::Mode::Required,
                other => return Err(unsupported_value(param, other, &MODES)),
            };
            return Ok(Some(tool_choice::Choice::Mode(mode.into())));
        }
        Some(value) => value,
    };
    let mut inner = Fields::of(value, param)?;
    match inner.required_text("type")? {
        "function" => {}
        kind @ "allowed_tools" => {
            let message = format!(
                "tool_choice of the type '{kind}' is not supported: send only the tools that may be called."
            );
            let param = inner.param("type");
            return Err(ApiError::unsupported_parameter(param, message));
        }
        kind => return Err(unsupported_tool(inner.param("type"), kind)),
    }
    let path = inner.param("function");
    let Some(function) = inner.value("function") else {
        return Err(ApiError::missing_parameter(path));
    };
    inner.finish()?;
    let mut inner = Fields::of(function, &path)?;
    let name = inner.required_text("name")?.to_owned();
    inner.finish()?;
    Ok(Some(tool_choice::Choice::Name(name)))
}

fn parse_format(fields: &mut Fields<'_>) -> Result<Option<pb::ResponseFormat>, ApiError> {
    let Some(value) = fields.value("response_format") else {
        return Ok(None);
    };
    let mut inner = Fields::of(value, "response_format")?;
    let kinds = ["text", "json_object", "json_schema"];
    let format = match inner.one_of("type", &kinds)? {
        None => return Err(ApiError::missing_parameter(inner.param("type"))),
        Some("text") => None,
        Some("json_object") => Some(response_format::Format::JsonObject(true)),
        Some(_) => Some(parse_schema(&mut inner)?),
    };
    inner.finish()?;
    Ok(format.map(|format| pb::ResponseFormat {
        format: Some(format),
    }))
}

/// Parses a schema. Its description is for the model, so it becomes a part of the schema.
fn parse_schema(fields: &mut Fields<'_>) -> Result<response_format::Format, ApiError> {
    let path = fields.param("json_schema");
    let Some(value) = fields.value("json_schema") else {
        return Err(ApiError::missing_parameter(path));
    };
    let mut inner = Fields::of(value, &path)?;
    let mut schema = match inner.value("schema") {
        None => serde_json::Map::new(),
        Some(Value::Object(schema)) => schema.clone(),
        Some(other) => {
            let param = inner.param("schema");
            return Err(ApiError::invalid_type(param, "an object", other));
        }
    };
    if let Some(description) = inner.text("description")? {
        schema
            .entry("description")
            .or_insert_with(|| json!(description));
    }
    let parsed = response_format::JsonSchema {
        name: inner.required_text("name")?.to_owned(),
        schema: Value::Object(schema).to_string(),
        strict: inner.flag("strict")?.unwrap_or_default(),
    };
    inner.finish()?;
    Ok(response_format::Format::JsonSchema(parsed))
}

fn parse_number(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<f32>, ApiError> {
    match fields.value(name) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) => Ok(Some(number as f32)),
            None => Err(ApiError::invalid_type(name, "a number", value)),
        },
    }
}

/// The texts before which the model stops: one, or a list.
fn parse_stop(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    let list = match fields.value("stop") {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => return Ok(vec![text.clone()]),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(ApiError::invalid_type(
                "stop",
                "a string or an array",
                other,
            ));
        }
    };
    let texts = list.iter().enumerate().take(STOP_TEXTS + 1);
    let texts = texts.map(|(index, text)| match text {
        Value::String(text) => Ok(text.clone()),
        other => Err(ApiError::invalid_type(
            format!("stop[{index}]"),
            "a string",
            other,
        )),
    });
    texts.collect()
}

fn parse_effort(fields: &mut Fields<'_>) -> Result<pb::ReasoningEffort, ApiError> {
    use pb::ReasoningEffort as Effort;
    let efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    Ok(match fields.one_of("reasoning_effort", &efforts)? {
        Some("none") => Effort::None,
        Some("minimal") => Effort::Minimal,
        Some("low") => Effort::Low,
        Some("medium") => Effort::Medium,
        Some("high") => Effort::High,
        Some("xhigh") => Effort::Xhigh,
        Some(_) => Effort::Max,
        None => Effort::Unspecified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &Value, is_stored: bool) -> Result<(pb::ChatOptions, Vec<String>), ApiError> {
        let mut ignored = Vec::new();
        let mut fields = Fields::of(body, "").expect("is an object");
        let options = parse_options(&mut fields, is_stored, &mut ignored)?;
        Ok((options, ignored))
    }

    #[test]
    fn options_are_translated() {
        let body = json!({
            "tools": [{"type": "function", "function": {
                "name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": true,
            }}],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "a", "description": "Why.", "schema": {"type": "object"}, "strict": true,
            }},
            "temperature": 0.5, "top_p": 1, "stop": "END", "reasoning_effort": "minimal",
        });
        let (options, ignored) = parse(&body, false).expect("is valid");
        assert_eq!(options.tools[0].input_schema, r#"{"type":"object"}"#);
        let choice = options.tool_choice.and_then(|choice| choice.choice);
        assert_eq!(choice, Some(tool_choice::Choice::Name("look".into())));
        assert_eq!(options.parallel_tool_calls, Some(false));
        let format = options.response_format.and_then(|format| format.format);
        let Some(response_format::Format::JsonSchema(schema)) = format else {
            panic!("no schema: {format:?}")
        };
        assert_eq!(schema.schema, r#"{"description":"Why.","type":"object"}"#);
        assert_eq!((options.temperature, options.top_p), (Some(0.5), Some(1.0)));
        assert_eq!(options.stop, ["END"]);
        assert_eq!(
            options.reasoning_effort,
            pb::ReasoningEffort::Minimal as i32
        );
        assert_eq!(ignored, [STRICT]);
    }

    #[test]
    fn a_choice_without_tools_is_sent_only_where_the_conversation_may_have_some() {
        for choice in ["auto", "none"] {
            let body = json!({"tool_choice": choice, "parallel_tool_calls": true});
            let (options, _) = parse(&body, false).expect("is valid");
            assert_eq!(options, pb::ChatOptions::default(), "{choice}");
            let (options, _) = parse(&body, true).expect("is valid");
            assert!(options.tool_choice.is_some() && options.parallel_tool_calls.is_some());
        }
        let (options, _) = parse(&json!({"tool_choice": "required"}), false).expect("is valid");
        assert!(options.tool_choice.is_some(), "the turn refuses it");
    }

    #[test]
    fn options_that_are_not_understood_are_refused_by_name() {
        let function =
            |function: Value| json!({"tools": [{"type": "function", "function": function}]});
        for (body, param, code) in [
            (json!({"tools": {}}), "tools", "invalid_type"),
            (
                json!({"tools": [{"type": "custom", "custom": {}}]}),
                "tools[0].type",
                "unsupported_tool",
            ),
            (
                json!({"tools": [{"type": "function"}]}),
                "tools[0].function",
                "missing_required_parameter",
            ),
            (
                function(json!({})),
                "tools[0].function.name",
                "missing_required_parameter",
            ),
            (
                function(json!({"name": "f", "parameters": "x"})),
                "tools[0].function.parameters",
                "invalid_type",
            ),
            (
                function(json!({"name": "f", "color": 1})),
                "tools[0].function.color",
                "unknown_parameter",
            ),
            (
                json!({"tool_choice": "any"}),
                "tool_choice",
                "invalid_value",
            ),
            (
                json!({"tool_choice": {"type": "allowed_tools"}}),
                "tool_choice.type",
                "unsupported_parameter",
            ),
            (
                json!({"tool_choice": {"type": "custom"}}),
                "tool_choice.type",
                "unsupported_tool",
            ),
            (
                json!({"response_format": {"type": "xml"}}),
                "response_format.type",
                "invalid_value",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
                "response_format.json_schema.name",
                "missing_required_parameter",
            ),
            (json!({"temperature": "hot"}), "temperature", "invalid_type"),
            (json!({"stop": [1]}), "stop[0]", "invalid_type"),
            (
                json!({"reasoning_effort": "huge"}),
                "reasoning_effort",
                "invalid_value",
            ),
        ] {
            let refused = parse(&body, false).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{body}"
            );
        }
        let many = json!(vec![
            json!({"type": "function", "function": {"name": "f"}});
            TOOLS + 1
        ]);
        let refused = parse(&json!({"tools": many}), false).expect_err("is refused");
        assert_eq!(refused.code(), Some("array_above_max_length"));
    }
}
