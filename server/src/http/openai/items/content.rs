//! The content of messages and of results of calls: texts, pictures and files, both ways.

use anneal_proto::v1::{self as pb, part::Part};
use serde_json::{Value, json};

use super::labels::PartNote;
use crate::http::openai::{
    errors::ApiError,
    fields::{Fields, unsupported_value},
};

/// Whose content it is. It decides which types of parts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// The user, or a tool.
    User,
    /// An instruction.
    System,
    /// The model.
    Assistant,
}

impl Author {
    const fn part_types(self) -> &'static [&'static str] {
        match self {
            Self::User => &["input_text", "input_image", "input_file"],
            Self::System => &["input_text"],
            Self::Assistant => &["output_text", "refusal", "input_image", "input_file"],
        }
    }
}

/// Parses the content of a message or of a result: each part, and the note on it.
pub(super) fn parse_content(
    parts: &[Value],
    path: &str,
    author: Author,
) -> Result<Vec<(Part, PartNote)>, ApiError> {
    let parts = parts.iter().enumerate();
    parts
        .map(|(index, part)| parse_part(part, &format!("{path}[{index}]"), author))
        .collect()
}

fn parse_part(part: &Value, path: &str, author: Author) -> Result<(Part, PartNote), ApiError> {
    let mut fields = Fields::of(part, path)?;
    let kind = fields.required_text("type")?;
    if !author.part_types().contains(&kind) {
        let param = fields.param("type");
        return Err(unsupported_value(param, kind, author.part_types()));
    }
    let parsed = match kind {
        "input_image" => parse_image(&mut fields)?,
        "input_file" => parse_file(&mut fields)?,
        "refusal" => {
            let note = PartNote {
                kind: Some(kind.to_owned()),
                ..PartNote::default()
            };
            (text_part(fields.required_text("refusal")?), note)
        }
        _ => parse_text(&mut fields)?,
    };
    fields.finish()?;
    Ok(parsed)
}

fn parse_text(fields: &mut Fields<'_>) -> Result<(Part, PartNote), ApiError> {
    let text = text_part(fields.required_text("text")?);
    let annotations = fields.list("annotations")?.to_vec();
    for (index, annotation) in annotations.iter().enumerate() {
        if !annotation.is_object() {
            let param = fields.param(&format!("annotations[{index}]"));
            return Err(ApiError::invalid_type(param, "an object", annotation));
        }
    }
    if !fields.list("logprobs")?.is_empty() {
        let message = "logprobs of earlier answers are not kept; send an empty list, or none.";
        return Err(ApiError::unsupported_parameter(
            fields.param("logprobs"),
            message,
        ));
    }
    let note = PartNote {
        annotations,
        ..PartNote::default()
    };
    Ok((text, note))
}

fn parse_image(fields: &mut Fields<'_>) -> Result<(Part, PartNote), ApiError> {
    refuse_file_id(fields, "image_url")?;
    let uri = fields.required_text("image_url")?;
    let refused = || {
        let message = "must be an http(s) URL of a picture, or a data: URI of image/….";
        ApiError::invalid(fields.param("image_url"), Some("invalid_value"), message)
    };
    let media_type = media_type(uri, None, "image/jpeg").ok_or_else(refused)?;
    if !is_image(&media_type) {
        return Err(refused());
    }
    let note = PartNote {
        detail: parse_detail(fields)?,
        ..PartNote::default()
    };
    Ok((media_part(uri, media_type), note))
}

fn parse_file(fields: &mut Fields<'_>) -> Result<(Part, PartNote), ApiError> {
    refuse_file_id(fields, "file_data or file_url")?;
    let filename = fields.text("filename")?;
    let (name, uri) = match (fields.text("file_data")?, fields.text("file_url")?) {
        (Some(data), None) => ("file_data", data),
        (None, Some(url)) => ("file_url", url),
        _ => {
            let message = "a file has either file_data or file_url.";
            let param = fields.param("file_data");
            return Err(ApiError::invalid(param, Some("invalid_value"), message));
        }
    };
    let is_inline = uri.starts_with("data:");
    let media_type =
        media_type(uri, filename, "application/pdf").filter(|_| is_inline == (name == "file_data"));
    let media_type = media_type.ok_or_else(|| {
        let message = if name == "file_data" {
            "must be a data: URI, such as data:application/pdf;base64,…."
        } else {
            "must be an http(s) URL."
        };
        ApiError::invalid(fields.param(name), Some("invalid_value"), message)
    })?;
    let note = PartNote {
        kind: is_image(&media_type).then(|| "input_file".to_owned()),
        detail: parse_detail(fields)?,
        filename: filename.map(str::to_owned),
        ..PartNote::default()
    };
    Ok((media_part(uri, media_type), note))
}

fn refuse_file_id(fields: &mut Fields<'_>, instead: &str) -> Result<(), ApiError> {
    if fields.value("file_id").is_none() {
        return Ok(());
    }
    let message = format!("this server keeps no files; give {instead} instead of file_id.");
    Err(ApiError::unsupported_parameter(
        fields.param("file_id"),
        message,
    ))
}

/// The detail, unless it is the one that a part has by itself.
fn parse_detail(fields: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    let detail = fields.one_of("detail", &["auto", "low", "high", "original"])?;
    Ok(detail.filter(|detail| *detail != "auto").map(str::to_owned))
}

fn text_part(text: &str) -> Part {
    Part::Text(pb::TextPart { text: text.into() })
}

fn media_part(uri: &str, media_type: String) -> Part {
    Part::Media(pb::MediaPart {
        uri: uri.to_owned(),
        media_type,
        size_bytes: 0,
        tokens: 0,
    })
}

fn is_image(media_type: &str) -> bool {
    media_type.starts_with("image/")
}

/// The media type: from the data: URI, or from the ending of the file's name or of the URL's path,
/// or else this one. None: it is neither a data: URI nor an http(s) URL.
fn media_type(uri: &str, filename: Option<&str>, otherwise: &str) -> Option<String> {
    if let Some(inline) = uri.strip_prefix("data:") {
        let (header, _) = inline.split_once(',')?;
        let kind = header.split(';').next().unwrap_or_default();
        return kind.contains('/').then(|| kind.to_owned());
    }
    let url: axum::http::Uri = uri.parse().ok()?;
    url.host()?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return None;
    }
    let known = filename.and_then(type_of_name);
    let known = known.or_else(|| type_of_name(url.path()));
    Some(known.unwrap_or(otherwise).to_owned())
}

/// The media type of a file whose name ends like this.
fn type_of_name(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    let kind = match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "xml" => "application/xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    };
    Some(kind)
}

/// A text as a part of a content.
pub(super) fn show_text(text: &str, author: Author, note: &PartNote) -> Value {
    if author != Author::Assistant {
        return json!({"type": "input_text", "text": text});
    }
    if note.kind.as_deref() == Some("refusal") {
        return json!({"type": "refusal", "refusal": text});
    }
    json!({
        "type": "output_text",
        "text": text,
        "annotations": note.annotations,
        "logprobs": [],
    })
}

/// A picture or file as a part of a content.
pub(super) fn show_media(media: &pb::MediaPart, note: PartNote) -> Value {
    if is_image(&media.media_type) && note.kind.as_deref() != Some("input_file") {
        let detail = note.detail.unwrap_or_else(|| "auto".to_owned());
        return json!({"type": "input_image", "image_url": media.uri, "detail": detail});
    }
    let address = if media.uri.starts_with("data:") {
        "file_data"
    } else {
        "file_url"
    };
    let mut shown = json!({"type": "input_file", address: media.uri});
    for (name, value) in [("filename", note.filename), ("detail", note.detail)] {
        if let Some(value) = value {
            shown[name] = value.into();
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_media_type_comes_from_the_data_or_from_the_name() {
        let of = |uri: &str, name| media_type(uri, name, "x/y");
        assert_eq!(
            of("data:image/png;base64,AA==", None),
            Some("image/png".into())
        );
        let page = "https://a.example/b.PDF?c=d.png";
        assert_eq!(of(page, None), Some("application/pdf".into()));
        assert_eq!(of(page, Some("c.csv")), Some("text/csv".into()));
        assert_eq!(of("https://a.example/b", None), Some("x/y".into()));
        for broken in [
            "",
            "a.png",
            "data:,x",
            "data:image/png",
            "file:///etc/passwd",
        ] {
            assert_eq!(of(broken, None), None, "{broken}");
        }
    }

    #[test]
    fn parts_that_cannot_be_kept_are_refused_by_name() {
        for (part, author, param, code) in [
            (
                json!({"type": "input_image", "file_id": "file_1"}),
                Author::User,
                "c[0].file_id",
                "unsupported_parameter",
            ),
            (
                json!({"type": "input_image", "image_url": "https://a.example/b.pdf"}),
                Author::User,
                "c[0].image_url",
                "invalid_value",
            ),
            (
                json!({"type": "input_file", "file_data": "JVBERi0="}),
                Author::User,
                "c[0].file_data",
                "invalid_value",
            ),
            (
                json!({"type": "input_image", "image_url": "https://a.example/b.png"}),
                Author::System,
                "c[0].type",
                "invalid_value",
            ),
            (
                json!({"type": "input_text", "text": "a"}),
                Author::Assistant,
                "c[0].type",
                "invalid_value",
            ),
            (
                json!({"type": "output_text", "text": "a", "logprobs": [{}]}),
                Author::Assistant,
                "c[0].logprobs",
                "unsupported_parameter",
            ),
            (
                json!({"type": "input_text"}),
                Author::User,
                "c[0].text",
                "missing_required_parameter",
            ),
        ] {
            let refused = parse_content(std::slice::from_ref(&part), "c", author);
            let refused = refused.expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(param), &json!(code)),
                "{part}"
            );
        }
    }
}
