//! Parses ids, etags, texts and metadata: fields that many requests have.

use std::collections::{BTreeMap, HashMap};

use anneal_core::{
    caller::ConversationId,
    limits::{self, ID_BYTES},
    message::MessageId,
};
use uuid::Uuid;

use super::FieldError;

/// Parses the field `conversation_id`: a UUID of 36 characters.
pub fn conversation_id(text: &str) -> Result<ConversationId, FieldError> {
    conversation_id_in("conversation_id", text)
}

/// Parses a conversation id in the field of this name.
pub fn conversation_id_in(field: &str, text: &str) -> Result<ConversationId, FieldError> {
    uuid(field, text).map(ConversationId)
}

/// A UUID of 36 characters.
pub fn uuid(field: &str, text: &str) -> Result<Uuid, FieldError> {
    // `try_parse` also accepts other forms, such as a UUID without dashes.
    let uuid = (text.len() == 36)
        .then(|| Uuid::try_parse(text).ok())
        .flatten();
    uuid.ok_or_else(|| FieldError::invalid(field, "must be a UUID of 36 characters"))
}

/// Parses the field `request_id`; None if it is empty.
pub fn request_id(text: &str) -> Result<Option<&str>, FieldError> {
    bounded_text("request_id", text, ID_BYTES)?;
    Ok((!text.is_empty()).then_some(text))
}

/// A text of at most `max_bytes` bytes without NUL.
pub fn bounded_text<'a>(
    field: &str,
    text: &'a str,
    max_bytes: usize,
) -> Result<&'a str, FieldError> {
    if text.len() > max_bytes {
        return Err(FieldError::limit(field, max_bytes, "bytes"));
    }
    if text.contains('\0') {
        return Err(FieldError::invalid(field, "must not contain NUL"));
    }
    Ok(text)
}

/// A name or an id of another system: not empty, at most 128 bytes.
pub fn id<'a>(field: &str, text: &'a str) -> Result<&'a str, FieldError> {
    if text.is_empty() {
        return Err(FieldError::invalid(field, "must not be empty"));
    }
    bounded_text(field, text, ID_BYTES)
}

/// A message id, from 1 on.
pub fn message_id(field: &str, number: i64) -> Result<MessageId, FieldError> {
    if number < 1 {
        return Err(FieldError::invalid(field, "must be at least 1"));
    }
    Ok(MessageId(number))
}

/// A message id, or 0 for the position before the first message.
pub fn message_id_or_zero(field: &str, number: i64) -> Result<MessageId, FieldError> {
    if number < 0 {
        return Err(FieldError::invalid(field, "must not be negative"));
    }
    Ok(MessageId(number))
}

/// The number of a message's version, from 1 on.
pub fn version(field: &str, number: i32) -> Result<i32, FieldError> {
    if number < 1 {
        return Err(FieldError::invalid(field, "must be at least 1"));
    }
    Ok(number)
}

/// A model's name; None if it is empty.
pub fn model(field: &str, name: &str) -> Result<Option<String>, FieldError> {
    bounded_text(field, name, ID_BYTES)?;
    Ok((!name.is_empty()).then(|| name.to_owned()))
}

/// Parses the field `expected_last_message_id`: the id that the caller expects the newest message
/// to have, or 0 if the conversation should be empty.
pub fn expected_last(number: Option<i64>) -> Result<Option<MessageId>, FieldError> {
    number
        .map(|number| message_id_or_zero("expected_last_message_id", number))
        .transpose()
}

/// Parses the field `etag`: the revision that the caller has read. None: it is empty, so any
/// revision may be changed.
pub fn etag(text: &str) -> Result<Option<i64>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| FieldError::invalid("etag", "is not an etag of this server"))
}

/// Parses metadata: keys and values without NUL, within the limits of number and size.
#[expect(clippy::implicit_hasher, reason = "the type of the generated maps")]
pub fn metadata(
    field: &str,
    map: HashMap<String, String>,
) -> Result<BTreeMap<String, String>, FieldError> {
    if map.len() > limits::METADATA_KEYS {
        return Err(FieldError::limit(field, limits::METADATA_KEYS, "keys"));
    }
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > limits::METADATA_BYTES {
        return Err(FieldError::limit(
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
pub fn system_prompt(text: &str) -> Result<&str, FieldError> {
    bounded_text("system_prompt", text, limits::SYSTEM_PROMPT_BYTES)
}
