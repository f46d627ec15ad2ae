//! Media, inline and linked, in parts and in the responses of functions. The comments below name
//! each rule and quote the API's error for it.

use crate::{
    address::is_url,
    base64,
    node::{Node, Refusals},
};

/// `base64`: "Invalid value at 'inline_data.data' (TYPE_BYTES), Base64 decoding failed". The API
/// accepts either alphabet; we require the standard one, padded.
pub(super) fn check_inline(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["mimeType", "data"], out) {
        return;
    }
    check_mime_type(node, out);
    if node
        .need_text("data", out)
        .is_some_and(|data| !base64::is_standard(data))
    {
        node.refuse(
            out,
            "base64",
            "Invalid value at 'inline_data.data' (TYPE_BYTES), Base64 decoding failed",
        );
    }
}

/// `file-uri`: "Invalid or unsupported file uri"; it must be an object of Cloud Storage or an
/// HTTPS address.
pub(super) fn check_linked(node: &Node, out: &mut Refusals) {
    if !node.check_object(&["mimeType", "fileUri"], out) {
        return;
    }
    check_mime_type(node, out);
    if node
        .need_text("fileUri", out)
        .is_some_and(|uri| !is_url(uri, &["gs://", "https://"]))
    {
        node.refuse(out, "file-uri", "Invalid or unsupported file uri");
    }
}

/// `mime-type`: "Unsupported MIME type: image/gif". Documented are PNG, JPEG, WebP, HEIC and HEIF
/// images; audio, video and text of any kind; and PDF.
fn check_mime_type(node: &Node, out: &mut Refusals) {
    let Some(given) = node.need_text("mimeType", out) else {
        return;
    };
    let is_known = match given.split_once('/') {
        Some(("image", kind)) => matches!(kind, "png" | "jpeg" | "webp" | "heic" | "heif"),
        Some(("audio" | "video" | "text", kind)) => {
            !kind.is_empty() && !kind.contains(char::is_whitespace)
        }
        _ => given == "application/pdf",
    };
    if !is_known {
        node.refuse(out, "mime-type", format!("Unsupported MIME type: {given}"));
    }
}
