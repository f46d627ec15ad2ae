//! Parts with exactly one data field each, and the roles that may contain them. The comments below
//! name each rule and quote the API's error for it.

use super::{media, tools};
use crate::{
    base64,
    node::{Node, Refusals},
};

/// The data fields, of which a part has exactly one.
const FIELDS: [&str; 5] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
];

/// `part-data`: "required oneof field 'data' must have one initialized field", or "oneof field
/// 'data' is already set".
/// `part-role`: only the model's contents have calls, only the user's have responses.
pub(super) fn check_part(node: &Node, role: &str, out: &mut Refusals) {
    let known: Vec<_> = FIELDS
        .into_iter()
        .chain(["thought", "thoughtSignature"])
        .collect();
    if !node.check_object(&known, out) {
        return;
    }
    check_thought(node, role, out);
    let held: Vec<_> = FIELDS
        .into_iter()
        .filter_map(|key| Some((key, node.find(key)?)))
        .collect();
    let [(key, field)] = held.as_slice() else {
        node.refuse(
            out,
            "part-data",
            "required oneof field 'data' must have one initialized field",
        );
        return;
    };
    if matches!(
        (*key, role),
        ("functionCall", "user") | ("functionResponse", "model")
    ) {
        field.refuse(
            out,
            "part-role",
            format!("'{key}' cannot be in contents with role '{role}'"),
        );
    }
    match *key {
        "text" => check_text(node, out),
        "inlineData" => media::check_inline(field, out),
        "fileData" => media::check_linked(field, out),
        "functionCall" => tools::check_call(field, out),
        _ => tools::check_response(field, out),
    }
}

/// `text-empty`: "Unable to submit request because it has an empty text parameter." Models may
/// stream a signature on an empty text; we require that it is moved to a part with text.
pub(super) fn check_text(part: &Node, out: &mut Refusals) {
    if part.need_text("text", out) == Some("") {
        part.refuse(
            out,
            "text-empty",
            "Unable to submit request because it has an empty text parameter.",
        );
    }
}

/// `thought-role`: only the model's contents have thoughts and signatures.
/// `signature`: "thought_signature: Base64 decoding failed"; protobuf's JSON accepts bytes as
/// base64 of either alphabet, with or without padding.
fn check_thought(node: &Node, role: &str, out: &mut Refusals) {
    let flag = node.find("thought");
    if let Some(flag) = flag.as_ref().filter(|flag| !flag.value.is_boolean()) {
        flag.refuse_type("a boolean", out);
    }
    let signature = node.find("thoughtSignature");
    if role == "user" && (flag.is_some() || signature.is_some()) {
        node.refuse(
            out,
            "thought-role",
            "thoughts and their signatures are in contents with role 'model'",
        );
    }
    if let Some(signature) = signature
        && signature
            .text(out)
            .is_some_and(|text| !base64::is_lenient(text))
    {
        signature.refuse(
            out,
            "signature",
            "Invalid value (TYPE_BYTES), Base64 decoding failed",
        );
    }
}
