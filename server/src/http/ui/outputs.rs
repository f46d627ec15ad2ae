//! Tool calls of the client's messages, and their outputs.

use anneal_proto::v1::{self as pb, part::Part};
use serde_json::value::RawValue;

use super::parsed_message::{UiMessage, UiPart, UiRole, parse_id, wire};
use crate::http::problem::Problem;

/// The outputs of the calls of one step.
#[derive(Debug)]
pub(super) struct StepOutputs {
    /// How many steps of the message precede this one.
    pub(super) step: usize,
    /// The results, each with the id of its call.
    pub(super) results: Vec<(String, pb::Part)>,
}

/// What has become of a call.
enum CallState {
    /// Its input is not complete.
    Begun,
    /// It has no output.
    Open,
    Succeeded,
    Failed,
}

/// The outputs of all calls of the last step, which the next answer continues. Fails if it has no
/// call, or a call without an output.
pub(super) fn outputs_to_continue(
    message: &UiMessage,
    field: &str,
) -> Result<StepOutputs, Problem> {
    let outputs = read_last_step(message, field, |state_field| {
        let reason = "the call has no output yet: an answer is continued once every call of its \
                      last step has one";
        Err(Problem::invalid(state_field, reason))
    })?;
    if outputs.results.is_empty() {
        let reason = "must be a message of the user, or an answer whose last step has outputs of \
                      tool calls: there is nothing to answer";
        return Err(Problem::invalid(field, reason));
    }
    Ok(outputs)
}

/// The outputs of the last step of an answer, which the user has followed by a message. Calls
/// without an output stay open.
pub(super) fn known_outputs(message: &UiMessage, field: &str) -> Result<StepOutputs, Problem> {
    if message.role != UiRole::Assistant {
        return Ok(StepOutputs {
            step: 0,
            results: Vec::new(),
        });
    }
    read_last_step(message, field, |_| Ok(()))
}

/// Reads the calls after the last beginning of a step.
fn read_last_step(
    message: &UiMessage,
    field: &str,
    without_output: impl Fn(String) -> Result<(), Problem>,
) -> Result<StepOutputs, Problem> {
    let parts = &message.parts.0;
    let is_start = |part: &&UiPart| part.kind == "step-start";
    let last_start = parts.iter().rposition(|part| is_start(&part));
    let first = last_start.map_or(0, |index| index + 1);
    let mut results = Vec::new();
    for (index, part) in parts.iter().enumerate().skip(first) {
        if !part.is_call() {
            continue;
        }
        let field = format!("{field}.parts[{index}]");
        match to_result(part, &field)? {
            Some(result) => results.push((call_id(part, &field)?.to_owned(), result)),
            None => without_output(format!("{field}.state"))?,
        }
    }
    Ok(StepOutputs {
        step: parts.iter().filter(is_start).count(),
        results,
    })
}

/// The call as it is stored. None: its input was cut off.
pub(super) fn to_call(part: &UiPart, field: &str) -> Result<Option<pb::Part>, Problem> {
    if matches!(call_state(part, field)?, CallState::Begun) {
        return Ok(None);
    }
    let name = if part.kind == "dynamic-tool" {
        part.tool_name.as_deref()
    } else {
        part.kind.strip_prefix("tool-")
    };
    let name = name.filter(|name| !name.is_empty());
    let name =
        name.ok_or_else(|| Problem::invalid(format!("{field}.toolName"), "must not be empty"))?;
    // A client has the input of a call that could not be parsed as `rawInput`.
    let input = part.input.as_ref().or(part.raw_input.as_ref());
    Ok(Some(wire(Part::ToolUse(pb::ToolUsePart {
        id: call_id(part, field)?.to_owned(),
        name: name.to_owned(),
        input: input.map_or_else(|| "{}".to_owned(), |input| text_of(input)),
    }))))
}

/// The result of the call. None: it has none yet.
pub(super) fn to_result(part: &UiPart, field: &str) -> Result<Option<pb::Part>, Problem> {
    let (text, is_error) = match call_state(part, field)? {
        CallState::Begun | CallState::Open => return Ok(None),
        CallState::Succeeded => (part.output.as_deref().map(text_of), false),
        CallState::Failed => (part.error_text.clone(), true),
    };
    Ok(Some(wire(Part::ToolResult(pb::ToolResultPart {
        tool_use_id: call_id(part, field)?.to_owned(),
        text: text.unwrap_or_default(),
        is_error,
        media: Vec::new(),
    }))))
}

fn call_id<'a>(part: &'a UiPart, field: &str) -> Result<&'a str, Problem> {
    let id = part.tool_call_id.as_deref().unwrap_or_default();
    parse_id(&format!("{field}.toolCallId"), id)
}

fn call_state(part: &UiPart, field: &str) -> Result<CallState, Problem> {
    if part.provider_executed == Some(true) {
        let reason = "calls that a provider executes are not modelled";
        return Err(Problem::invalid(
            format!("{field}.providerExecuted"),
            reason,
        ));
    }
    let refused = |reason: &str| Err(Problem::invalid(format!("{field}.state"), reason));
    match part.state.as_deref().unwrap_or_default() {
        "input-streaming" => Ok(CallState::Begun),
        "input-available" => Ok(CallState::Open),
        "output-available" => Ok(CallState::Succeeded),
        "output-error" => Ok(CallState::Failed),
        "approval-requested" | "approval-responded" | "output-denied" => {
            refused("approvals of tool calls are not modelled: give an output or an error")
        }
        _ => refused("is no state of a tool call"),
    }
}

/// The text of a value: a string's content, or else its JSON.
fn text_of(json: &RawValue) -> String {
    serde_json::from_str::<String>(json.get()).unwrap_or_else(|_| json.get().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(parts: &Value) -> UiMessage {
        let message = json!({"id": "a", "role": "assistant", "parts": parts});
        let raw = RawValue::from_string(message.to_string()).expect("is JSON");
        UiMessage::parse("m", &raw).expect("is a message")
    }

    fn texts(outputs: &StepOutputs) -> Vec<(&str, &str, bool)> {
        let results = outputs.results.iter().map(|(id, part)| match &part.part {
            Some(Part::ToolResult(result)) => (id.as_str(), result.text.as_str(), result.is_error),
            other => panic!("{other:?}"),
        });
        results.collect()
    }

    #[test]
    fn only_the_outputs_of_the_last_step_are_new() {
        let message = answer(&json!([
            {"type": "step-start"},
            {"type": "tool-look", "toolCallId": "c0", "state": "output-available", "output": 0},
            {"type": "step-start"},
            {"type": "data-own", "data": 1},
            {"type": "tool-look", "toolCallId": "c1", "state": "output-available", "output": "a\"b"},
            {"type": "tool-look", "toolCallId": "c2", "state": "output-available", "output": {"n": 1.0}},
            {"type": "tool-look", "toolCallId": "c3", "state": "output-error", "errorText": "no"},
            {"type": "tool-look", "toolCallId": "c4", "state": "output-available"},
        ]));
        let outputs = outputs_to_continue(&message, "m").expect("is valid");
        assert_eq!(outputs.step, 2);
        assert_eq!(
            texts(&outputs),
            [
                ("c1", "a\"b", false),
                ("c2", r#"{"n":1.0}"#, false),
                ("c3", "no", true),
                ("c4", "", false)
            ]
        );
    }

    #[test]
    fn an_answer_without_all_outputs_is_not_continued() {
        let call = |state: &str| json!({"type": "tool-look", "toolCallId": "c", "state": state, "output": 1});
        let done = call("output-available");
        let executed = json!({"type": "tool-look", "toolCallId": "c", "state": "output-available",
            "output": 1, "providerExecuted": true});
        for (parts, word) in [
            (json!([{"type": "text", "text": "a"}]), "nothing to answer"),
            (json!([done, {"type": "step-start"}]), "nothing to answer"),
            (json!([done, call("input-available")]), "no output yet"),
            (json!([done, call("approval-responded")]), "approvals"),
            (json!([done, call("output-denied")]), "approvals"),
            (json!([done, call("gone")]), "no state"),
            (json!([executed]), "provider executes"),
            (
                json!([{"type": "tool-look", "state": "output-error"}]),
                "toolCallId",
            ),
        ] {
            let refused = outputs_to_continue(&answer(&parts), "m").expect_err("is refused");
            assert!(refused.detail().contains(word), "{}", refused.detail());
        }
        let open = answer(&json!([done, call("input-available")]));
        let outputs = known_outputs(&open, "m").expect("the user may go on");
        assert_eq!(outputs.results.len(), 1);
    }
}
