//! Converts messages and their parts to and from protobuf.

use anneal_core::{
    limits::{self, MEDIA_PER_RESULT, MESSAGE_BYTES, PARTS_PER_MESSAGE, URI_BYTES},
    message::{Media, Message, Part, Role, plain_text_bytes},
};

use super::{FieldError, parse};
use crate::v1 as pb;

/// Parses 1 to 100 messages.
pub fn parse_at_least_one(
    field: &str,
    messages: Vec<pb::NewMessage>,
) -> Result<Vec<Message>, FieldError> {
    if messages.is_empty() {
        return Err(FieldError::invalid(field, "must hold at least one message"));
    }
    parse_all(field, messages)
}

/// Parses at most 100 messages.
pub fn parse_all(field: &str, messages: Vec<pb::NewMessage>) -> Result<Vec<Message>, FieldError> {
    parse_up_to(field, messages, limits::MESSAGES_PER_APPEND)
}

/// Parses at most so many messages.
pub fn parse_up_to(
    field: &str,
    messages: Vec<pb::NewMessage>,
    most: usize,
) -> Result<Vec<Message>, FieldError> {
    if messages.len() > most {
        return Err(FieldError::limit(field, most, "messages"));
    }
    messages
        .into_iter()
        .enumerate()
        .map(|(index, new)| parse(&format!("{field}[{index}]"), new))
        .collect()
}

/// Parses one message: its role, parts that the role allows, metadata.
pub fn parse(field: &str, new: pb::NewMessage) -> Result<Message, FieldError> {
    let role = parse_role(&format!("{field}.role"), new.role)?;
    if new.parts.is_empty() {
        return Err(FieldError::invalid(
            format!("{field}.parts"),
            "must hold at least one part",
        ));
    }
    if new.parts.len() > PARTS_PER_MESSAGE {
        return Err(FieldError::limit(
            format!("{field}.parts"),
            PARTS_PER_MESSAGE,
            "parts",
        ));
    }
    let parts = new.parts.into_iter().enumerate();
    let parts: Vec<Part> = parts
        .map(|(index, part)| parse_part(&format!("{field}.parts[{index}]"), part, role))
        .collect::<Result<_, _>>()?;
    if plain_text_bytes(&parts) > MESSAGE_BYTES {
        return Err(FieldError::limit(field, MESSAGE_BYTES, "bytes"));
    }
    Ok(Message {
        role,
        parts,
        metadata: parse::metadata(&format!("{field}.metadata"), new.metadata)?,
    })
}

/// Parses a role; UNSPECIFIED is refused.
pub fn parse_role(field: &str, number: i32) -> Result<Role, FieldError> {
    match pb::Role::try_from(number) {
        Ok(pb::Role::User) => Ok(Role::User),
        Ok(pb::Role::Assistant) => Ok(Role::Assistant),
        Ok(pb::Role::Tool) => Ok(Role::Tool),
        Ok(pb::Role::System) => Ok(Role::System),
        Ok(pb::Role::Unspecified) => Err(FieldError::invalid(field, "must be given")),
        Err(_) => Err(FieldError::invalid(
            field,
            format!("{number} is not a role"),
        )),
    }
}

fn parse_part(field: &str, part: pb::Part, role: Role) -> Result<Part, FieldError> {
    use pb::part::Part as Wire;
    let only_in = |allowed: &[Role], what: &str| {
        if allowed.contains(&role) {
            return Ok(());
        }
        Err(FieldError::invalid(
            field,
            format!("a {} message cannot hold {what}", role.name()),
        ))
    };
    match part.part {
        None => Err(FieldError::invalid(
            field,
            "must hold text, tool_use, tool_result, media or reasoning",
        )),
        Some(Wire::Text(part)) => {
            only_in(
                &[Role::User, Role::Assistant, Role::System],
                "text; give it as a tool_result",
            )?;
            Ok(Part::Text { text: part.text })
        }
        Some(Wire::ToolUse(part)) => {
            only_in(&[Role::Assistant], "a tool_use")?;
            parse::id(&format!("{field}.tool_use.id"), &part.id)?;
            parse::id(&format!("{field}.tool_use.name"), &part.name)?;
            Ok(Part::ToolUse {
                id: part.id,
                name: part.name,
                input: part.input,
            })
        }
        Some(Wire::ToolResult(part)) => {
            only_in(&[Role::Tool], "a tool_result")?;
            parse::id(
                &format!("{field}.tool_result.tool_use_id"),
                &part.tool_use_id,
            )?;
            let field = format!("{field}.tool_result.media");
            if part.media.len() > MEDIA_PER_RESULT {
                return Err(FieldError::limit(field, MEDIA_PER_RESULT, "media"));
            }
            let media = part
                .media
                .into_iter()
                .enumerate()
                .map(|(index, media)| parse_media(&format!("{field}[{index}]"), media))
                .collect::<Result<_, _>>()?;
            Ok(Part::ToolResult {
                id: part.tool_use_id,
                text: part.text,
                is_error: part.is_error,
                media,
            })
        }
        Some(Wire::Media(part)) => {
            let refused = if role == Role::Tool {
                "media; give them in a tool_result"
            } else {
                "media"
            };
            only_in(&[Role::User, Role::Assistant], refused)?;
            Ok(Part::Media(parse_media(&format!("{field}.media"), part)?))
        }
        Some(Wire::Reasoning(part)) => {
            only_in(&[Role::Assistant], "reasoning")?;
            if !part.provider.is_empty() {
                parse::id(&format!("{field}.reasoning.provider"), &part.provider)?;
            }
            Ok(Part::Reasoning {
                text: part.text,
                signature: part.signature,
                provider: part.provider,
                redacted: part.redacted,
            })
        }
    }
}

/// Parses a media part: an address or a `data:` URI, and its type.
pub fn parse_media(field: &str, media: pb::MediaPart) -> Result<Media, FieldError> {
    let most = if media.uri.starts_with("data:") {
        MESSAGE_BYTES
    } else {
        URI_BYTES
    };
    if media.uri.is_empty() {
        return Err(FieldError::invalid(
            format!("{field}.uri"),
            "must not be empty",
        ));
    }
    parse::bounded_text(&format!("{field}.uri"), &media.uri, most)?;
    parse::id(&format!("{field}.media_type"), &media.media_type)?;
    Ok(Media {
        uri: media.uri,
        media_type: media.media_type,
        bytes: media.size_bytes,
        tokens: u64::from(media.tokens),
    })
}

impl From<Role> for pb::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::User => Self::User,
            Role::Assistant => Self::Assistant,
            Role::Tool => Self::Tool,
            Role::System => Self::System,
        }
    }
}

impl From<Media> for pb::MediaPart {
    fn from(media: Media) -> Self {
        Self {
            uri: media.uri,
            media_type: media.media_type,
            size_bytes: media.bytes,
            tokens: u32::try_from(media.tokens).unwrap_or(u32::MAX),
        }
    }
}

impl From<Part> for pb::Part {
    fn from(part: Part) -> Self {
        use pb::part::Part as Wire;
        let part = match part {
            Part::Text { text } => Wire::Text(pb::TextPart { text }),
            Part::ToolUse { id, name, input } => Wire::ToolUse(pb::ToolUsePart { id, name, input }),
            Part::ToolResult {
                id,
                text,
                is_error,
                media,
            } => Wire::ToolResult(pb::ToolResultPart {
                tool_use_id: id,
                text,
                is_error,
                media: media.into_iter().map(pb::MediaPart::from).collect(),
            }),
            Part::Media(media) => Wire::Media(media.into()),
            Part::Reasoning {
                text,
                signature,
                provider,
                redacted,
            } => Wire::Reasoning(pb::ReasoningPart {
                text,
                signature,
                provider,
                redacted,
            }),
        };
        Self { part: Some(part) }
    }
}

impl From<Message> for pb::NewMessage {
    fn from(message: Message) -> Self {
        Self {
            role: pb::Role::from(message.role).into(),
            parts: message.parts.into_iter().map(pb::Part::from).collect(),
            metadata: message.metadata.into_iter().collect(),
        }
    }
}

/// The new message that would store a copy of the stored one.
impl From<pb::Message> for pb::NewMessage {
    fn from(stored: pb::Message) -> Self {
        Self {
            role: stored.role,
            parts: stored.parts,
            metadata: stored.metadata,
        }
    }
}

/// A message of one text part, without metadata.
pub fn text_message(role: pb::Role, text: impl Into<String>) -> pb::NewMessage {
    let part = pb::part::Part::Text(pb::TextPart { text: text.into() });
    pb::NewMessage {
        role: role.into(),
        parts: vec![pb::Part { part: Some(part) }],
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_the_same_after_conversion_to_protobuf_and_back() {
        let media = Media {
            uri: "s3://bucket/a.png".into(),
            media_type: "image/png".into(),
            bytes: 1,
            tokens: 2,
        };
        let text = || "a\0b".to_owned();
        let assistant = [
            Part::Text { text: text() },
            Part::ToolUse {
                id: "c".into(),
                name: "look".into(),
                input: text(),
            },
            Part::Media(media.clone()),
            Part::Reasoning {
                text: text(),
                signature: "s".into(),
                provider: "anthropic".into(),
                redacted: true,
            },
        ];
        let tool = [Part::ToolResult {
            id: "c".into(),
            text: text(),
            is_error: true,
            media: vec![media],
        }];
        for (role, parts) in [
            (Role::Assistant, assistant.to_vec()),
            (Role::Tool, tool.to_vec()),
            (Role::User, assistant[..1].to_vec()),
            (Role::System, assistant[..1].to_vec()),
        ] {
            let metadata = [("key".to_owned(), "value".to_owned())].into();
            let message = Message {
                role,
                parts,
                metadata,
            };
            assert_eq!(parse("message", message.clone().into()), Ok(message));
        }
    }

    /// The field that the refusal of this message names, and the description.
    fn refusal(message: pb::NewMessage) -> (String, String) {
        match parse("message", message) {
            Err(FieldError::Invalid { field, description }) => (field, description.into_owned()),
            other => panic!("not refused as invalid: {other:?}"),
        }
    }

    #[test]
    fn refused_media_are_named_by_index_and_only_tool_messages_are_advised_tool_results() {
        let media = |uri: &str| pb::MediaPart {
            uri: uri.into(),
            media_type: "image/png".into(),
            ..Default::default()
        };
        let message = |role: pb::Role, part: pb::part::Part| pb::NewMessage {
            role: role.into(),
            parts: vec![pb::Part { part: Some(part) }],
            ..Default::default()
        };
        let result = pb::ToolResultPart {
            tool_use_id: "c".into(),
            media: vec![media("https://example.org/a.png"), media("")],
            ..Default::default()
        };
        let refused = message(pb::Role::Tool, pb::part::Part::ToolResult(result));
        assert_eq!(
            refusal(refused).0,
            "message.parts[0].tool_result.media[1].uri"
        );
        for (role, description) in [
            (
                pb::Role::Tool,
                "a tool message cannot hold media; give them in a tool_result",
            ),
            (pb::Role::System, "a system message cannot hold media"),
        ] {
            let refused = message(
                role,
                pb::part::Part::Media(media("https://example.org/a.png")),
            );
            assert_eq!(
                refusal(refused),
                ("message.parts[0]".to_owned(), description.to_owned())
            );
        }
    }
}
