//! Fits messages and heads to anneal's storage limits. What does not fit is changed or set aside,
//! with a note.

use std::collections::BTreeMap;

use anneal_core::{
    digest,
    limits::{
        ID_BYTES, MEDIA_PER_RESULT, MESSAGE_BYTES, METADATA_BYTES, METADATA_KEYS,
        PARTS_PER_MESSAGE, SYSTEM_PROMPT_BYTES, TITLE_BYTES, URI_BYTES,
    },
    message::{Media, Message, Part, Role, plain_text_bytes},
};

use crate::{
    Head, ImportOutcome,
    json::{Notes, Unreadable, short_name},
};

/// The name or id that replaces an empty one.
const UNNAMED: &str = "unnamed";
/// The character that replaces NUL where NUL cannot be stored: in titles, ids and metadata.
const REPLACEMENT: &str = "\u{fffd}";

/// Fits a message to the limits of an append. An error if it cannot be stored.
pub(crate) fn fit_message(mut message: Message, notes: &mut Notes) -> Result<Message, Unreadable> {
    let role = message.role;
    message.parts = message
        .parts
        .into_iter()
        .filter_map(|one| fit_part(one, role, notes))
        .collect();
    if message.parts.is_empty() {
        if role == Role::Tool {
            return Err(Unreadable::new("a tool message without a result"));
        }
        message.parts.push(Part::Text {
            text: String::new(),
        });
    }
    if message.parts.len() > PARTS_PER_MESSAGE {
        return Err(Unreadable(format!(
            "a message of more than {PARTS_PER_MESSAGE} parts"
        )));
    }
    if plain_text_bytes(&message.parts) > MESSAGE_BYTES {
        return Err(Unreadable(format!(
            "a message of more than {MESSAGE_BYTES} bytes"
        )));
    }
    message.metadata = fit_labels(message.metadata, notes);
    Ok(message)
}

/// Fits a head to the limits of a new conversation.
pub(crate) fn fit_head(mut head: Head, notes: &mut Notes) -> Head {
    if head.title.len() > TITLE_BYTES {
        head.title
            .truncate(head.title.floor_char_boundary(TITLE_BYTES));
        notes.push((
            ImportOutcome::Changed,
            format!("the title was cut to {TITLE_BYTES} bytes"),
        ));
    }
    for (name, text) in [("title", &mut head.title), ("identity", &mut head.identity)] {
        replace_nul(name, text, notes);
    }
    if !head.agent_id.is_empty() {
        head.agent_id = fit_id("agent", head.agent_id, notes);
    }
    if !is_valid_prompt(&head.system_prompt) {
        head.system_prompt.clear();
        notes.push((
            ImportOutcome::SetAside,
            format!("a system prompt with NUL, or of more than {SYSTEM_PROMPT_BYTES} bytes"),
        ));
    }
    head.metadata = fit_labels(head.metadata, notes);
    head
}

/// Whether the text is within the limits of a system prompt.
pub(crate) fn is_valid_prompt(text: &str) -> bool {
    text.len() <= SYSTEM_PROMPT_BYTES && !text.contains('\0')
}

/// Whether one more label fits into the metadata.
pub(crate) fn label_fits(labels: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    labels.len() < METADATA_KEYS && label_bytes(labels) + key.len() + value.len() <= METADATA_BYTES
}

/// Bytes of all keys and values.
fn label_bytes(labels: &BTreeMap<String, String>) -> usize {
    labels
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}

/// Leaves out labels until the others fit: the largest ones while there are too many bytes, then
/// those with the last names while there are too many labels.
fn fit_labels(all: BTreeMap<String, String>, notes: &mut Notes) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (mut key, mut value) in all {
        replace_nul("metadata", &mut key, notes);
        replace_nul("metadata", &mut value, notes);
        labels.insert(key, value);
    }
    let mut leave_out = |labels: &mut BTreeMap<String, String>, key: String| {
        labels.remove(&key);
        notes.push((
            ImportOutcome::SetAside,
            format!("{} does not fit into the metadata", short_name(&key)),
        ));
    };
    while label_bytes(&labels) > METADATA_BYTES {
        let largest = labels
            .iter()
            .max_by_key(|(key, value)| key.len() + value.len())
            .map(|(key, _)| key.clone());
        leave_out(
            &mut labels,
            largest.expect("labels of more than 0 bytes are not empty"),
        );
    }
    while labels.len() > METADATA_KEYS {
        let last = labels.keys().next_back().cloned();
        leave_out(
            &mut labels,
            last.expect("there are more labels than the limit"),
        );
    }
    labels
}

fn replace_nul(name: &str, text: &mut String, notes: &mut Notes) {
    if text.contains('\0') {
        *text = text.replace('\0', REPLACEMENT);
        notes.push((
            ImportOutcome::Changed,
            format!("NUL in the {name} became U+FFFD"),
        ));
    }
}

/// Fits a part to the limits. None if a message of this role cannot have it, or if it is media that
/// cannot be stored.
fn fit_part(part: Part, role: Role, notes: &mut Notes) -> Option<Part> {
    let (is_allowed, what) = match &part {
        Part::Text { .. } => (role != Role::Tool, "a text"),
        Part::ToolUse { .. } => (role == Role::Assistant, "a tool call"),
        Part::ToolResult { .. } => (role == Role::Tool, "a tool result"),
        Part::Media(_) => (matches!(role, Role::User | Role::Assistant), "media"),
        Part::Reasoning { .. } => (role == Role::Assistant, "reasoning"),
    };
    if !is_allowed {
        notes.push((
            ImportOutcome::SetAside,
            format!("{what} in a message of the role {}", role.name()),
        ));
        return None;
    }
    Some(match part {
        Part::Text { .. } => part,
        Part::ToolUse { id, name, input } => Part::ToolUse {
            id: fit_id("tool call", id, notes),
            name: fit_id("tool", name, notes),
            input,
        },
        Part::ToolResult {
            id,
            text,
            is_error,
            media: all,
        } => {
            let mut media: Vec<Media> = all
                .into_iter()
                .filter_map(|one| fit_media(one, notes))
                .collect();
            if media.len() > MEDIA_PER_RESULT {
                media.truncate(MEDIA_PER_RESULT);
                notes.push((
                    ImportOutcome::SetAside,
                    format!("more than {MEDIA_PER_RESULT} media in a tool result"),
                ));
            }
            Part::ToolResult {
                id: fit_id("tool call", id, notes),
                text,
                is_error,
                media,
            }
        }
        Part::Media(one) => Part::Media(fit_media(one, notes)?),
        Part::Reasoning {
            text,
            signature,
            mut provider,
            redacted,
        } => {
            if provider.len() > ID_BYTES || provider.contains('\0') {
                provider.clear();
                notes.push((
                    ImportOutcome::Changed,
                    "the provider of a reasoning part was too long or had NUL, and was removed"
                        .into(),
                ));
            }
            Part::Reasoning {
                text,
                signature,
                provider,
                redacted,
            }
        }
    })
}

fn fit_media(mut media: Media, notes: &mut Notes) -> Option<Media> {
    let max_uri_bytes = if media.uri.starts_with("data:") {
        MESSAGE_BYTES
    } else {
        URI_BYTES
    };
    if media.uri.is_empty() || media.uri.len() > max_uri_bytes || media.uri.contains('\0') {
        notes.push((
            ImportOutcome::SetAside,
            "media whose address is empty, too long or has NUL".into(),
        ));
        return None;
    }
    if media.media_type.is_empty()
        || media.media_type.len() > ID_BYTES
        || media.media_type.contains('\0')
    {
        media.media_type = "application/octet-stream".into();
        notes.push((
            ImportOutcome::Changed,
            "a media type was empty, too long or had NUL, and became application/octet-stream"
                .into(),
        ));
    }
    // An append has them as a `uint32`.
    media.tokens = media.tokens.min(u32::MAX.into());
    Some(media)
}

/// The first half of the digest, in hexadecimal digits.
pub(crate) fn half_hex(digest: &digest::Digest) -> String {
    hex::encode(&digest[..16])
}

/// A name or id that can be stored. One that is empty becomes [`UNNAMED`]. One that is too long or
/// has NUL keeps its beginning, followed by half of its digest. The new id depends only on the old
/// one, so a call and its result still match.
fn fit_id(what: &str, id: String, notes: &mut Notes) -> String {
    if !id.is_empty() && id.len() <= ID_BYTES && !id.contains('\0') {
        return id;
    }
    if id.is_empty() {
        notes.push((
            ImportOutcome::Changed,
            format!("the name or id of a {what} was empty, and became {UNNAMED}"),
        ));
        return UNNAMED.into();
    }
    notes.push((
        ImportOutcome::Changed,
        format!(
            "the name or id of a {what} had more than {ID_BYTES} bytes or NUL, and was changed"
        ),
    ));
    let digest = digest::of_content(&id);
    let hex = half_hex(&digest);
    let clean = id.replace('\0', REPLACEMENT);
    let end = clean.floor_char_boundary((ID_BYTES - 1 - hex.len()).min(clean.len()));
    format!("{}-{hex}", &clean[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool_message(id: &str) -> Message {
        let part = Part::ToolResult {
            id: id.into(),
            text: "t".into(),
            is_error: false,
            media: Vec::new(),
        };
        Message {
            role: Role::Tool,
            parts: vec![part],
            metadata: BTreeMap::new(),
        }
    }

    #[test]
    fn a_long_id_is_shortened_in_the_same_way_in_call_and_result() {
        let long = format!("call_{}|fc_{}", "x".repeat(100), "y".repeat(100));
        let call = Part::ToolUse {
            id: long.clone(),
            name: "n".into(),
            input: String::new(),
        };
        let call = Message {
            role: Role::Assistant,
            parts: vec![call],
            metadata: BTreeMap::new(),
        };
        let mut notes = Notes::new();
        let result = fit_message(tool_message(&long), &mut notes).expect("fits");
        let call = fit_message(call, &mut notes).expect("fits");
        let (Part::ToolResult { id, .. }, Part::ToolUse { id: call_id, .. }) =
            (&result.parts[0], &call.parts[0])
        else {
            panic!("other parts");
        };
        assert_eq!(id, call_id);
        assert!(id.len() <= ID_BYTES && id.starts_with("call_xxx"), "{id}");
        assert_eq!(notes.remarks.len(), 2);
    }

    #[test]
    fn too_many_labels_are_set_aside_the_largest_first() {
        let mut all: BTreeMap<String, String> =
            (0..40).map(|n| (format!("k{n:02}"), "v".into())).collect();
        all.insert("big".into(), "x".repeat(5_000));
        let mut notes = Notes::new();
        let kept = fit_labels(all, &mut notes);
        assert_eq!(
            (
                kept.len(),
                kept.contains_key("big"),
                kept.contains_key("k00")
            ),
            (METADATA_KEYS, false, true)
        );
        let (small, big) = (40 - METADATA_KEYS, 1);
        assert_eq!(notes.remarks.len(), small + big);
    }

    #[test]
    fn parts_that_a_role_cannot_hold_are_set_aside() {
        let text = Message {
            parts: vec![Part::Text { text: "t".into() }],
            ..tool_message("c")
        };
        assert!(fit_message(text, &mut Notes::new()).is_err());
        let mut notes = Notes::new();
        let user = fit_message(
            Message {
                role: Role::User,
                ..tool_message("c")
            },
            &mut notes,
        )
        .expect("fits");
        assert_eq!(
            user.parts,
            [Part::Text {
                text: String::new()
            }]
        );
        assert_eq!(notes.remarks[0].0, ImportOutcome::SetAside);
    }
}
