//! The response object: what of a request an answer shows, and the forms of the object while the
//! turn runs and after its end.

use anneal_proto::{
    convert::chat_options,
    v1::{self as pb, response_format},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    create_body::{CreateBody, Origin},
    outcome::{Outcome, Status},
    tools::{ToolRule, show_choice, show_tools},
};
use crate::{
    http::openai::{errors::ApiError, ids},
    settings::ReloadableSettings,
};

/// What is kept of a request: what its answers show.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ShownRequest {
    /// The response object of a turn that runs.
    object: Map<String, Value>,
}

/// What identifies a response, beside its parameters.
pub(super) struct Identity<'a> {
    pub(super) id: &'a str,
    /// Seconds since 1970.
    pub(super) created_at: i64,
    /// The model that the request names, or that it gets.
    pub(super) model: &'a str,
}

impl ShownRequest {
    /// What answers show of this request. `options`: those of the turn, which may come from the
    /// conversation and its agent.
    pub(super) fn new(
        identity: &Identity<'_>,
        body: &CreateBody,
        options: &pb::ChatOptions,
    ) -> Self {
        let tool_choice = body.tools.choice.as_ref().map_or_else(
            || show_choice(options.tool_choice.as_ref()),
            |choice| choice.shown.clone(),
        );
        let previous = match body.origin {
            Origin::Response(id) => Some(ids::response_id(id)),
            Origin::Nothing | Origin::Conversation(_) => None,
        };
        let mut object = json!({
            "id": identity.id,
            "object": "response",
            "created_at": identity.created_at,
            "completed_at": null,
            "status": Status::InProgress,
            "incomplete_details": null,
            "model": identity.model,
            "previous_response_id": previous,
            "instructions": body.instructions,
            "output": [],
            "error": null,
            "tools": show_tools(&options.tools),
            "tool_choice": tool_choice,
            "truncation": body.reduction.shown(),
            "parallel_tool_calls": options.parallel_tool_calls.unwrap_or(true),
            "text": show_text(options.response_format.as_ref(), body.options.has_verbosity),
            "top_p": show_number(options.top_p.unwrap_or(1.0)),
            "presence_penalty": 0,
            "frequency_penalty": 0,
            "top_logprobs": 0,
            "temperature": show_number(options.temperature.unwrap_or(1.0)),
            "reasoning": {
                "effort": show_effort(options.reasoning_effort()),
                "summary": null,
            },
            "usage": null,
            "max_output_tokens": options.max_output_tokens,
            "max_tool_calls": body.max_tool_calls,
            "store": body.store,
            "background": body.background,
            "service_tier": "default",
            "metadata": body.labels.metadata,
            "safety_identifier": body.labels.safety_identifier,
            "prompt_cache_key": body.labels.prompt_cache_key,
        });
        if let Origin::Conversation(id) = body.origin {
            object["conversation"] = json!({"id": ids::conversation_id(id)});
        }
        if let Some(user) = &body.labels.user {
            object["user"] = json!(user);
        }
        let Value::Object(object) = object else {
            unreachable!("it was made as an object");
        };
        Self { object }
    }

    /// The JSON text that is stored.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("all its keys are strings")
    }

    /// Whether the turn runs in the background.
    pub(super) fn is_background(&self) -> bool {
        self.object.get("background") == Some(&Value::Bool(true))
    }

    /// What the calls of the answer must comply with.
    pub(super) fn tool_rule(&self) -> ToolRule {
        ToolRule::of(self.object.get("tool_choice").unwrap_or(&Value::Null))
    }

    /// The object of a turn that has not ended.
    pub(super) fn running(&self, status: Status) -> Value {
        let mut object = self.object.clone();
        object.insert("status".into(), json!(status));
        Value::Object(object)
    }

    /// The object of a turn that has ended, with these items.
    pub(super) fn ended(&self, outcome: &Outcome, output: &[Value]) -> Value {
        let mut object = self.object.clone();
        let mut set = |name: &str, value: Value| object.insert(name.to_owned(), value);
        set("status", json!(outcome.status));
        set("error", json!(outcome.error));
        set(
            "incomplete_details",
            json!(
                outcome
                    .incomplete
                    .as_ref()
                    .map(|reason| json!({"reason": reason}))
            ),
        );
        if outcome.status == Status::Completed {
            set("completed_at", json!(outcome.ended_at));
        }
        set("usage", json!(outcome.usage));
        if let Some(model) = &outcome.model {
            set("model", json!(model));
        }
        if outcome.status.has_output() {
            set("output", Value::Array(output.to_vec()));
        }
        Value::Object(object)
    }
}

/// The options that the turns of a conversation inherit: its own, over those of its agent.
pub(super) fn inherited_options(
    settings: &ReloadableSettings,
    conversation: &pb::Conversation,
) -> Result<pb::ChatOptions, ApiError> {
    let own = conversation.chat_options.clone().unwrap_or_default();
    let own = chat_options::parse("chat_options", own)?;
    let agent = settings.agents.get(&conversation.agent_id);
    let agent = agent.map(|agent| agent.chat.options()).unwrap_or_default();
    Ok(own.over(agent).into())
}

/// The options of a turn: those of the request, over those that it inherits.
pub(super) fn merge_options(
    body: &CreateBody,
    inherited: Option<&pb::ChatOptions>,
) -> pb::ChatOptions {
    let inherited = inherited.cloned().unwrap_or_default();
    let own = &body.options;
    let format = own.format.clone();
    let effort = match own.effort {
        pb::ReasoningEffort::Unspecified => inherited.reasoning_effort,
        effort => effort.into(),
    };
    let tools = if body.tools.is_given {
        body.tools.tools.clone()
    } else {
        inherited.tools
    };
    let choice = body.tools.choice.as_ref().map(|choice| pb::ToolChoice {
        choice: Some(choice.sent.clone()),
    });
    pb::ChatOptions {
        tool_choice: choice
            .or(inherited.tool_choice)
            .filter(|_| !tools.is_empty()),
        tools,
        parallel_tool_calls: own.parallel_tool_calls.or(inherited.parallel_tool_calls),
        response_format: format
            .map(|format| pb::ResponseFormat {
                format: Some(format),
            })
            .or(inherited.response_format),
        temperature: own.temperature.or(inherited.temperature),
        top_p: own.top_p.or(inherited.top_p),
        stop: inherited.stop,
        reasoning_effort: effort,
        metadata: inherited.metadata,
        max_output_tokens: own.max_output_tokens.or(inherited.max_output_tokens),
    }
}

/// The number as it was sent: the shortest decimal that stands for it.
fn show_number(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn show_text(format: Option<&pb::ResponseFormat>, has_verbosity: bool) -> Value {
    let format = match format.and_then(|format| format.format.as_ref()) {
        None => json!({"type": "text"}),
        Some(response_format::Format::JsonObject(_)) => json!({"type": "json_object"}),
        // The specification shows a schema as null.
        Some(response_format::Format::JsonSchema(schema)) => json!({
            "type": "json_schema",
            "name": schema.name,
            "description": description_of(&schema.schema),
            "schema": null,
            "strict": schema.strict,
        }),
    };
    let mut text = json!({"format": format});
    if has_verbosity {
        text["verbosity"] = json!("medium");
    }
    text
}

/// The description in a schema, where that of the format is passed on.
fn description_of(schema: &str) -> Option<String> {
    let schema: Value = serde_json::from_str(schema).ok()?;
    Some(schema.get("description")?.as_str()?.to_owned())
}

/// The effort that was asked for. None: nobody has, or the effort of the conversation is one that
/// the specification does not have.
const fn show_effort(effort: pb::ReasoningEffort) -> Option<&'static str> {
    match effort {
        pb::ReasoningEffort::Unspecified
        | pb::ReasoningEffort::Minimal
        | pb::ReasoningEffort::Max => None,
        pb::ReasoningEffort::None => Some("none"),
        pb::ReasoningEffort::Low => Some("low"),
        pb::ReasoningEffort::Medium => Some("medium"),
        pb::ReasoningEffort::High => Some("high"),
        pb::ReasoningEffort::Xhigh => Some("xhigh"),
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::chat_options::ToolChoice;

    use super::*;
    use crate::settings::AgentSettings;

    fn shown(body: Value, inherited: Option<&pb::ChatOptions>) -> Value {
        let body = CreateBody::parse(body).expect("is valid");
        let identity = Identity {
            id: "resp_1",
            created_at: 5,
            model: "m",
        };
        let options = merge_options(&body, inherited);
        ShownRequest::new(&identity, &body, &options).running(Status::InProgress)
    }

    #[test]
    fn the_object_has_all_31_keys() {
        let object = shown(json!({"input": "hi"}), None);
        assert_eq!(object.as_object().map(Map::len), Some(31));
        assert_eq!(object["temperature"], json!(1.0));
        assert_eq!(object["text"], json!({"format": {"type": "text"}}));
        assert_eq!(object["tool_choice"], "auto");
    }

    #[test]
    fn what_is_shown_is_what_the_turn_gets() {
        let inherited = pb::ChatOptions {
            temperature: Some(0.7),
            top_p: Some(0.1),
            tools: vec![pb::Tool {
                name: "look".into(),
                ..pb::Tool::default()
            }],
            ..pb::ChatOptions::default()
        };
        let object = shown(json!({"input": "hi", "top_p": 0.3}), Some(&inherited));
        assert_eq!(object["temperature"], json!(0.7));
        assert_eq!(object["top_p"], json!(0.3));
        assert_eq!(object["tools"][0]["name"], "look");
        assert_eq!(object["max_output_tokens"], Value::Null);
    }

    #[test]
    fn a_conversation_s_options_lie_over_those_of_its_agent() {
        let mut settings = ReloadableSettings::default();
        let mut agent = AgentSettings::default();
        agent.chat.temperature = Some(0.5);
        agent.chat.top_p = Some(0.25);
        agent.chat.tool_choice = Some(ToolChoice::Required);
        settings.agents.insert("cook".into(), agent);
        let conversation = pb::Conversation {
            agent_id: "cook".into(),
            chat_options: Some(pb::ChatOptions {
                top_p: Some(0.75),
                tools: vec![pb::Tool {
                    name: "look".into(),
                    ..pb::Tool::default()
                }],
                ..pb::ChatOptions::default()
            }),
            ..pb::Conversation::default()
        };
        let inherited = inherited_options(&settings, &conversation).expect("is valid");
        let object = shown(json!({"input": "hi"}), Some(&inherited));
        assert_eq!(object["temperature"], json!(0.5));
        assert_eq!(object["top_p"], json!(0.75));
        assert_eq!(object["tools"][0]["name"], "look");
        assert_eq!(object["tool_choice"], "required");
        let other = pb::Conversation {
            agent_id: "baker".into(),
            ..conversation
        };
        let inherited = inherited_options(&settings, &other).expect("is valid");
        assert_eq!((inherited.temperature, inherited.top_p), (None, Some(0.75)));
    }
}
