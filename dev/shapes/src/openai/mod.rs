//! The rules of `/v1/chat/completions`: those of OpenAI, and those of llama.cpp, vLLM and Moonshot
//! that apply to all of their models. Not covered are rules of the chat templates of single models,
//! for example against a system message further down or against roles that do not alternate.
//!
//! - `content`: the content of a message. `calls`: tool calls and their results.
//!
//! The comments below name each rule and quote a server's error for it.

mod calls;
mod content;

use serde_json::Value;

use crate::{
    Refusal,
    node::{Node, Refusals},
};

/// Maximum length of the `name` of a message's author, in characters.
const AUTHOR_MAX: usize = 64;

/// Returns the reasons for which the endpoint would refuse a body `{"messages": […]}`; empty if the
/// body is valid.
pub fn openai_chat(body: &Value) -> Vec<Refusal> {
    let mut out = Refusals::new();
    let body = Node::root(body);
    if !body.check_object(&["messages"], &mut out) {
        return out;
    }
    let Some(list) = body.need("messages", &mut out) else {
        return out;
    };
    let Some(messages) = list.items(&mut out) else {
        return out;
    };
    need_messages(&list, &messages, &mut out);
    for node in &messages {
        check_message(node, &mut out);
    }
    calls::check_results(&messages, &mut out);
    refuse_assistant_tail(&messages, &mut out);
    out
}

/// `messages-empty`: "Invalid 'messages': empty array. Expected an array with minimum length 1."
/// `only-system`: instructions alone are not a conversation. OpenAI itself answers them; vLLM and
/// others refuse them with template errors such as "No user query found in messages."
fn need_messages(list: &Node, messages: &[Node], out: &mut Refusals) {
    if messages.is_empty() {
        let says = "Invalid 'messages': empty array. Expected an array with minimum length 1";
        list.refuse(out, "messages-empty", says);
    } else if messages
        .iter()
        .all(|message| matches!(message.str_of("role"), Some("system" | "developer")))
    {
        list.refuse(
            out,
            "only-system",
            "at least one message that is not a system message is required",
        );
    }
}

/// `role`: "Invalid value: 'x'. Supported values are: 'system', 'assistant', 'user', 'function',
/// 'tool', and 'developer'." `function` is deprecated and counts as unknown. Each role has its own
/// keys.
fn check_message(node: &Node, out: &mut Refusals) {
    let keys: &[&str] = match node.str_of("role") {
        Some("assistant") => &["role", "content", "name", "refusal", "tool_calls"],
        Some("tool") => &["role", "content", "tool_call_id"],
        _ => &["role", "content", "name"],
    };
    if !node.check_object(keys, out) {
        return;
    }
    let Some(role_node) = node.need("role", out) else {
        return;
    };
    let Some(role) = role_node.text(out) else {
        return;
    };
    check_author(node, out);
    match role {
        "system" | "developer" | "user" => content::need_content(node, role, out),
        "assistant" => check_assistant(node, out),
        "tool" => {
            content::need_content(node, role, out);
            node.need_text("tool_call_id", out);
        }
        _ => {
            let says =
                "Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'";
            role_node.refuse(out, "role", format!("Invalid value: '{role}'. {says}"));
        }
    }
}

/// `author`: "Invalid `messages[0].name`: string does not match pattern. Expected a string that
/// matches the pattern `^[^\s<|\\/>]+$`", with at most 64 characters.
fn check_author(node: &Node, out: &mut Refusals) {
    let Some(name) = node.find("name") else {
        return;
    };
    let Some(text) = name.text(out) else { return };
    let is_refused = |c: char| c.is_whitespace() || matches!(c, '<' | '|' | '\\' | '/' | '>');
    if text.is_empty() || text.chars().count() > AUTHOR_MAX || text.contains(is_refused) {
        name.refuse(
            out,
            "author",
            "Expected a string that matches the pattern '^[^\\s<|\\\\/>]+$'",
        );
    }
}

/// `assistant-empty`: llama.cpp: "Assistant message must contain either 'content' or
/// 'tool_calls'!"; Mistral and Moonshot ("message with role 'assistant' must not be empty") also
/// refuse an empty string without calls, and so do we. A refusal by the model counts as content.
fn check_assistant(node: &Node, out: &mut Refusals) {
    let has_calls = node.find("tool_calls").is_some();
    if let Some(list) = node.find("tool_calls") {
        calls::check_list(&list, out);
    }
    let refusal = node
        .find("refusal")
        .filter(|refusal| !refusal.value.is_null())
        .and_then(|refusal| refusal.text(out));
    let content = node
        .find("content")
        .filter(|content| !content.value.is_null());
    if let Some(content) = &content {
        content::check_content(content, "assistant", out);
    }
    let is_empty = content.is_none_or(|content| content.value.as_str() == Some(""));
    if is_empty && !has_calls && refusal.is_none_or(str::is_empty) {
        node.refuse(
            out,
            "assistant-empty",
            "Assistant message must contain either 'content' or 'tool_calls'!",
        );
    }
}

/// `assistant-tail`: llama.cpp: "Cannot have 2 or more assistant messages at the end of the list."
/// OpenAI accepts them.
fn refuse_assistant_tail(messages: &[Node], out: &mut Refusals) {
    let [.., before, last] = messages else { return };
    if before.str_of("role") == Some("assistant") && last.str_of("role") == Some("assistant") {
        last.refuse(
            out,
            "assistant-tail",
            "Cannot have 2 or more assistant messages at the end of the list.",
        );
    }
}
