//! Tools of a request, and which of them the model may or must call.

use std::collections::BTreeSet;

use anneal_core::limits::TOOLS;
use anneal_proto::v1::{self as pb, tool_choice};
use serde_json::{Value, json};

use crate::{
    http::openai::{
        errors::ApiError,
        fields::{Fields, unsupported_value},
    },
    truncated_text::TruncatedText,
};

/// Most characters of a tool's name.
const NAME_CHARS: usize = 64;

/// The type of a `tool_choice` that names the tools that may be called.
const ALLOWED_TOOLS: &str = "allowed_tools";

/// The one kind of tools that is supported.
const ONLY_FUNCTIONS: &str = "Supported are tools of the type 'function'.";

/// The tools of a request, and how the model chooses among them.
#[derive(Debug, Default, Clone)]
pub(super) struct ToolSettings {
    /// The tools that the model gets: those that it may call, if `tool_choice` names them.
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

/// The calls of one answer, checked against the rule of its request.
#[derive(Debug, Clone)]
pub(super) struct CheckedCalls {
    rule: ToolRule,
    count: usize,
    /// Why the first call that the rule does not allow is refused.
    refusal: Option<String>,
}

impl CheckedCalls {
    /// No calls yet.
    pub(super) const fn new(rule: ToolRule) -> Self {
        Self {
            rule,
            count: 0,
            refusal: None,
        }
    }

    /// Adds a call of this tool. Returns whether it is allowed.
    pub(super) fn add(&mut self, name: &str) -> bool {
        self.count += 1;
        let refusal = self.rule.refusal_of(name);
        let is_allowed = refusal.is_none();
        self.refusal = self.refusal.take().or(refusal);
        is_allowed
    }

    /// Forgets all calls: the answer begins anew.
    pub(super) fn clear(&mut self) {
        (self.count, self.refusal) = (0, None);
    }

    /// Why one of the calls is refused. None: all are allowed.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Why an answer with these calls must not end. None: it may.
    pub(super) fn refusal_at_end(&self) -> Option<String> {
        self.rule.refusal_at_end(self.count)
    }
}

impl ToolSettings {
    /// Takes `tools` and `tool_choice` from a request.
    pub(super) fn take(body: &mut Fields<'_>) -> Result<Self, ApiError> {
        let given = body.short_list("tools", TOOLS)?;
        let is_given = given.is_some();
        let mut ignored = Vec::new();
        let mut tools = Vec::new();
        for (index, tool) in given.into_iter().flatten().enumerate() {
            tools.push(parse_tool(&format!("tools[{index}]"), tool, &mut ignored)?);
        }
        check_unique(&tools, |index| format!("tools[{index}].name"))?;
        let choice = body.value("tool_choice").map(parse_choice).transpose()?;
        let mut settings = Self {
            tools,
            is_given,
            choice,
            ignored,
        };
        settings.check_names()?;
        settings.leave_out_tools();
        Ok(settings)
    }

    /// Leaves out the tools that `allowed_tools` does not name: no provider is told the list, and a
    /// call of another tool would fail an answer that is paid for.
    fn leave_out_tools(&mut self) {
        let Some(choice) = &self.choice else {
            return;
        };
        if choice.shown["type"] == ALLOWED_TOOLS
            && let Some(allowed) = ToolRule::of(&choice.shown).allowed
        {
            self.tools.retain(|tool| allowed.contains(&tool.name));
        }
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
            Some(ALLOWED_TOOLS) => Self {
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
    fn refusal_of(&self, name: &str) -> Option<String> {
        let is_refused = self
            .allowed
            .as_ref()
            .is_some_and(|names| !names.contains(name));
        is_refused.then(|| {
            format!("The model called the tool '{name}', which tool_choice does not allow.")
        })
    }

    /// Why an answer with so many calls must not end. None: it may.
    fn refusal_at_end(&self, calls: usize) -> Option<String> {
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

/// Parses a tool. Adds the paths of its fields that have no effect to `ignored`.
fn parse_tool(path: &str, tool: &Value, ignored: &mut Vec<String>) -> Result<pb::Tool, ApiError> {
    let mut tool = Fields::of(tool, path)?;
    let kind = tool.required_text("type")?;
    if kind != "function" {
        return Err(unsupported_tool(&tool.param("type"), kind));
    }
    let name = tool.required_text("name")?;
    check_name(&tool.param("name"), name)?;
    let description = tool.text("description")?.unwrap_or_default();
    let input_schema = match tool.value("parameters") {
        None => String::new(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(other) => {
            return Err(ApiError::invalid_type(
                tool.param("parameters"),
                "an object",
                other,
            ));
        }
    };
    if tool.flag("strict")? == Some(true) {
        ignored.push(tool.param("strict"));
    }
    ignored.extend(tool.ignored());
    Ok(pb::Tool {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema,
    })
}

/// Refuses a tool with the name of an earlier one. `param_of` returns the path of the name of the
/// tool at this index.
pub(in crate::http::openai) fn check_unique(
    tools: &[pb::Tool],
    param_of: impl Fn(usize) -> String,
) -> Result<(), ApiError> {
    let mut names = BTreeSet::new();
    let second = tools.iter().position(|tool| !names.insert(&*tool.name));
    second.map_or(Ok(()), |index| {
        let (param, name) = (param_of(index), &tools[index].name);
        let message = format!(
            "Invalid '{param}': another tool has the name '{name}'. Expected a name that is unique \
             in 'tools'."
        );
        Err(ApiError::invalid(param, Some("invalid_value"), message))
    })
}

pub(super) fn check_name(path: &str, name: &str) -> Result<(), ApiError> {
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

fn parse_choice(choice: &Value) -> Result<ToolChoice, ApiError> {
    let path = "tool_choice";
    let mode = |mode: &str| match mode {
        "none" => Some(tool_choice::Mode::None),
        "auto" => Some(tool_choice::Mode::Auto),
        "required" => Some(tool_choice::Mode::Required),
        _ => None,
    };
    let mut fields = match choice {
        Value::String(name) => {
            let modes = ["none", "auto", "required"];
            let sent = mode(name).ok_or_else(|| unsupported_value(path, name, &modes))?;
            return Ok(ToolChoice {
                sent: tool_choice::Choice::Mode(sent.into()),
                shown: choice.clone(),
            });
        }
        Value::Object(object) => Fields::of_object(object, path),
        other => {
            let expected = "a string or an object";
            return Err(ApiError::invalid_type(path, expected, other));
        }
    };
    let parsed = match fields.required_text("type")? {
        "function" => {
            let name = fields.required_text("name")?;
            ToolChoice {
                shown: json!({"type": "function", "name": name}),
                sent: tool_choice::Choice::Name(name.to_owned()),
            }
        }
        ALLOWED_TOOLS => {
            let mode = fields.one_of("mode", &["auto", "required"])?;
            let mode = mode.unwrap_or("auto");
            let shown = parse_allowed(&mut fields)?;
            let sent = if mode == "required" {
                tool_choice::Mode::Required
            } else {
                tool_choice::Mode::Auto
            };
            ToolChoice {
                sent: tool_choice::Choice::Mode(sent.into()),
                shown: json!({"type": ALLOWED_TOOLS, "mode": mode, "tools": shown}),
            }
        }
        kind => return Err(unsupported_tool("tool_choice.type", kind)),
    };
    fields.finish()?;
    Ok(parsed)
}

/// The tools that may be called, as an answer shows them. There is at least one.
fn parse_allowed(choice: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let path = choice.param("tools");
    let tools = choice.short_list("tools", TOOLS)?;
    let tools = tools.ok_or_else(|| ApiError::missing_parameter(&*path))?;
    if tools.is_empty() {
        let message = format!("Invalid '{path}': empty array. Name at least one tool.");
        return Err(ApiError::invalid(path, Some("empty_array"), message));
    }
    let mut shown = Vec::with_capacity(tools.len());
    for (index, tool) in tools.iter().enumerate() {
        let mut tool = Fields::of(tool, &format!("{path}[{index}]"))?;
        let kind = tool.required_text("type")?;
        if kind != "function" {
            return Err(unsupported_tool(&tool.param("type"), kind));
        }
        shown.push(json!({"type": "function", "name": tool.required_text("name")?}));
        tool.finish()?;
    }
    Ok(shown)
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

    fn settings(body: &Value) -> Result<ToolSettings, ApiError> {
        ToolSettings::take(&mut Fields::of(body, "").expect("is an object"))
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
                settings(&json!({"tools": [tool("a"), {"type": kind}]})).expect_err("is refused");
            assert_eq!(error.code(), Some("unsupported_tool"));
            assert_eq!(error.object()["param"], "tools[1].type");
            let error = settings(&json!({"tool_choice": {"type": kind}})).err();
            let error = error.expect("is refused");
            assert_eq!(error.object()["param"], "tool_choice.type");
        }
    }

    #[test]
    fn the_rule_holds_the_answer_to_the_choice() {
        let tools = json!([tool("look"), tool("ask")]);
        let rule = |choice: Value| {
            let taken = settings(&json!({"tools": tools.clone(), "tool_choice": choice}));
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
    fn only_the_tools_that_may_be_called_are_sent() {
        let named = |tools: &[pb::Tool]| -> Vec<String> {
            tools.iter().map(|tool| tool.name.clone()).collect()
        };
        let allowed = |mode: &str| {
            let choice = json!({
                "type": "allowed_tools", "mode": mode,
                "tools": [{"type": "function", "name": "ask"}],
            });
            let body = json!({"tools": [tool("look"), tool("ask")], "tool_choice": choice});
            let taken = settings(&body).expect("is valid");
            (named(&taken.tools), taken.choice.expect("is given").sent)
        };
        let mode = |mode: tool_choice::Mode| tool_choice::Choice::Mode(mode.into());
        let ask = vec!["ask".to_owned()];
        assert_eq!(
            allowed("auto"),
            (ask.clone(), mode(tool_choice::Mode::Auto))
        );
        assert_eq!(
            allowed("required"),
            (ask, mode(tool_choice::Mode::Required))
        );
        for choice in [
            json!({"type": "function", "name": "ask"}),
            json!("none"),
            json!("auto"),
        ] {
            let body = json!({"tools": [tool("look"), tool("ask")], "tool_choice": choice});
            let taken = settings(&body).expect("is valid");
            assert_eq!(named(&taken.tools), ["look", "ask"]);
        }
    }

    #[test]
    fn a_refused_tool_or_choice_is_named() {
        let tools = json!([tool("look"), tool("ask")]);
        for (body, param, code) in [
            (
                json!({"tools": [tool("a"), tool("b"), tool("a")]}),
                "tools[2].name",
                "invalid_value",
            ),
            (
                json!({"tools": tools, "tool_choice": {"type": "allowed_tools"}}),
                "tool_choice.tools",
                "missing_required_parameter",
            ),
            (
                json!({"tools": tools, "tool_choice": {"type": "allowed_tools", "tools": []}}),
                "tool_choice.tools",
                "empty_array",
            ),
            (
                json!({"tools": tools,
                       "tool_choice": {"type": "function", "name": "ask", "color": 1}}),
                "tool_choice.color",
                "unknown_parameter",
            ),
            (json!({"tool_choice": 1}), "tool_choice", "invalid_type"),
        ] {
            let refused = settings(&body).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{body}"
            );
        }
    }

    #[test]
    fn a_choice_must_name_a_declared_tool() {
        for choice in [
            json!({"type": "function", "name": "other"}),
            json!({"type": "allowed_tools", "tools": [{"type": "function", "name": "other"}]}),
        ] {
            let error = settings(&json!({"tools": [tool("look")], "tool_choice": choice}));
            assert_eq!(
                error.expect_err("is refused").object()["param"],
                "tool_choice"
            );
        }
        assert!(settings(&json!({"tool_choice": "required"})).is_err());
        // The conversation may have tools, and another choice.
        assert!(settings(&json!({"tool_choice": "auto"})).is_ok_and(|set| set.choice.is_some()));
        let allowed =
            json!({"type": "allowed_tools", "tools": [{"type": "function", "name": "a"}]});
        assert!(settings(&json!({"tool_choice": allowed})).is_err());
    }

    #[test]
    fn tools_are_shown_with_all_keys() {
        let taken = settings(&json!({"tools": [{"type": "function", "name": "look"}]}));
        assert_eq!(
            show_tools(&taken.expect("is valid").tools),
            json!([{
                "type": "function", "name": "look", "description": null, "parameters": null,
                "strict": false
            }])
        );
    }
}
