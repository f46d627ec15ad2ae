//! The order of contents. The comment below names each rule and quotes the API's error for it.

use super::tools::{holds_call, holds_response};
use crate::node::{Node, Refusals};

/// `first-role`: the first content is the user's.
/// `last-role`: "Please ensure that multiturn requests end with a user turn or a function response
/// turn", "Requests ending with a model turn are not supported".
/// `same-role`: "Please ensure that multiturn requests alternate between user and model". Newer
/// models accept two consecutive contents of one role. We allow one such case: what the user says
/// after function responses is a separate content, because the responses' content may contain
/// nothing else.
/// `call-turn`: "Please ensure that function call turn comes immediately after a user turn or after
/// a function response turn"; replaces `first-role` and `same-role` for contents with calls.
pub(super) fn check_order(contents: &[Node], out: &mut Refusals) {
    let predecessors = std::iter::once(None).chain(contents.iter().map(Some));
    for (before, node) in predecessors.zip(contents) {
        let role = node.str_of("role").unwrap_or_default();
        let role_before = before.and_then(|before| before.str_of("role"));
        let is_input_after_responses = before.is_some_and(holds_response) && !holds_response(node);
        if role == "model" && holds_call(node) && role_before != Some("user") {
            let says = "function call turn comes immediately after a user turn or after a function response turn";
            node.refuse(out, "call-turn", says);
        } else if before.is_none() && role == "model" {
            node.refuse(
                out,
                "first-role",
                "Please ensure that multiturn requests start with a user turn.",
            );
        } else if role_before == Some(role) && !is_input_after_responses {
            node.refuse(
                out,
                "same-role",
                "Please ensure that multiturn requests alternate between user and model.",
            );
        }
    }
    if let Some(last) = contents
        .last()
        .filter(|last| last.str_of("role") == Some("model"))
    {
        last.refuse(
            out,
            "last-role",
            "Requests ending with a model turn are not supported.",
        );
    }
}
