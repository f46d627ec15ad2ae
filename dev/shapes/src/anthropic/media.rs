//! Images and documents. The comments below name each rule and quote the API's error for it.

use super::cache;
use crate::{
    address::is_url,
    base64,
    node::{Node, Refusals},
};

/// `media-type`: "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'".
pub(super) fn check_image(node: &Node, out: &mut Refusals) {
    node.check_object(&["type", "source", "cache_control"], out);
    cache::check_mark(node, out);
    let Some(source) = node.need("source", out) else {
        return;
    };
    let Some((type_node, kind)) = source.kind(out) else {
        return;
    };
    match kind {
        "base64" => check_inline(
            &source,
            &["image/jpeg", "image/png", "image/gif", "image/webp"],
            out,
        ),
        "url" => check_linked(&source, out),
        _ => refuse_source(&type_node, kind, out),
    }
}

/// `document-text`: a plain text document must contain more than white space.
pub(super) fn check_document(node: &Node, out: &mut Refusals) {
    node.check_object(
        &["type", "source", "title", "context", "cache_control"],
        out,
    );
    cache::check_mark(node, out);
    for key in ["title", "context"] {
        node.find(key).and_then(|field| field.text(out));
    }
    let Some(source) = node.need("source", out) else {
        return;
    };
    let Some((type_node, kind)) = source.kind(out) else {
        return;
    };
    match kind {
        "base64" => check_inline(&source, &["application/pdf"], out),
        "url" => check_linked(&source, out),
        "text" => {
            source.check_object(&["type", "media_type", "data"], out);
            check_media_type(&source, &["text/plain"], out);
            if source
                .need_text("data", out)
                .is_some_and(|text| text.trim().is_empty())
            {
                source.refuse(out, "document-text", "text documents must be non-empty");
            }
        }
        _ => refuse_source(&type_node, kind, out),
    }
}

/// `source-type`: "Input tag 'x' found using 'type' does not match any of the expected tags".
/// Sources of type `file` belong to the Files API, which is in beta.
fn refuse_source(type_node: &Node, kind: &str, out: &mut Refusals) {
    let says =
        format!("Input tag '{kind}' found using 'type' does not match any of the expected tags");
    type_node.refuse(out, "source-type", says);
}

/// `base64`: "image.source.base64: invalid base64 data"; "image cannot be empty".
fn check_inline(source: &Node, types: &[&str], out: &mut Refusals) {
    source.check_object(&["type", "media_type", "data"], out);
    check_media_type(source, types, out);
    if source
        .need_text("data", out)
        .is_some_and(|data| !base64::is_standard(data))
    {
        source.refuse(out, "base64", "invalid base64 data");
    }
}

fn check_media_type(source: &Node, types: &[&str], out: &mut Refusals) {
    if source
        .need_text("media_type", out)
        .is_some_and(|given| !types.contains(&given))
    {
        source.refuse(
            out,
            "media-type",
            format!("media_type: Input should be {}", types.join(" or ")),
        );
    }
}

/// `url`: "Only HTTPS URLs are supported."
fn check_linked(source: &Node, out: &mut Refusals) {
    source.check_object(&["type", "url"], out);
    if source
        .need_text("url", out)
        .is_some_and(|url| !is_url(url, &["https://"]))
    {
        source.refuse(out, "url", "Only HTTPS URLs are supported.");
    }
}
