//! Parts: one field of data each, by the role that may hold it.

use super::tools;
use crate::{
    address::is_under,
    base64,
    node::{Node, Refusals},
};

/// The fields of which a part has exactly one.
const FIELDS: [&str; 5] = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];

/// `part-data`: "required oneof field 'data' must have one initialized field", or "oneof field 'data' is already set".
/// `part-role`: calls are the model's, their responses the user's.
pub(super) fn part(node: &Node, role: &str, out: &mut Refusals) {
    let known: Vec<_> = FIELDS.into_iter().chain(["thought", "thoughtSignature"]).collect();
    if !node.is_object_of(&known, out) {
        return;
    }
    thought(node, role, out);
    let held: Vec<_> = FIELDS.into_iter().filter_map(|key| Some((key, node.find(key)?))).collect();
    let [(key, field)] = held.as_slice() else {
        node.refuse(out, "part-data", "required oneof field 'data' must have one initialized field");
        return;
    };
    if matches!((*key, role), ("functionCall", "user") | ("functionResponse", "model")) {
        field.refuse(out, "part-role", format!("'{key}' cannot be in contents with role '{role}'"));
    }
    match *key {
        "text" => text(node, out),
        "inlineData" => inline(field, out),
        "fileData" => linked(field, out),
        "functionCall" => tools::call(field, out),
        _ => tools::response(field, out),
    }
}

/// `text-empty`: "Unable to submit request because it has an empty text parameter." Models may stream a signature on an
/// empty text; we require that it moves to a part that says something.
pub(super) fn text(part: &Node, out: &mut Refusals) {
    if part.need_text("text", out) == Some("") {
        part.refuse(out, "text-empty", "Unable to submit request because it has an empty text parameter.");
    }
}

/// `thought-role`: only the model thinks. `signature`: "thought_signature: Base64 decoding failed"; bytes of protobuf's JSON
/// are base64 of either alphabet, padded or not.
fn thought(node: &Node, role: &str, out: &mut Refusals) {
    let flag = node.find("thought");
    if let Some(flag) = flag.as_ref().filter(|flag| !flag.value.is_boolean()) {
        flag.refuse_type("a boolean", out);
    }
    let signature = node.find("thoughtSignature");
    if role == "user" && (flag.is_some() || signature.is_some()) {
        node.refuse(out, "thought-role", "thoughts and their signatures are in contents with role 'model'");
    }
    if let Some(signature) = signature
        && signature.text(out).is_some_and(|text| !base64::is_lenient(text))
    {
        signature.refuse(out, "signature", "Invalid value (TYPE_BYTES), Base64 decoding failed");
    }
}

/// `base64`: "Invalid value at 'inline_data.data' (TYPE_BYTES), Base64 decoding failed". Either alphabet is taken; we require
/// the standard one, padded.
pub(super) fn inline(node: &Node, out: &mut Refusals) {
    if !node.is_object_of(&["mimeType", "data"], out) {
        return;
    }
    mime_type(node, out);
    if node.need_text("data", out).is_some_and(|data| !base64::is_standard(data)) {
        node.refuse(out, "base64", "Invalid value at 'inline_data.data' (TYPE_BYTES), Base64 decoding failed");
    }
}

/// `file-uri`: "Invalid or unsupported file uri"; an object of Cloud Storage, or an address on the web.
pub(super) fn linked(node: &Node, out: &mut Refusals) {
    if !node.is_object_of(&["mimeType", "fileUri"], out) {
        return;
    }
    mime_type(node, out);
    if node.need_text("fileUri", out).is_some_and(|uri| !is_under(uri, &["gs://", "https://"])) {
        node.refuse(out, "file-uri", "Invalid or unsupported file uri");
    }
}

/// `mime-type`: "Unsupported MIME type: image/gif". Of images, PNG, JPEG, WebP, HEIC and HEIF are published; audio, video and
/// text of any kind; PDF.
fn mime_type(node: &Node, out: &mut Refusals) {
    let Some(given) = node.need_text("mimeType", out) else { return };
    let is_known = match given.split_once('/') {
        Some(("image", kind)) => matches!(kind, "png" | "jpeg" | "webp" | "heic" | "heif"),
        Some(("audio" | "video" | "text", kind)) => !kind.is_empty() && !kind.contains(char::is_whitespace),
        _ => given == "application/pdf",
    };
    if !is_known {
        node.refuse(out, "mime-type", format!("Unsupported MIME type: {given}"));
    }
}
