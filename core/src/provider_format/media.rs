//! Which pictures and files a provider accepts in which position, and the description that is sent
//! in place of those that it does not accept.

use super::{Format, json};
use crate::{
    media_access::MediaAccess,
    message::{Media, Message, Part, Role},
};

/// Where media are in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaPosition {
    /// In a user message.
    User,
    /// In a model's message.
    Model,
    /// In a tool result.
    Result,
    /// In the result of a failed tool, where Anthropic accepts only text.
    Failure,
}

impl MediaPosition {
    /// The position of media in a tool's result.
    pub(crate) const fn of_result(is_error: bool) -> Self {
        if is_error {
            Self::Failure
        } else {
            Self::Result
        }
    }

    /// The position of a part directly in a message of this role.
    pub(crate) const fn of(role: Role) -> Self {
        match role {
            Role::Assistant => Self::Model,
            Role::Tool => Self::Result,
            Role::User | Role::System => Self::User,
        }
    }
}

/// Media in the form in which a provider accepts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sendable<'m> {
    /// The usual name of the media type.
    pub(crate) media_type: &'static str,
    pub(crate) source: Source<'m>,
}

/// Where the bytes of the media are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source<'m> {
    /// In the URI itself: its base64, or for OpenAI the whole `data:` URI.
    Inline(&'m str),
    /// At this address.
    Url(&'m str),
}

const PICTURE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
pub(crate) const PDF: &str = "application/pdf";

/// The media types that Gemini reads ("Image / Audio / Video / Document understanding" in its
/// documentation).
const GEMINI_TYPES: [&str; 29] = [
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

/// Whether the format accepts the media in this position, and their address may be sent.
pub(crate) fn is_accepted(
    media: &Media,
    format: Format,
    position: MediaPosition,
    access: &MediaAccess,
) -> bool {
    format == Format::Neutral
        || sendable(media, format, position).is_some_and(|sendable| match sendable.source {
            Source::Inline(_) => true,
            Source::Url(address) => access.allows(address),
        })
}

/// Media of a message that the provider would fetch from an address that it may not receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedMedia {
    /// Index of the message's part.
    pub part_index: usize,
    /// Index in the tool result's media; None: the part itself is the media.
    pub media_index: Option<usize>,
}

/// The first media of a message that this format would send by an address that may not be sent.
pub fn find_blocked_media(
    message: &Message,
    format: Format,
    access: &MediaAccess,
) -> Option<BlockedMedia> {
    let is_blocked = |media: &Media, position| {
        let source = sendable(media, format, position).map(|sendable| sendable.source);
        matches!(source, Some(Source::Url(address)) if !access.allows(address))
    };
    message
        .parts
        .iter()
        .enumerate()
        .find_map(|(part_index, part)| match part {
            Part::Media(media) => {
                is_blocked(media, MediaPosition::of(message.role)).then_some(BlockedMedia {
                    part_index,
                    media_index: None,
                })
            }
            Part::ToolResult {
                media, is_error, ..
            } => {
                let nth = media
                    .iter()
                    .position(|media| is_blocked(media, MediaPosition::of_result(*is_error)))?;
                Some(BlockedMedia {
                    part_index,
                    media_index: Some(nth),
                })
            }
            Part::Text { .. } | Part::ToolUse { .. } | Part::Reasoning { .. } => None,
        })
}

/// How the media are sent in this position; None if they cannot be.
pub(crate) fn sendable(
    media: &Media,
    format: Format,
    position: MediaPosition,
) -> Option<Sendable<'_>> {
    match (format, position) {
        (Format::OpenAiChat, MediaPosition::User) => openai(media),
        (Format::AnthropicMessages, MediaPosition::User | MediaPosition::Result) => {
            anthropic(media)
        }
        (Format::GeminiContents, MediaPosition::User) => gemini(media),
        _ => None,
    }
}

fn openai(media: &Media) -> Option<Sendable<'_>> {
    if let Some(media_type) = usual_type(media, &PICTURE_TYPES) {
        let source = if is_web(&media.uri) {
            Source::Url(&media.uri)
        } else {
            whole_inline(media, media_type)?
        };
        return Some(Sendable { media_type, source });
    }
    let media_type = usual_type(media, &[PDF])?;
    Some(Sendable {
        media_type,
        source: whole_inline(media, media_type)?,
    })
}

fn anthropic(media: &Media) -> Option<Sendable<'_>> {
    let media_type = usual_type(media, &PICTURE_TYPES).or_else(|| usual_type(media, &[PDF]))?;
    let source = if starts_with(&media.uri, "https://") {
        Source::Url(&media.uri)
    } else {
        Source::Inline(inline(&media.uri)?.1)
    };
    Some(Sendable { media_type, source })
}

fn gemini(media: &Media) -> Option<Sendable<'_>> {
    let media_type = usual_type(media, &GEMINI_TYPES)?;
    let source = if starts_with(&media.uri, "https://") || starts_with(&media.uri, "gs://") {
        Source::Url(&media.uri)
    } else {
        Source::Inline(inline(&media.uri)?.1)
    };
    Some(Sendable { media_type, source })
}

/// The usual name of the media's type, if it is one of `names`.
fn usual_type(media: &Media, names: &[&'static str]) -> Option<&'static str> {
    let name = media
        .media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    let name = if name.eq_ignore_ascii_case("image/jpg") {
        "image/jpeg"
    } else {
        name
    };
    names
        .iter()
        .copied()
        .find(|usual| usual.eq_ignore_ascii_case(name))
}

/// The whole `data:` URI, which is the form that OpenAI reads; None if the type in the URI is not
/// `media_type`.
fn whole_inline<'m>(media: &'m Media, media_type: &str) -> Option<Source<'m>> {
    let (uri_type, _) = inline(&media.uri)?;
    uri_type
        .eq_ignore_ascii_case(media_type)
        .then_some(Source::Inline(&media.uri))
}

/// Type and base64 payload of a `data:` URI.
fn inline(uri: &str) -> Option<(&str, &str)> {
    let rest = starts_with(uri, "data:").then(|| &uri["data:".len()..])?;
    let (head, payload) = rest.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    json::is_base64(payload).then_some((media_type, payload))
}

fn is_web(uri: &str) -> bool {
    starts_with(uri, "https://") || starts_with(uri, "http://")
}

fn starts_with(uri: &str, scheme: &str) -> bool {
    uri.get(..scheme.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(scheme))
}

/// Most bytes of a URI in a description.
const SHOWN_BYTES: usize = 200;

/// The text that replaces media which cannot be sent: their type and address, never the payload of
/// a `data:` URI.
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
        Media {
            uri: uri.into(),
            media_type: media_type.into(),
            bytes: 0,
            tokens: 0,
        }
    }

    #[test]
    fn a_provider_accepts_only_its_own_types_schemes_and_positions() {
        use Format::{
            AnthropicMessages as Anthropic, GeminiContents as Gemini, OpenAiChat as OpenAi,
        };
        // Address, media type, and whether OpenAI, Anthropic and Gemini accept them from a user.
        let cases = [
            ("https://a/b.png", "image/png", [true, true, true]),
            ("http://a/b.png", "image/png", [true, false, false]),
            ("gs://a/b.png", "image/png", [false, false, true]),
            ("s3://a/b.png", "image/png", [false, false, false]),
            (
                "data:image/png;base64,QUJD",
                "image/png",
                [true, true, true],
            ),
            (
                "data:image/jpeg;base64,QUJD",
                "image/JPG",
                [true, true, true],
            ),
            ("data:image/png,ABC", "image/png", [false, false, false]),
            (
                "data:image/gif;base64,QUJD",
                "image/gif",
                [true, true, false],
            ),
            (
                "data:application/pdf;base64,QUJD",
                "application/pdf",
                [true, true, true],
            ),
            ("https://a/b.pdf", "application/pdf", [false, true, true]),
            ("https://a/b.mp3", "audio/mp3", [false, false, true]),
            (
                "https://a/b.bin",
                "application/octet-stream",
                [false, false, false],
            ),
        ];
        for (uri, media_type, expected) in cases {
            let media = media(uri, media_type);
            let accepted = [OpenAi, Anthropic, Gemini]
                .map(|format| is_accepted(&media, format, MediaPosition::User, &MediaAccess::Any));
            assert_eq!(accepted, expected, "{uri} as {media_type}");
            assert!(
                [OpenAi, Anthropic, Gemini]
                    .iter()
                    .all(|format| !is_accepted(
                        &media,
                        *format,
                        MediaPosition::Model,
                        &MediaAccess::Any
                    ))
            );
            assert!([OpenAi, Gemini].iter().all(|format| !is_accepted(
                &media,
                *format,
                MediaPosition::Result,
                &MediaAccess::Any
            )));
        }
    }

    #[test]
    fn a_description_is_short_and_never_holds_a_payload() {
        assert_eq!(
            description(&media("data:image/png;base64,QUJD", "image/tiff")),
            "[media image/tiff at data:]"
        );
        let long = description(&media(&format!("s3://{}", "é".repeat(300)), "image/png"));
        assert!(
            long.len() < SHOWN_BYTES + 40 && long.ends_with("é]"),
            "{long}"
        );
    }
}
