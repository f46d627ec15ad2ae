//! Tool calls, their results, and how they are paired. The comments below name each rule and quote
//! the API's error for it.

use std::collections::HashSet;

use super::cache;
use crate::node::{Node, Refusals};

/// Maximum length of a call's id and of a tool's name, in characters. Ids: the API documents only a
/// pattern and has been seen to accept longer ones, but gateways limit them to this length. Names:
/// 64 for older models, 128 for newer ones.
const ID_AND_NAME_MAX: usize = 64;

/// Whether this matches `^[a-zA-Z0-9_-]{1,64}$`.
fn is_id_or_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= ID_AND_NAME_MAX && text.bytes().all(is_good)
}

/// `call-id`: "tool_use.id: String should match pattern `^[a-zA-Z0-9_-]+$`".
/// `tool-name`: "tool_use.name: String should match pattern `^[a-zA-Z0-9_-]{1,64}$`".
/// `input`: "tool_use.input: Input should be a valid dictionary".
pub(super) fn check_call(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "id", "name", "input", "cache_control"], out);
    cache::check_mark(node, out);
    if node
        .need_text("id", out)
        .is_some_and(|id| !is_id_or_name(id))
    {
        node.refuse(
            out,
            "call-id",
            "id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        );
    }
    if node
        .need_text("name", out)
        .is_some_and(|name| !is_id_or_name(name))
    {
        node.refuse(
            out,
            "tool-name",
            "name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
        );
    }
    if node
        .need("input", out)
        .is_some_and(|input| !input.value.is_object())
    {
        node.refuse(out, "input", "input: Input should be a valid dictionary");
    }
}

/// `error-empty`: "content cannot be empty if `is_error` is true".
/// `error-content`: "all content must be type `text` if `is_error` is true".
/// `result-empty`: a list without blocks; an empty result has a string as its `content`, or none.
///
/// The caller checks the blocks of the result's content.
pub(super) fn check_result(node: &Node, out: &mut Refusals) {
    node.check_object(
        &[
            "type",
            "tool_use_id",
            "content",
            "is_error",
            "cache_control",
        ],
        out,
    );
    cache::check_mark(node, out);
    node.need_text("tool_use_id", out);
    if let Some(flag) = node
        .find("is_error")
        .filter(|flag| !flag.value.is_boolean())
    {
        flag.refuse_type("a boolean", out);
    }
    let is_error = node.find("is_error").and_then(|flag| flag.value.as_bool()) == Some(true);
    let content = node.find("content");
    let inner = node.each_of("content");
    if is_error && inner.is_empty() && node.str_of("content").unwrap_or_default().is_empty() {
        node.refuse(
            out,
            "error-empty",
            "content cannot be empty if `is_error` is true",
        );
    } else if is_error
        && inner
            .iter()
            .any(|block| block.str_of("type").is_some_and(|kind| kind != "text"))
    {
        node.refuse(
            out,
            "error-content",
            "all content must be type `text` if `is_error` is true",
        );
    } else if content
        .as_ref()
        .is_some_and(|content| content.value.is_array())
        && inner.is_empty()
    {
        node.refuse(
            out,
            "result-empty",
            "content is a string, a list with a block in it, or left out",
        );
    }
    if let Some(content) =
        content.filter(|content| !content.value.is_string() && !content.value.is_array())
    {
        content.refuse_type("a string or a list of blocks", out);
    }
}

/// `call-without-result`: "`tool_use` ids were found without `tool_result` blocks immediately
/// after. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
/// `result-without-call`: "unexpected `tool_use_id` found in `tool_result` blocks. Each
/// `tool_result` block must have a corresponding `tool_use` block in the previous message."
/// `result-repeated`: "each tool_use must have a single result. Found multiple `tool_result`
/// blocks".
pub(super) fn check_pairs(messages: &[Node], out: &mut Refusals) {
    for (index, message) in messages.iter().enumerate() {
        let calls_before = index
            .checked_sub(1)
            .map(|previous| calls(&messages[previous]))
            .unwrap_or_default();
        let results_after = messages.get(index + 1).map(results).unwrap_or_default();
        for (id, node) in calls(message) {
            if !results_after.iter().any(|(call_id, _)| *call_id == id) {
                let says = "Each `tool_use` block must have a corresponding `tool_result` block in the next message.";
                node.refuse(out, "call-without-result", says);
            }
        }
        let mut answered = HashSet::new();
        for (id, node) in results(message) {
            if !calls_before.iter().any(|(call_id, _)| *call_id == id) {
                node.refuse(
                    out,
                    "result-without-call",
                    "unexpected `tool_use_id` found in `tool_result` blocks",
                );
            } else if !answered.insert(id) {
                node.refuse(
                    out,
                    "result-repeated",
                    "each tool_use must have a single result",
                );
            }
        }
    }
}

/// `call-id-repeated`: "`tool_use` ids must be unique", in the whole request.
pub(super) fn check_unique_ids(messages: &[Node], out: &mut Refusals) {
    let mut seen = HashSet::new();
    for (id, node) in messages.iter().flat_map(calls) {
        if !seen.insert(id) {
            node.refuse(out, "call-id-repeated", "`tool_use` ids must be unique");
        }
    }
}

fn calls<'a>(message: &Node<'a>) -> Vec<(&'a str, Node<'a>)> {
    blocks_with_ids(message, "assistant", "tool_use", "id")
}

fn results<'a>(message: &Node<'a>) -> Vec<(&'a str, Node<'a>)> {
    blocks_with_ids(message, "user", "tool_result", "tool_use_id")
}

/// The blocks of type `kind` of a message with this role, each with its id, which is under `key`.
/// Empty if the message has another role.
fn blocks_with_ids<'a>(
    message: &Node<'a>,
    role: &str,
    kind: &str,
    key: &str,
) -> Vec<(&'a str, Node<'a>)> {
    if message.str_of("role") != Some(role) {
        return Vec::new();
    }
    let blocks = message
        .each_of("content")
        .into_iter()
        .filter(|block| block.str_of("type") == Some(kind));
    blocks
        .filter_map(|block| Some((block.str_of(key)?, block)))
        .collect()
}
