//! From protobuf to the domain. Bad input is refused here, with the field's path.

use std::collections::{BTreeMap, HashMap};

use anneal_core::{
    caller::ConversationId,
    job::JobKind,
    limits::{self, ID_BYTES, MEDIA_PER_RESULT, MESSAGE_BYTES, PARTS_PER_MESSAGE, URI_BYTES},
    message::{Media, Message, MessageId, Part, Role, plain_text_bytes},
};
use anneal_proto::v1 as pb;
use uuid::Uuid;

use crate::failure::Failure;

/// The conversation id in the field `conversation_id`: a UUID of 36 characters.
pub(crate) fn conversation_id(text: &str) -> Result<ConversationId, Failure> {
    conversation_id_in("conversation_id", text)
}

/// A conversation id in this field.
pub(crate) fn conversation_id_in(field: &str, text: &str) -> Result<ConversationId, Failure> {
    let uuid = (text.len() == 36)
        .then(|| Uuid::try_parse(text).ok())
        .flatten();
    uuid.map(ConversationId)
        .ok_or_else(|| Failure::invalid(field, "must be a UUID of 36 characters"))
}

/// A request id; empty means none.
pub(crate) fn request_id(text: &str) -> Result<Option<&str>, Failure> {
    bounded_text("request_id", text, ID_BYTES)?;
    Ok((!text.is_empty()).then_some(text))
}

/// A text of at most `most` bytes without NUL.
pub(crate) fn bounded_text<'a>(
    field: &str,
    text: &'a str,
    most: usize,
) -> Result<&'a str, Failure> {
    if text.len() > most {
        return Err(Failure::limit(field, most, "bytes"));
    }
    if text.contains('\0') {
        return Err(Failure::invalid(field, "must not contain NUL"));
    }
    Ok(text)
}

fn id<'a>(field: &str, text: &'a str) -> Result<&'a str, Failure> {
    if text.is_empty() {
        return Err(Failure::invalid(field, "must not be empty"));
    }
    bounded_text(field, text, ID_BYTES)
}

/// A message id, from 1 on.
pub(crate) fn message_id(field: &str, number: i64) -> Result<MessageId, Failure> {
    if number < 1 {
        return Err(Failure::invalid(field, "must be at least 1"));
    }
    Ok(MessageId(number))
}

/// A message id, or 0 for the position before the first message.
pub(crate) fn message_id_or_zero(field: &str, number: i64) -> Result<MessageId, Failure> {
    if number < 0 {
        return Err(Failure::invalid(field, "must not be negative"));
    }
    Ok(MessageId(number))
}

/// The id that the caller expects the newest message to have.
pub(crate) fn expected_last(number: Option<i64>) -> Result<Option<MessageId>, Failure> {
    number
        .map(|number| message_id_or_zero("expected_last_message_id", number))
        .transpose()
}

/// Metadata: keys and values without NUL, within the limits of number and size.
pub(crate) fn metadata(
    field: &str,
    map: HashMap<String, String>,
) -> Result<BTreeMap<String, String>, Failure> {
    if map.len() > limits::METADATA_KEYS {
        return Err(Failure::limit(field, limits::METADATA_KEYS, "keys"));
    }
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > limits::METADATA_BYTES {
        return Err(Failure::limit(
            field,
            limits::METADATA_BYTES,
            "bytes in all",
        ));
    }
    for (key, value) in &map {
        bounded_text(field, key, limits::METADATA_BYTES)?;
        bounded_text(field, value, limits::METADATA_BYTES)?;
    }
    Ok(map.into_iter().collect())
}

/// A system prompt within its limit.
pub(crate) fn system_prompt(text: &str) -> Result<&str, Failure> {
    bounded_text("system_prompt", text, limits::SYSTEM_PROMPT_BYTES)
}

/// A kind of job; UNSPECIFIED means any.
pub(crate) fn job_kind(number: i32) -> Result<Option<JobKind>, Failure> {
    match pb::JobKind::try_from(number) {
        Ok(pb::JobKind::Unspecified) => Ok(None),
        Ok(pb::JobKind::CountTokens) => Ok(Some(JobKind::CountTokens)),
        Ok(pb::JobKind::Checkpoint) => Ok(Some(JobKind::Checkpoint)),
        Ok(pb::JobKind::SummarizeMessages) => Ok(Some(JobKind::SummarizeMessages)),
        Err(_) => Err(Failure::invalid(
            "kind",
            format!("{number} is not a kind of job"),
        )),
    }
}

/// A kind of job; UNSPECIFIED is refused.
pub(crate) fn required_job_kind(number: i32) -> Result<JobKind, Failure> {
    job_kind(number)?.ok_or_else(|| Failure::invalid("kind", "must be given"))
}

/// 1 to 100 messages. `empty`: no message is accepted too.
pub(crate) fn messages(
    field: &str,
    messages: Vec<pb::NewMessage>,
    empty: bool,
) -> Result<Vec<Message>, Failure> {
    if messages.is_empty() && !empty {
        return Err(Failure::invalid(field, "must hold at least one message"));
    }
    if messages.len() > limits::MESSAGES_PER_APPEND {
        return Err(Failure::limit(
            field,
            limits::MESSAGES_PER_APPEND,
            "messages",
        ));
    }
    messages
        .into_iter()
        .enumerate()
        .map(|(index, new)| message(&format!("{field}[{index}]"), new))
        .collect()
}

/// One message: its role, parts that the role allows, metadata.
pub(crate) fn message(field: &str, new: pb::NewMessage) -> Result<Message, Failure> {
    let role = role(&format!("{field}.role"), new.role)?;
    if new.parts.is_empty() {
        return Err(Failure::invalid(
            format!("{field}.parts"),
            "must hold at least one part",
        ));
    }
    if new.parts.len() > PARTS_PER_MESSAGE {
        return Err(Failure::limit(
            format!("{field}.parts"),
            PARTS_PER_MESSAGE,
            "parts",
        ));
    }
    let parts = new.parts.into_iter().enumerate();
    let parts: Vec<Part> = parts
        .map(|(index, new)| part(&format!("{field}.parts[{index}]"), new, role))
        .collect::<Result<_, _>>()?;
    if plain_text_bytes(&parts) > MESSAGE_BYTES {
        return Err(Failure::limit(field, MESSAGE_BYTES, "bytes"));
    }
    Ok(Message {
        role,
        parts,
        metadata: metadata(&format!("{field}.metadata"), new.metadata)?,
    })
}

/// Validates a message as AppendMessages does, for clients that check before they send. The error
/// is the failure's text.
pub fn parse_message(new: pb::NewMessage) -> Result<Message, String> {
    message("message", new).map_err(|refused| refused.to_string())
}

fn role(field: &str, number: i32) -> Result<Role, Failure> {
    match pb::Role::try_from(number) {
        Ok(pb::Role::User) => Ok(Role::User),
        Ok(pb::Role::Assistant) => Ok(Role::Assistant),
        Ok(pb::Role::Tool) => Ok(Role::Tool),
        Ok(pb::Role::System) => Ok(Role::System),
        Ok(pb::Role::Unspecified) => Err(Failure::invalid(field, "must be given")),
        Err(_) => Err(Failure::invalid(field, format!("{number} is not a role"))),
    }
}

fn part(field: &str, new: pb::Part, role: Role) -> Result<Part, Failure> {
    use pb::part::Part as Wire;
    let only_in = |allowed: &[Role], what: &str| {
        if allowed.contains(&role) {
            return Ok(());
        }
        Err(Failure::invalid(
            field,
            format!("a {} message cannot hold {what}", role.name()),
        ))
    };
    match new.part {
        None => Err(Failure::invalid(
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
            id(&format!("{field}.tool_use.id"), &part.id)?;
            id(&format!("{field}.tool_use.name"), &part.name)?;
            Ok(Part::ToolUse {
                id: part.id,
                name: part.name,
                input: part.input,
            })
        }
        Some(Wire::ToolResult(part)) => {
            only_in(&[Role::Tool], "a tool_result")?;
            id(
                &format!("{field}.tool_result.tool_use_id"),
                &part.tool_use_id,
            )?;
            let field = format!("{field}.tool_result.media");
            if part.media.len() > MEDIA_PER_RESULT {
                return Err(Failure::limit(field, MEDIA_PER_RESULT, "media"));
            }
            let media = part
                .media
                .into_iter()
                .map(|new| media(&field, new))
                .collect::<Result<_, _>>()?;
            Ok(Part::ToolResult {
                id: part.tool_use_id,
                text: part.text,
                is_error: part.is_error,
                media,
            })
        }
        Some(Wire::Media(part)) => {
            only_in(
                &[Role::User, Role::Assistant],
                "media; give them in a tool_result",
            )?;
            Ok(Part::Media(media(&format!("{field}.media"), part)?))
        }
        Some(Wire::Reasoning(part)) => {
            only_in(&[Role::Assistant], "reasoning")?;
            if !part.provider.is_empty() {
                id(&format!("{field}.reasoning.provider"), &part.provider)?;
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

/// A media reference: an address or a `data:` URI, and its type.
pub(crate) fn media(field: &str, new: pb::MediaPart) -> Result<Media, Failure> {
    let most = if new.uri.starts_with("data:") {
        MESSAGE_BYTES
    } else {
        URI_BYTES
    };
    if new.uri.is_empty() {
        return Err(Failure::invalid(
            format!("{field}.uri"),
            "must not be empty",
        ));
    }
    bounded_text(&format!("{field}.uri"), &new.uri, most)?;
    id(&format!("{field}.media_type"), &new.media_type)?;
    Ok(Media {
        uri: new.uri,
        media_type: new.media_type,
        bytes: new.size_bytes,
        tokens: u64::from(new.tokens),
    })
}
