//! Tool calls and their results. The comments below name each rule and quote a server's error for
//! it.

use std::collections::HashSet;

use serde_json::Value;

use crate::node::{Node, Refusals};

/// Maximum length of a call's id, in characters.
const ID_MAX: usize = 40;
/// Maximum length of a function's name, in characters.
const NAME_MAX: usize = 64;

/// `tool-calls-empty`: "Invalid `messages[1].tool_calls`: empty array. Expected an array with
/// minimum length 1."
/// `call-id-repeated`: ids are unique within their message, because otherwise results could not be
/// assigned to calls.
pub(super) fn check_list(list: &Node, out: &mut Refusals) {
    let Some(calls) = list.items(out) else { return };
    if calls.is_empty() {
        list.refuse(
            out,
            "tool-calls-empty",
            "empty array. Expected an array with minimum length 1",
        );
    }
    let mut seen = HashSet::new();
    for node in &calls {
        check_call(node, out);
        if let Some(id) = node.str_of("id")
            && !seen.insert(id)
        {
            node.refuse(
                out,
                "call-id-repeated",
                format!("Duplicate value for 'tool_call_id': '{id}'"),
            );
        }
    }
}

/// `call-type`: only functions are allowed; other servers do not know OpenAI's `custom`.
/// `call-id`: "Invalid `messages[1].tool_calls[0].id`: string too long. Expected a string with
/// maximum length 40"; it must not be empty either.
fn check_call(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["id", "type", "function"], out) {
        return;
    }
    if let Some(id) = node.need_text("id", out) {
        let length = id.chars().count();
        if length == 0 || length > ID_MAX {
            node.refuse(
                out,
                "call-id",
                format!("Expected a string of 1 to {ID_MAX} characters, but got {length}"),
            );
        }
    }
    if node
        .need_text("type", out)
        .is_some_and(|kind| kind != "function")
    {
        node.refuse(
            out,
            "call-type",
            "Invalid value. Supported values are: 'function'",
        );
    }
    if let Some(function) = node.need("function", out) {
        check_function(&function, out);
    }
}

/// `function-name`: "Expected a string that matches the pattern `^[a-zA-Z0-9_-]+$`", with at most
/// 64 characters.
/// `arguments`: a string that contains a JSON object. OpenAI accepts any string; llama.cpp ("Failed
/// to parse tool call arguments as JSON") and vLLM parse it.
fn check_function(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["name", "arguments"], out) {
        return;
    }
    if let Some(name) = node.need_text("name", out) {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_good) {
            node.refuse(
                out,
                "function-name",
                "Expected a string that matches the pattern '^[a-zA-Z0-9_-]{1,64}$'",
            );
        }
    }
    if let Some(arguments) = node.need_text("arguments", out)
        && !serde_json::from_str::<Value>(arguments).is_ok_and(|parsed| parsed.is_object())
    {
        node.refuse(
            out,
            "arguments",
            "Failed to parse tool call arguments as a JSON object",
        );
    }
}

/// `call-without-result`: "An assistant message with 'tool_calls' must be followed by tool messages
/// responding to each 'tool_call_id'."
/// `result-without-call`: "messages with role 'tool' must be a response to a preceeding message
/// with 'tool_calls'."
/// `result-repeated`: a call has exactly one result.
pub(super) fn check_results(messages: &[Node], out: &mut Refusals) {
    // The ids of all calls of the last message whose role is not `tool`, and those of its calls
    // that have no result yet. Of calls with the same id, only the first is in the list.
    let mut call_ids: HashSet<&str> = HashSet::new();
    let mut unanswered: Vec<(&str, Node)> = Vec::new();
    for message in messages {
        if message.str_of("role") == Some("tool") {
            let Some(id) = message.str_of("tool_call_id") else {
                continue;
            };
            if let Some(place) = unanswered.iter().position(|(call_id, _)| *call_id == id) {
                unanswered.remove(place);
            } else if call_ids.contains(id) {
                message.refuse(
                    out,
                    "result-repeated",
                    format!("'{id}' has been responded to already"),
                );
            } else {
                let says = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'";
                message.refuse(out, "result-without-call", says);
            }
            continue;
        }
        refuse_unanswered(&mut unanswered, out);
        call_ids.clear();
        let calls = if message.str_of("role") == Some("assistant") {
            message.each_of("tool_calls")
        } else {
            Vec::new()
        };
        let calls_with_ids = calls
            .into_iter()
            .filter_map(|call| Some((call.str_of("id")?, call)));
        unanswered = calls_with_ids
            .filter(|(id, _)| call_ids.insert(id))
            .collect();
    }
    refuse_unanswered(&mut unanswered, out);
}

fn refuse_unanswered(unanswered: &mut Vec<(&str, Node)>, out: &mut Refusals) {
    for (_, call) in unanswered.drain(..) {
        let says = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'";
        call.refuse(out, "call-without-result", says);
    }
}
