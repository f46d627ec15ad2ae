//! Which pictures and files a provider takes, where, and what stands for the others.

use super::{Format, json};
use crate::{
    media_access::MediaAccess,
    message::{Media, Message, Part, Role},
};

/// Where a medium stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the user's message.
    User,
    /// In the model's message.
    Model,
    /// In what a tool answered.
    Result,
    /// In what a tool that failed answered: Anthropic takes only text there.
    Failure,
}

impl Place {
    /// The place of media in a tool's result.
    pub(crate) const fn of_result(is_error: bool) -> Self {
        if is_error { Self::Failure } else { Self::Result }
    }

    /// The place of a part directly in a message of this role.
    pub(crate) const fn of(role: Role) -> Self {
        match role {
            Role::Assistant => Self::Model,
            Role::Tool => Self::Result,
            Role::User | Role::System => Self::User,
        }
    }
}

/// A medium that may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sendable<'m> {
    /// The media type's usual name.
    pub(super) media_type: &'static str,
    pub(super) source: Source<'m>,
}

/// Where its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source<'m> {
    /// In the URI itself, as base64.
    Inline(&'m str),
    /// There.
    Url(&'m str),
}

const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
pub(super) const PDF: &str = "application/pdf";

/// What Gemini reads ("Image / Audio / Video / Document understanding" in its documentation).
const GEMINI: [&str; 29] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "image/heic",
    "image/heif",
    "audio/wav",
    "audio/mp3",
    "audio/mpeg",
    "audio/aiff",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "video/mp4",
    "video/mpeg",
    "video/mov",
    "video/quicktime",
    "video/avi",
    "video/x-flv",
    "video/mpg",
    "video/webm",
    "video/wmv",
    "video/3gpp",
    "text/plain",
    "text/html",
    "text/css",
    "text/csv",
    "text/xml",
    "text/markdown",
    PDF,
];

/// Whether the format takes this medium there, and its address may go out.
pub(crate) fn is_taken(media: &Media, format: Format, place: Place, access: &MediaAccess) -> bool {
    format == Format::Neutral
        || sendable(media, format, place).is_some_and(|sendable| match sendable.source {
            Source::Inline(_) => true,
            Source::Url(address) => access.allows(address),
        })
}

/// A medium of a message that its provider would fetch and may not be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Withheld {
    /// The part of the message.
    pub part: usize,
    /// Which of a tool result's media; None: the part is the medium.
    pub of_result: Option<usize>,
}

/// The first medium of a message that this format would send by an address that may not go out.
pub fn find_withheld(message: &Message, format: Format, access: &MediaAccess) -> Option<Withheld> {
    let is_withheld = |media: &Media, place| {
        let source = sendable(media, format, place).map(|sendable| sendable.source);
        matches!(source, Some(Source::Url(address)) if !access.allows(address))
    };
    message.parts.iter().enumerate().find_map(|(part, content)| match content {
        Part::Media(media) => is_withheld(media, Place::of(message.role)).then_some(Withheld { part, of_result: None }),
        Part::ToolResult { media, is_error, .. } => {
            let nth = media.iter().position(|media| is_withheld(media, Place::of_result(*is_error)))?;
            Some(Withheld { part, of_result: Some(nth) })
        }
        Part::Text { .. } | Part::ToolUse { .. } | Part::Reasoning { .. } => None,
    })
}

/// How the medium is sent there; None where it cannot be.
pub(super) fn sendable(media: &Media, format: Format, place: Place) -> Option<Sendable<'_>> {
    match (format, place) {
        (Format::OpenAiChat, Place::User) => openai(media),
        (Format::AnthropicMessages, Place::User | Place::Result) => anthropic(media),
        (Format::GeminiContents, Place::User) => gemini(media),
        _ => None,
    }
}

fn openai(media: &Media) -> Option<Sendable<'_>> {
    if let Some(media_type) = known(media, &PICTURES) {
        let source = if web(&media.uri) { Source::Url(&media.uri) } else { whole_inline(media, media_type)? };
        return Some(Sendable { media_type, source });
    }
    let media_type = known(media, &[PDF])?;
    Some(Sendable { media_type, source: whole_inline(media, media_type)? })
}

fn anthropic(media: &Media) -> Option<Sendable<'_>> {
    let media_type = known(media, &PICTURES).or_else(|| known(media, &[PDF]))?;
    let source = if starts_with(&media.uri, "https://") {
        Source::Url(&media.uri)
    } else {
        Source::Inline(inline(&media.uri)?.1)
    };
    Some(Sendable { media_type, source })
}

fn gemini(media: &Media) -> Option<Sendable<'_>> {
    let media_type = known(media, &GEMINI)?;
    let source = if starts_with(&media.uri, "https://") || starts_with(&media.uri, "gs://") {
        Source::Url(&media.uri)
    } else {
        Source::Inline(inline(&media.uri)?.1)
    };
    Some(Sendable { media_type, source })
}

/// The usual name of the medium's type, if it is among these.
fn known(media: &Media, names: &[&'static str]) -> Option<&'static str> {
    let name = media.media_type.split(';').next().unwrap_or_default().trim();
    let name = if name.eq_ignore_ascii_case("image/jpg") { "image/jpeg" } else { name };
    names.iter().copied().find(|usual| usual.eq_ignore_ascii_case(name))
}

/// A `data:` URI whose own type is the medium's, as OpenAI reads it: whole.
fn whole_inline<'m>(media: &'m Media, media_type: &str) -> Option<Source<'m>> {
    let (own, _) = inline(&media.uri)?;
    own.eq_ignore_ascii_case(media_type).then_some(Source::Inline(&media.uri))
}

/// Type and base64 of a `data:` URI.
fn inline(uri: &str) -> Option<(&str, &str)> {
    let rest = starts_with(uri, "data:").then(|| &uri["data:".len()..])?;
    let (head, payload) = rest.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    json::is_base64(payload).then_some((media_type, payload))
}

fn web(uri: &str) -> bool {
    starts_with(uri, "https://") || starts_with(uri, "http://")
}

fn starts_with(uri: &str, scheme: &str) -> bool {
    uri.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme))
}

/// Bytes of a URI that a description shows.
const SHOWN_BYTES: usize = 200;

/// What is sent instead of a medium that cannot be: its type and place, never the payload of a `data:` URI.
pub(crate) fn description(media: &Media) -> String {
    let uri = if starts_with(&media.uri, "data:") {
        "data:"
    } else {
        &media.uri[..media.uri.floor_char_boundary(SHOWN_BYTES)]
    };
    format!("[media {} at {uri}]", media.media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(uri: &str, media_type: &str) -> Media {
        Media { uri: uri.into(), media_type: media_type.into(), bytes: 0, tokens: 0 }
    }

    #[test]
    fn a_provider_takes_only_its_own_types_schemes_and_places() {
        use Format::{AnthropicMessages as Anthropic, GeminiContents as Gemini, OpenAiChat as OpenAi};
        let rows = [
            ("https://a/b.png", "image/png", [true, true, true]),
            ("http://a/b.png", "image/png", [true, false, false]),
            ("gs://a/b.png", "image/png", [false, false, true]),
            ("s3://a/b.png", "image/png", [false, false, false]),
            ("data:image/png;base64,QUJD", "image/png", [true, true, true]),
            ("data:image/jpeg;base64,QUJD", "image/JPG", [true, true, true]),
            ("data:image/png,ABC", "image/png", [false, false, false]),
            ("data:image/gif;base64,QUJD", "image/gif", [true, true, false]),
            ("data:application/pdf;base64,QUJD", "application/pdf", [true, true, true]),
            ("https://a/b.pdf", "application/pdf", [false, true, true]),
            ("https://a/b.mp3", "audio/mp3", [false, false, true]),
            ("https://a/b.bin", "application/octet-stream", [false, false, false]),
        ];
        for (uri, media_type, takers) in rows {
            let media = media(uri, media_type);
            let taken =
                [OpenAi, Anthropic, Gemini].map(|format| is_taken(&media, format, Place::User, &MediaAccess::Any));
            assert_eq!(taken, takers, "{uri} as {media_type}");
            assert!([OpenAi, Anthropic, Gemini].iter().all(|format| !is_taken(
                &media,
                *format,
                Place::Model,
                &MediaAccess::Any
            )));
            assert!([OpenAi, Gemini].iter().all(|format| !is_taken(&media, *format, Place::Result, &MediaAccess::Any)));
        }
    }

    #[test]
    fn a_description_is_short_and_never_holds_a_payload() {
        assert_eq!(description(&media("data:image/png;base64,QUJD", "image/tiff")), "[media image/tiff at data:]");
        let long = description(&media(&format!("s3://{}", "é".repeat(300)), "image/png"));
        assert!(long.len() < 240 && long.ends_with("é]"), "{long}");
    }
}
