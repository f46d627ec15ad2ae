//! Tools of a request, and which of them the model may or must call.

use std::collections::BTreeSet;

use anneal_core::limits::TOOLS;
use anneal_proto::v1::{self as pb, tool_choice};
use serde_json::{Value, json};

use super::fields::{Fields, not_one_of};
use crate::{http::openai::errors::ApiError, truncated_text::TruncatedText};

/// Most characters of a tool's name.
const NAME_CHARS: usize = 64;

/// The one kind of tools that is supported.
const ONLY_FUNCTIONS: &str = "Supported are tools of the type 'function'.";

/// The tools of a request, and how the model chooses among them.
#[derive(Debug, Default, Clone)]
pub(super) struct ToolSettings {
    pub(super) tools: Vec<pb::Tool>,
    /// Whether the request has a list of tools, which may be empty.
    pub(super) is_given: bool,
    /// None: the request does not say.
    pub(super) choice: Option<ToolChoice>,
    /// Paths of fields of tools that have no effect.
    pub(super) ignored: Vec<String>,
}

/// How the model chooses among tools.
#[derive(Debug, Clone)]
pub(super) struct ToolChoice {
    /// For the model's provider.
    pub(super) sent: tool_choice::Choice,
    /// As an answer shows it.
    pub(super) shown: Value,
}

/// What the calls of an answer must comply with. The provider is told, too, but the server checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ToolRule {
    /// The names of the tools that may be called. None: all.
    allowed: Option<BTreeSet<String>>,
    /// Whether the answer must call a tool.
    must_call: bool,
}

impl ToolSettings {
    /// Takes `tools` and `tool_choice` from a request.
    pub(super) fn take(body: &mut Fields) -> Result<Self, ApiError> {
        let given = body.list("tools", TOOLS)?;
        let is_given = given.is_some();
        let mut ignored = Vec::new();
        let mut tools = Vec::new();
        for (index, tool) in given.into_iter().flatten().enumerate() {
            tools.push(parse_tool(&format!("tools[{index}]"), tool, &mut ignored)?);
        }
        let choice = body
            .take("tool_choice")
            .map(parse_choice)
            .transpose()?
            .filter(|choice| !tools.is_empty() || !is_auto(&choice.sent));
        let settings = Self {
            tools,
            is_given,
            choice,
            ignored,
        };
        settings.check_names()?;
        Ok(settings)
    }

    /// Refuses a choice of a tool that the request does not declare.
    fn check_names(&self) -> Result<(), ApiError> {
        let Some(choice) = &self.choice else {
            return Ok(());
        };
        let rule = ToolRule::of(&choice.shown);
        let names = rule.allowed.iter().flatten();
        let is_declared = |name: &String| self.tools.iter().any(|tool| tool.name == *name);
        for name in names {
            if !is_declared(name) {
                let name = TruncatedText::new(name);
                return Err(ApiError::invalid(
                    "tool_choice",
                    Some("invalid_value"),
                    format!("Tool choice '{name}' not found in 'tools' parameter."),
                ));
            }
        }
        if rule.must_call && self.tools.is_empty() {
            return Err(ApiError::invalid(
                "tool_choice",
                Some("invalid_value"),
                "Tool choice 'required' must be specified with 'tools' parameter.",
            ));
        }
        Ok(())
    }
}

impl ToolRule {
    /// The rule of this `tool_choice`, as an answer shows it.
    pub(super) fn of(shown: &Value) -> Self {
        let name_of = |tool: &Value| Some(tool.get("name")?.as_str()?.to_owned());
        match shown.get("type").and_then(Value::as_str) {
            Some("function") => Self {
                allowed: Some(name_of(shown).into_iter().collect()),
                must_call: true,
            },
            Some("allowed_tools") => Self {
                allowed: Some(
                    shown["tools"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(name_of)
                        .collect(),
                ),
                must_call: shown["mode"] == "required",
            },
            _ => Self {
                allowed: (*shown == "none").then(BTreeSet::new),
                must_call: *shown == "required",
            },
        }
    }

    /// Why an answer must not call this tool. None: it may.
    pub(super) fn refusal_of(&self, name: &str) -> Option<String> {
        let is_refused = self
            .allowed
            .as_ref()
            .is_some_and(|names| !names.contains(name));
        is_refused.then(|| {
            format!("The model called the tool '{name}', which tool_choice does not allow.")
        })
    }

    /// Why an answer with so many calls must not end. None: it may.
    pub(super) fn refusal_at_end(&self, calls: usize) -> Option<String> {
        (self.must_call && calls == 0)
            .then(|| "The model called no tool, which tool_choice requires.".to_owned())
    }
}

/// Tools as an answer shows them. `strict` is false: the schema goes to the model, but no provider
/// is told to hold it to the schema.
pub(super) fn show_tools(tools: &[pb::Tool]) -> Value {
    tools
        .iter()
        .map(|tool| {
            let parameters: Value = serde_json::from_str(&tool.input_schema).unwrap_or_default();
            let description = (!tool.description.is_empty()).then_some(&tool.description);
            json!({
                "type": "function",
                "name": tool.name,
                "description": description,
                "parameters": parameters,
                "strict": false,
            })
        })
        .collect()
}

/// A stored choice as an answer shows it.
pub(super) fn show_choice(choice: Option<&pb::ToolChoice>) -> Value {
    match choice.and_then(|choice| choice.choice.as_ref()) {
        Some(tool_choice::Choice::Name(name)) => json!({"type": "function", "name": name}),
        Some(tool_choice::Choice::Mode(mode)) => match tool_choice::Mode::try_from(*mode) {
            Ok(tool_choice::Mode::None) => json!("none"),
            Ok(tool_choice::Mode::Required) => json!("required"),
            _ => json!("auto"),
        },
        None => json!("auto"),
    }
}

fn is_auto(choice: &tool_choice::Choice) -> bool {
    *choice == tool_choice::Choice::Mode(tool_choice::Mode::Auto.into())
}

/// Parses a tool. Adds the paths of its fields that have no effect to `ignored`.
fn parse_tool(path: &str, tool: Value, ignored: &mut Vec<String>) -> Result<pb::Tool, ApiError> {
    let mut tool = Fields::of_value(path, tool)?;
    let kind = tool.required_text("type")?;
    if kind != "function" {
        return Err(unsupported_tool(&tool.path("type"), &kind));
    }
    let name = tool.required_text("name")?;
    check_name(&tool.path("name"), &name)?;
    let description = tool.text("description")?.unwrap_or_default();
    let input_schema = match tool.take("parameters") {
        None => String::new(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(other) => {
            return Err(ApiError::invalid_type(
                tool.path("parameters"),
                "an object",
                &other,
            ));
        }
    };
    if tool.flag("strict")? == Some(true) {
        ignored.push(tool.path("strict"));
    }
    ignored.extend(tool.into_unknown());
    Ok(pb::Tool {
        name,
        description,
        input_schema,
    })
}

fn check_name(path: &str, name: &str) -> Result<(), ApiError> {
    let is_valid = (1..=NAME_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_valid {
        return Ok(());
    }
    Err(ApiError::invalid(
        path,
        Some("invalid_value"),
        format!("Invalid '{path}': expected 1 to {NAME_CHARS} letters, digits, '_' and '-'."),
    ))
}

fn parse_choice(choice: Value) -> Result<ToolChoice, ApiError> {
    let path = "tool_choice";
    let mode = |mode: &str| match mode {
        "none" => Some(tool_choice::Mode::None),
        "auto" => Some(tool_choice::Mode::Auto),
        "required" => Some(tool_choice::Mode::Required),
        _ => None,
    };
    if let Value::String(name) = &choice {
        let sent =
            mode(name).ok_or_else(|| not_one_of(path, name, &["none", "auto", "required"]))?;
        return Ok(ToolChoice {
            sent: tool_choice::Choice::Mode(sent.into()),
            shown: choice,
        });
    }
    let mut fields = Fields::of_value(path, choice)?;
    match fields.required_text("type")?.as_str() {
        "function" => {
            let name = fields.required_text("name")?;
            Ok(ToolChoice {
                shown: json!({"type": "function", "name": name}),
                sent: tool_choice::Choice::Name(name),
            })
        }
        "allowed_tools" => {
            let mode = fields.one_of("mode", &["auto", "required"])?;
            let mode = mode.unwrap_or("auto");
            let tools = fields.list("tools", TOOLS)?.unwrap_or_default();
            let mut shown = Vec::new();
            for (index, tool) in tools.into_iter().enumerate() {
                let mut tool = Fields::of_value(&format!("tool_choice.tools[{index}]"), tool)?;
                let kind = tool.required_text("type")?;
                if kind != "function" {
                    return Err(unsupported_tool(&tool.path("type"), &kind));
                }
                shown.push(json!({"type": "function", "name": tool.required_text("name")?}));
            }
            let sent = if mode == "required" {
                tool_choice::Mode::Required
            } else {
                tool_choice::Mode::Auto
            };
            Ok(ToolChoice {
                sent: tool_choice::Choice::Mode(sent.into()),
                shown: json!({"type": "allowed_tools", "mode": mode, "tools": shown}),
            })
        }
        kind => Err(unsupported_tool("tool_choice.type", kind)),
    }
}

fn unsupported_tool(path: &str, kind: &str) -> ApiError {
    let shown: String = kind.chars().take(64).collect();
    ApiError::unsupported_tool(
        path,
        format!("Tools of the type '{shown}' are not supported. {ONLY_FUNCTIONS}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(body: Value) -> Result<ToolSettings, ApiError> {
        ToolSettings::take(&mut Fields::of_body(body).expect("is an object"))
    }

    fn tool(name: &str) -> Value {
        json!({"type": "function", "name": name, "parameters": {"type": "object"}, "strict": true})
    }

    #[test]
    fn hosted_tools_are_refused_by_name() {
        for kind in [
            "web_search",
            "file_search",
            "code_interpreter",
            "image_generation",
            "mcp",
            "custom",
        ] {
            let error =
                settings(json!({"tools": [tool("a"), {"type": kind}]})).expect_err("is refused");
            assert_eq!(error.code(), Some("unsupported_tool"));
            assert_eq!(error.object()["param"], "tools[1].type");
            let error = settings(json!({"tool_choice": {"type": kind}})).err();
            let error = error.expect("is refused");
            assert_eq!(error.object()["param"], "tool_choice.type");
        }
    }

    #[test]
    fn the_rule_holds_the_answer_to_the_choice() {
        let tools = json!([tool("look"), tool("ask")]);
        let rule = |choice: Value| {
            let taken = settings(json!({"tools": tools.clone(), "tool_choice": choice}));
            ToolRule::of(&taken.expect("is valid").choice.expect("is given").shown)
        };
        assert_eq!(rule(json!("auto")), ToolRule::default());
        assert!(rule(json!("none")).refusal_of("look").is_some());
        assert!(rule(json!("required")).refusal_at_end(0).is_some());
        let one = rule(json!({"type": "function", "name": "look"}));
        assert!(one.refusal_of("look").is_none() && one.refusal_of("ask").is_some());
        assert!(one.refusal_at_end(0).is_some() && one.refusal_at_end(1).is_none());
        let allowed = json!({"type": "function", "name": "ask"});
        let some = rule(json!({"type": "allowed_tools", "tools": [allowed]}));
        assert!(some.refusal_of("ask").is_none() && some.refusal_of("look").is_some());
        assert!(some.refusal_at_end(0).is_none());
    }

    #[test]
    fn a_choice_must_name_a_declared_tool() {
        for choice in [
            json!({"type": "function", "name": "other"}),
            json!({"type": "allowed_tools", "tools": [{"type": "function", "name": "other"}]}),
        ] {
            let error = settings(json!({"tools": [tool("look")], "tool_choice": choice}));
            assert_eq!(
                error.expect_err("is refused").object()["param"],
                "tool_choice"
            );
        }
        assert!(settings(json!({"tool_choice": "required"})).is_err());
        assert!(settings(json!({"tool_choice": "auto"})).is_ok_and(|set| set.choice.is_none()));
    }

    #[test]
    fn tools_are_shown_with_all_keys() {
        let taken = settings(json!({"tools": [{"type": "function", "name": "look"}]}));
        assert_eq!(
            show_tools(&taken.expect("is valid").tools),
            json!([{
                "type": "function", "name": "look", "description": null, "parameters": null,
                "strict": false
            }])
        );
    }
}
