//! Function calls, their responses, and how they are paired. The comments below name each rule and
//! quote the API's error for it.

use std::collections::HashSet;

use serde_json::Value;

use super::media;
use crate::node::{Node, Refusals};

/// Maximum length of a function's name, in characters. Newer versions accept 128.
const NAME_MAX: usize = 64;

/// Whether this content is the model's and contains a call.
pub(super) fn holds_call(content: &Node) -> bool {
    !calls(content).is_empty()
}

/// Whether this content is the user's and contains a response.
pub(super) fn holds_response(content: &Node) -> bool {
    !responses(content).is_empty()
}

/// `args`: "Invalid value at 'function_call.args', Starting an object on a scalar field". The key
/// may be left out if there are no arguments.
pub(super) fn check_call(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["id", "name", "args"], out) {
        return;
    }
    check_name_and_id(node, out);
    if let Some(args) = node.find("args").filter(|args| !args.value.is_object()) {
        args.refuse(out, "args", "function_call.args is a JSON object");
    }
}

/// `response`: it must be an object. The error for a list: "function_response.response: Proto field
/// is not repeating, cannot start list".
/// `response-part`: anything that is not JSON (images, documents) belongs in the response's own
/// `parts`, as inlineData or fileData.
pub(super) fn check_response(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["id", "name", "response", "parts"], out) {
        return;
    }
    check_name_and_id(node, out);
    if let Some(response) = node
        .need("response", out)
        .filter(|response| !response.value.is_object())
    {
        response.refuse(
            out,
            "response",
            "function_response.response is a JSON object",
        );
    }
    let Some(list) = node.find("parts") else {
        return;
    };
    for part in list.items(out).unwrap_or_default() {
        if !part.check_object(&["inlineData", "fileData"], out) {
            continue;
        }
        match (part.find("inlineData"), part.find("fileData")) {
            (Some(data), None) => media::check_inline(&data, out),
            (None, Some(file)) => media::check_linked(&file, out),
            _ => part.refuse(
                out,
                "response-part",
                "a part of a response has one of inlineData and fileData",
            ),
        }
    }
}

/// `function-name`: "Invalid function name. Must start with a letter or an underscore. Must be
/// alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a
/// maximum length of 64."
/// `call-id`: an empty id must be left out.
fn check_name_and_id(node: &Node, out: &mut Refusals) {
    if node
        .need_text("name", out)
        .is_some_and(|name| !is_name(name))
    {
        node.refuse(
            out,
            "function-name",
            "Invalid function name. Must start with a letter or an underscore.",
        );
    }
    if let Some(id) = node.find("id")
        && id.text(out) == Some("")
    {
        id.refuse(out, "call-id", "an id is left out rather than empty");
    }
}

fn is_name(name: &str) -> bool {
    let is_good =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts_well && name.len() <= NAME_MAX && name.bytes().all(is_good)
}

/// `response-mixed`: a content with responses contains nothing but responses. Gemini 3.6 and newer
/// refuse text or media after them with "Requests ending with a model turn are not supported",
/// older versions with the error of `response-count`; media belong in the response's `parts`, text
/// in the next content.
pub(super) fn refuse_mixed(content: &Node, parts: &[Node], out: &mut Refusals) {
    if holds_response(content)
        && parts
            .iter()
            .any(|part| part.find("functionResponse").is_none())
    {
        content.refuse(
            out,
            "response-mixed",
            "a content with function responses holds nothing else",
        );
    }
}

/// `response-turn`: "Please ensure that function response turn comes immediately after a function
/// call turn."
/// `response-count`: "Please ensure that the number of function response parts is equal to the
/// number of function call parts of the function call turn." This also applies if there is no
/// response at all.
/// `response-match`: each response has the id and the name of its call. Its call is the one with
/// its id if all calls have ids, otherwise the one at the same place among the calls.
/// `call-id-repeated`: the ids of the calls in one content are unique.
pub(super) fn check_pairs(contents: &[Node], out: &mut Refusals) {
    let nothing = Node::root(&Value::Null);
    for (index, content) in contents.iter().enumerate() {
        let before = index
            .checked_sub(1)
            .map_or(&nothing, |previous| &contents[previous]);
        if holds_response(content) && !holds_call(before) {
            let says = "function response turn comes immediately after a function call turn";
            content.refuse(out, "response-turn", says);
        }
        let calls = calls(content);
        if calls.is_empty() {
            continue;
        }
        let responses = responses(contents.get(index + 1).unwrap_or(&nothing));
        if responses.len() != calls.len() {
            let says = "the number of function response parts is equal to the number of function call parts";
            content.refuse(out, "response-count", says);
        } else if let Some(call) = repeated(&calls) {
            call.refuse(out, "call-id-repeated", "ids of calls are unique");
        } else {
            check_matches(&calls, &responses, out);
        }
    }
}

/// The first call that has the id of an earlier one.
fn repeated<'n, 'a>(calls: &'n [Node<'a>]) -> Option<&'n Node<'a>> {
    let mut seen = HashSet::new();
    calls
        .iter()
        .find(|call| call.str_of("id").is_some_and(|id| !seen.insert(id)))
}

fn check_matches(calls: &[Node], responses: &[Node], out: &mut Refusals) {
    let by_id = calls.iter().all(|call| call.str_of("id").is_some());
    let mut answered = HashSet::new();
    for (index, response) in responses.iter().enumerate() {
        let call_index = if by_id {
            calls
                .iter()
                .position(|call| call.str_of("id") == response.str_of("id"))
        } else {
            Some(index).filter(|index| calls[*index].str_of("id") == response.str_of("id"))
        };
        let is_match = call_index.is_some_and(|call_index| {
            answered.insert(call_index)
                && calls[call_index].str_of("name") == response.str_of("name")
        });
        if !is_match {
            response.refuse(
                out,
                "response-match",
                "a function response has the id and name of its function call",
            );
        }
    }
}

fn calls<'a>(content: &Node<'a>) -> Vec<Node<'a>> {
    fields(content, "model", "functionCall")
}

fn responses<'a>(content: &Node<'a>) -> Vec<Node<'a>> {
    fields(content, "user", "functionResponse")
}

/// The values under `key` in the parts of a content with this role. Empty if it has another role.
fn fields<'a>(content: &Node<'a>, role: &str, key: &str) -> Vec<Node<'a>> {
    if content.str_of("role") != Some(role) {
        return Vec::new();
    }
    content
        .each_of("parts")
        .iter()
        .filter_map(|part| part.find(key))
        .collect()
}
