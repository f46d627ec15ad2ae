//! The rules of Gemini's `generateContent`, on the Gemini API and on Vertex AI.
//!
//! Not covered, because it depends on the model: whether the first call of a turn needs its
//! `thoughtSignature` (Gemini 3 requires it), and whether a call may have an `id` (older versions
//! of Vertex AI do not know the key).
//!
//! - `turns`: the order of contents. `parts`: their parts. `media`: media in parts and responses.
//! - `tools`: function calls and their responses.
//!
//! The comments below name each rule and quote the API's error for it.

mod media;
mod parts;
mod tools;
mod turns;

use serde_json::Value;

use crate::{
    Refusal,
    node::{Node, Refusals},
};

/// Returns the reasons for which the endpoint would refuse a body `{"systemInstruction": …,
/// "contents": […]}`; empty if the body is valid. `systemInstruction` may be absent.
pub fn gemini_contents(body: &Value) -> Vec<Refusal> {
    let mut out = Refusals::new();
    let body = Node::root(body);
    if !body.check_object(&["systemInstruction", "contents"], &mut out) {
        return out;
    }
    if let Some(node) = body.find("systemInstruction") {
        check_system(&node, &mut out);
    }
    let Some(list) = body.need("contents", &mut out) else {
        return out;
    };
    let Some(contents) = list.items(&mut out) else {
        return out;
    };
    if contents.is_empty() {
        list.refuse(
            &mut out,
            "contents-empty",
            "GenerateContentRequest.contents: contents is not specified",
        );
    }
    for node in &contents {
        check_content(node, &mut out);
    }
    turns::check_order(&contents, &mut out);
    tools::check_pairs(&contents, &mut out);
    out
}

/// `system-role`: the instruction's role must be left out, `user` or `system`; the API ignores it.
/// `system-part`: "systemInstruction: Currently, text only."
fn check_system(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["role", "parts"], out) {
        return;
    }
    if let Some(role) = node
        .find("role")
        .filter(|role| !matches!(role.value.as_str(), Some("user" | "system")))
    {
        role.refuse(
            out,
            "system-role",
            "the role of a system instruction is left out, 'user' or 'system'",
        );
    }
    for part in need_parts(node, out) {
        if part.find("text").is_some() {
            part.check_object(&["text"], out);
            parts::check_text(&part, out);
        } else {
            part.refuse(out, "system-part", "system instructions hold text only");
        }
    }
}

/// `role`: "Please use a valid role: user, model." The API allows a single content without a role;
/// we require one.
fn check_content(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["role", "parts"], out) {
        return;
    }
    let role = node.need_text("role", out);
    if role.is_some_and(|role| !matches!(role, "user" | "model")) {
        node.refuse(out, "role", "Please use a valid role: user, model.");
    }
    let parts = need_parts(node, out);
    for part in &parts {
        parts::check_part(part, role.unwrap_or_default(), out);
    }
    tools::refuse_mixed(node, &parts, out);
}

/// `parts-empty`: "contents.parts must not be empty"; on Vertex AI: "Unable to submit request
/// because it must include at least one parts field, which describes the prompt input."
fn need_parts<'a>(node: &Node<'a>, out: &mut Refusals) -> Vec<Node<'a>> {
    let parts = node.need("parts", out).and_then(|list| list.items(out));
    if parts.as_ref().is_some_and(Vec::is_empty) {
        node.refuse(out, "parts-empty", "contents.parts must not be empty");
    }
    parts.unwrap_or_default()
}
