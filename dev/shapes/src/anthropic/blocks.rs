//! Content blocks, and the roles that may contain them. The comments below name each rule and quote
//! the API's error for it.

use super::{cache, media, tools};
use crate::node::{Node, Refusals};

/// Checks the blocks of one message, and their order.
///
/// `thinking-first`: "If an assistant message contains any thinking blocks, the first block must be
/// `thinking` or `redacted_thinking`." Later thinking blocks may stand between other blocks, as
/// models that think between calls return them.
/// `thinking-last`: "The final block in an assistant message cannot be `thinking`." We refuse
/// `redacted_thinking` there, too.
/// `results-first`: tool_result blocks come before all other blocks of the content. The API
/// reports a violation as a call without result.
pub(super) fn check_message_blocks(content: &Node, role: &str, out: &mut Refusals) {
    let blocks = content.each();
    for node in &blocks {
        check_block(node, role, out);
    }
    let kinds: Vec<_> = blocks
        .iter()
        .map(|block| block.str_of("type").unwrap_or_default())
        .collect();
    if role == "user" {
        let is_late = |index: &usize| {
            kinds[*index] == "tool_result" && kinds[..*index].iter().any(|k| *k != "tool_result")
        };
        for index in (0..kinds.len()).filter(is_late) {
            blocks[index].refuse(
                out,
                "results-first",
                "tool_result blocks must come first in the content",
            );
        }
        return;
    }
    let is_thinking = |kind: &&str| matches!(*kind, "thinking" | "redacted_thinking");
    if !kinds.first().is_some_and(is_thinking) && kinds.iter().any(is_thinking) {
        let says = "If an assistant message contains any thinking blocks, the first block must be `thinking` or \
                    `redacted_thinking`.";
        content.refuse(out, "thinking-first", says);
    }
    if kinds.last().is_some_and(is_thinking) {
        content.refuse(
            out,
            "thinking-last",
            "The final block in an assistant message cannot be `thinking`.",
        );
    }
}

/// `block-type`: "Input tag 'x' found using 'type' does not match any of the expected tags",
/// "`tool_use` blocks can only be in `assistant` messages", "`tool_result` blocks can only be in
/// `user` messages". `holder` is a role, `system`, or `tool_result`.
pub(super) fn check_block(node: &Node, holder: &str, out: &mut Refusals) {
    let Some((type_node, kind)) = node.kind(out) else {
        return;
    };
    match (kind, holder) {
        ("text", _) => check_text(node, out),
        ("image", "user" | "tool_result") => media::check_image(node, out),
        ("document", "user" | "tool_result") => media::check_document(node, out),
        ("tool_result", "user") => {
            tools::check_result(node, out);
            for inner in &node.each_of("content") {
                check_block(inner, "tool_result", out);
            }
        }
        ("tool_use", "assistant") => tools::check_call(node, out),
        ("thinking", "assistant") => check_thinking(node, out),
        ("redacted_thinking", "assistant") => check_redacted(node, out),
        _ => type_node.refuse(
            out,
            "block-type",
            format!("`{kind}` blocks cannot be in `{holder}` content"),
        ),
    }
}

/// `text-empty`: "messages: text content blocks must be non-empty".
/// `cache-on-empty`: "cache_control cannot be set for empty text blocks".
fn check_text(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "text", "cache_control"], out);
    cache::check_mark(node, out);
    let Some(text) = node.need_text("text", out) else {
        return;
    };
    if !text.is_empty() {
        refuse_blank(node, text, out);
    } else if node.find("cache_control").is_some() {
        node.refuse(
            out,
            "cache-on-empty",
            "cache_control cannot be set for empty text blocks",
        );
    } else {
        node.refuse(out, "text-empty", "text content blocks must be non-empty");
    }
}

/// `text-blank`: "text content blocks must contain non-whitespace text". The API has been seen to
/// accept such a block if another block of its message has text. We refuse every blank text block,
/// also within results, and a blank string as the content of a message or as the system prompt.
pub(super) fn refuse_blank(node: &Node, text: &str, out: &mut Refusals) {
    if text.trim().is_empty() {
        node.refuse(
            out,
            "text-blank",
            "text content blocks must contain non-whitespace text",
        );
    }
}

/// `signature`: "Invalid `signature` in `thinking` block". The text may be empty, as newer
/// models return it, but its key is required. A cache mark is refused as `unknown-key`:
/// "thinking.cache_control: Extra inputs are not permitted".
fn check_thinking(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "thinking", "signature"], out);
    node.need_text("thinking", out);
    if node.need_text("signature", out) == Some("") {
        node.refuse(out, "signature", "Invalid `signature` in `thinking` block");
    }
}

/// `redacted-data`: "Invalid `data` in `redacted_thinking` block".
fn check_redacted(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "data"], out);
    if node.need_text("data", out) == Some("") {
        node.refuse(
            out,
            "redacted-data",
            "Invalid `data` in `redacted_thinking` block",
        );
    }
}
