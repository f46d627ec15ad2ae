//! The rules of Anthropic's `/v1/messages`.
//!
//! Not covered, because it depends on the model or on other parameters: whether thinking is
//! switched on, whether a thinking block is the one that the model returned, and sizes and numbers
//! of images. The caller's tools may also use some of the four `cache_control` marks.
//!
//! - `blocks`: content blocks. `media`: images and documents. `tools`: calls and their results.
//! - `cache`: marks for prompt caching.
//!
//! The comments below name each rule and quote the API's error for it.

mod blocks;
mod cache;
mod media;
mod tools;

use serde_json::Value;

use crate::{
    Refusal,
    node::{Node, Refusals},
};

/// Returns the reasons for which the endpoint would refuse a body `{"system": …, "messages": […]}`;
/// empty if the body is valid. `system` may be absent.
pub fn anthropic_messages(body: &Value) -> Vec<Refusal> {
    let mut out = Refusals::new();
    let body = Node::root(body);
    if !body.check_object(&["system", "messages"], &mut out) {
        return out;
    }
    if let Some(node) = body.find("system") {
        check_system(&node, &mut out);
    }
    let Some(list) = body.need("messages", &mut out) else {
        return out;
    };
    let Some(messages) = list.items(&mut out) else {
        return out;
    };
    if messages.is_empty() {
        list.refuse(
            &mut out,
            "messages-empty",
            "messages: at least one message is required",
        );
    }
    for node in &messages {
        check_message(node, &mut out);
    }
    check_role_order(&messages, &mut out);
    tools::check_pairs(&messages, &mut out);
    tools::check_unique_ids(&messages, &mut out);
    cache::check_limits(&body, &messages, &mut out);
    out
}

/// `system-empty`: an empty system prompt must be left out. The API currently accepts an empty
/// string but not an empty block ("system: text content blocks must be non-empty"). Only text is
/// allowed: "system.0.type: Input should be 'text'".
fn check_system(node: &Node, out: &mut Refusals) {
    if node.value.as_str() == Some("") || node.value.as_array().is_some_and(Vec::is_empty) {
        node.refuse(
            out,
            "system-empty",
            "system: text content blocks must be non-empty",
        );
    } else if let Some(text) = node.value.as_str() {
        blocks::refuse_blank(node, text, out);
    } else if node.value.is_array() {
        node.each()
            .iter()
            .for_each(|block| blocks::check_block(block, "system", out));
    } else {
        node.refuse_type("a string or a list of text blocks", out);
    }
}

/// `role`: "messages.0.role: Input should be 'user' or 'assistant'."
/// `content-empty`: "all messages must have non-empty content except for the optional final
/// assistant message"; as no assistant message may be final, there is no exception.
fn check_message(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["role", "content"], out) {
        return;
    }
    let Some(role) = node.need_text("role", out) else {
        return;
    };
    if !matches!(role, "user" | "assistant") {
        node.refuse(out, "role", "Input should be 'user' or 'assistant'");
        return;
    }
    let Some(content) = node.need("content", out) else {
        return;
    };
    if content.value.as_str() == Some("") || content.value.as_array().is_some_and(Vec::is_empty) {
        let says = "all messages must have non-empty content except for the optional final assistant message";
        content.refuse(out, "content-empty", says);
    } else if let Some(text) = content.value.as_str() {
        blocks::refuse_blank(&content, text, out);
    } else if content.value.is_array() {
        blocks::check_message_blocks(&content, role, out);
    } else {
        content.refuse_type("a string or a list of blocks", out);
    }
}

/// Checks the order of roles.
///
/// `first-role`: "messages: first message must use the "user" role"; newer API versions accept
/// an assistant message there, older models do not.
/// `last-role`: "This model does not support assistant message prefill. The conversation must end
/// with a user message."
/// `same-role`: "messages: roles must alternate between "user" and "assistant", but found multiple
/// "user" roles in a row"; by now the API joins such messages without telling the caller.
/// `trailing-space`: "messages: final assistant content cannot end with trailing whitespace", for
/// models with prefill.
fn check_role_order(messages: &[Node], out: &mut Refusals) {
    let role = |message: &Node| message.str_of("role").unwrap_or_default().to_owned();
    if let Some(first) = messages.first().filter(|first| role(first) == "assistant") {
        first.refuse(
            out,
            "first-role",
            "messages: first message must use the \"user\" role",
        );
    }
    for pair in messages
        .windows(2)
        .filter(|pair| role(&pair[0]) == role(&pair[1]))
    {
        pair[1].refuse(
            out,
            "same-role",
            "messages: roles must alternate between \"user\" and \"assistant\"",
        );
    }
    let Some(last) = messages.last().filter(|last| role(last) == "assistant") else {
        return;
    };
    last.refuse(
        out,
        "last-role",
        "The conversation must end with a user message.",
    );
    if final_text(last).is_some_and(|text| text.ends_with(char::is_whitespace)) {
        last.refuse(
            out,
            "trailing-space",
            "final assistant content cannot end with trailing whitespace",
        );
    }
}

/// The text at the end of a message.
fn final_text<'a>(message: &Node<'a>) -> Option<&'a str> {
    let blocks = message.each_of("content");
    message
        .str_of("content")
        .or_else(|| blocks.last()?.str_of("text"))
}
