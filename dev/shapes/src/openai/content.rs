//! Content of chat messages: a string, or typed parts that are allowed for the role. The comments
//! below name each rule and quote a server's error for it.

use crate::{
    address::{is_url, split_data_url},
    base64,
    node::{Node, Refusals},
};

/// The media types of the accepted images.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// `content-missing`: "Invalid value for 'content': expected a string, got null." Only assistant
/// messages may have no content.
pub(super) fn need_content(message: &Node, role: &str, out: &mut Refusals) {
    match message
        .find("content")
        .filter(|content| !content.value.is_null())
    {
        Some(content) => check_content(&content, role, out),
        None => message.refuse(
            out,
            "content-missing",
            "Invalid value for 'content': expected a string, got null.",
        ),
    }
}

/// Checks content that is present. If it is neither a string nor a list of parts: "expected one of
/// a string or array of objects".
pub(super) fn check_content(content: &Node, role: &str, out: &mut Refusals) {
    if let Some(text) = content.value.as_str() {
        refuse_empty(content, text, role, out);
    } else if content.value.is_array() {
        check_parts(content, role, out);
    } else {
        content.refuse_type("one of a string or array of objects", out);
    }
}

/// `content-empty`: Moonshot: "message at position 0 with role 'user' must not be empty"; OpenAI
/// accepts an empty string. A tool's result may be empty; whether an assistant message may be empty
/// depends on its calls.
fn refuse_empty(content: &Node, text: &str, role: &str, out: &mut Refusals) {
    if text.is_empty() && !matches!(role, "tool" | "assistant") {
        content.refuse(
            out,
            "content-empty",
            format!("message with role '{role}' must not be empty"),
        );
    }
}

/// `parts-empty`: "Invalid `messages[0].content`: empty array. Expected an array with minimum
/// length 1."
/// `refusal-alone`: content is one or more parts of type text, or exactly one of type refusal.
fn check_parts(content: &Node, role: &str, out: &mut Refusals) {
    let parts = content.each();
    if parts.is_empty() {
        content.refuse(
            out,
            "parts-empty",
            "empty array. Expected an array with minimum length 1",
        );
    }
    for node in &parts {
        check_part(node, role, out);
    }
    if role == "assistant"
        && parts.len() > 1
        && parts
            .iter()
            .any(|part| part.str_of("type") == Some("refusal"))
    {
        content.refuse(
            out,
            "refusal-alone",
            "content is text parts, or exactly one part of type refusal",
        );
    }
}

/// `part-type`: "Invalid value: 'image'. Supported values are: 'text' and 'image_url'", or "Image
/// URLs are only allowed for messages with role 'user', but this message with role 'tool' contains
/// an image URL."
fn check_part(node: &Node, role: &str, out: &mut Refusals) {
    let Some((type_node, kind)) = node.kind(out) else {
        return;
    };
    match (kind, role) {
        ("text", _) => check_text(node, role, out),
        ("refusal", "assistant") => check_refusal(node, out),
        ("image_url", "user") => check_image(node, out),
        ("input_audio", "user") => check_audio(node, out),
        ("file", "user") => check_file(node, out),
        _ => type_node.refuse(
            out,
            "part-type",
            format!("'{kind}' is not allowed for messages with role '{role}'"),
        ),
    }
}

/// `text-empty`: Moonshot: "text content is empty". OpenAI accepts an empty text part.
/// `breakpoint-mode`: the mark of a text up to which OpenAI caches from gpt-5.6 on. Parts of
/// answers have none.
fn check_text(node: &Node, role: &str, out: &mut Refusals) {
    let known: &[&str] = if role == "assistant" {
        &["type", "text"]
    } else {
        &["type", "text", "prompt_cache_breakpoint"]
    };
    node.check_object(known, out);
    if let Some(mark) = node.find("prompt_cache_breakpoint")
        && mark.check_object(&["mode"], out)
        && mark
            .need_text("mode", out)
            .is_some_and(|mode| mode != "explicit")
    {
        mark.refuse(
            out,
            "breakpoint-mode",
            "Invalid value. Supported values are: 'explicit'",
        );
    }
    if node.need_text("text", out) == Some("") {
        node.refuse(out, "text-empty", "text content is empty");
    }
}

/// The model's refusal, which replaces an answer.
fn check_refusal(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "refusal"], out);
    node.need_text("refusal", out);
}

/// - `image-url`: a data URL with a PNG, JPEG, GIF or WebP in base64, or a web address. OpenAI's
///   texts: "Expected a base64-encoded data URL with an image MIME type", "You uploaded an
///   unsupported image".
/// - `image-detail`: one of auto, low, high.
fn check_image(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "image_url"], out);
    let Some(image) = node.need("image_url", out) else {
        return;
    };
    if !image.check_object(&["url", "detail"], out) {
        return;
    }
    if let Some(url) = image.need_text("url", out) {
        let is_inline = split_data_url(url)
            .is_some_and(|(kind, data)| IMAGE_TYPES.contains(&kind) && base64::is_standard(data));
        if !is_inline && !is_url(url, &["https://", "http://"]) {
            image.refuse(
                out,
                "image-url",
                "Expected a base64-encoded data URL with an image MIME type, or a web address",
            );
        }
    }
    if let Some(detail) = image.find("detail")
        && !matches!(detail.value.as_str(), Some("auto" | "low" | "high"))
    {
        detail.refuse(
            out,
            "image-detail",
            "Supported values are: 'low', 'high', and 'auto'",
        );
    }
}

/// `audio-data`: the data must be plain base64, not a data URL.
/// `audio-format`: "Supported values are: 'wav' and 'mp3'".
fn check_audio(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "input_audio"], out);
    let Some(audio) = node.need("input_audio", out) else {
        return;
    };
    if !audio.check_object(&["data", "format"], out) {
        return;
    }
    if audio
        .need_text("data", out)
        .is_some_and(|data| !base64::is_standard(data))
    {
        audio.refuse(
            out,
            "audio-data",
            "The data provided for 'input_audio' is not valid base64",
        );
    }
    if audio
        .need_text("format", out)
        .is_some_and(|format| !matches!(format, "wav" | "mp3"))
    {
        audio.refuse(out, "audio-format", "Supported values are: 'wav' and 'mp3'");
    }
}

/// `file-source`: either `file_id`, or `file_data` with a `filename`; with neither: "Missing
/// required parameter".
/// `file-data`: "Expected a base64-encoded data URL with an application/pdf MIME type", which is
/// the only type that every model accepts.
fn check_file(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "file"], out);
    let Some(file) = node.need("file", out) else {
        return;
    };
    if !file.check_object(&["file_id", "file_data", "filename"], out) {
        return;
    }
    let given = ["file_id", "file_data", "filename"].map(|key| file.find(key));
    let texts = given
        .each_ref()
        .map(|field| field.as_ref().and_then(|field| field.text(out)));
    match &given {
        [Some(_), None, None] | [None, Some(_), Some(_)] if !texts.contains(&Some("")) => {}
        _ => file.refuse(
            out,
            "file-source",
            "Missing required parameter: 'file_id', or 'file_data' with 'filename'",
        ),
    }
    let is_pdf = |url: &str| {
        split_data_url(url)
            .is_some_and(|(kind, data)| kind == "application/pdf" && base64::is_standard(data))
    };
    if texts[1].is_some_and(|url| !url.is_empty() && !is_pdf(url)) {
        file.refuse(
            out,
            "file-data",
            "Expected a base64-encoded data URL with an application/pdf MIME type",
        );
    }
}
