//! Messages and heads within the limits of what anneal stores. What does not fit is changed or set aside, and noted.

use std::collections::BTreeMap;

use anneal_core::{
    digest,
    limits::{
        ID_BYTES, MEDIA_PER_RESULT, MESSAGE_BYTES, METADATA_BYTES, METADATA_KEYS, PARTS_PER_MESSAGE,
        SYSTEM_PROMPT_BYTES, TITLE_BYTES, URI_BYTES,
    },
    message::{Media, Message, Part, Role, plain_text_bytes},
};

use crate::{
    Fate, Head,
    json::{Bad, Notes, named},
};

/// What an id that is empty becomes.
const UNNAMED: &str = "unnamed";
/// What stands for NUL where none can be stored.
const REPLACEMENT: &str = "\u{fffd}";

/// The message as an append accepts it.
pub(crate) fn message(mut message: Message, notes: &mut Notes) -> Result<Message, Bad> {
    let role = message.role;
    message.parts = message.parts.into_iter().filter_map(|one| part(one, role, notes)).collect();
    if message.parts.is_empty() {
        if role == Role::Tool {
            return Err(Bad::new("a tool's message without a result"));
        }
        message.parts.push(Part::Text { text: String::new() });
    }
    if message.parts.len() > PARTS_PER_MESSAGE {
        return Err(Bad(format!("a message of more than {PARTS_PER_MESSAGE} parts")));
    }
    if plain_text_bytes(&message.parts) > MESSAGE_BYTES {
        return Err(Bad(format!("a message of more than {MESSAGE_BYTES} bytes")));
    }
    message.metadata = labels(message.metadata, notes);
    Ok(message)
}

/// The head as a conversation is created with it.
pub(crate) fn head(mut head: Head, notes: &mut Notes) -> Head {
    if head.title.len() > TITLE_BYTES {
        head.title.truncate(head.title.floor_char_boundary(TITLE_BYTES));
        notes.push((Fate::Changed, format!("the title was cut to {TITLE_BYTES} bytes")));
    }
    for (name, text) in [("title", &mut head.title), ("identity", &mut head.identity)] {
        without_nul(name, text, notes);
    }
    if !head.agent_id.is_empty() {
        head.agent_id = id("agent", head.agent_id, notes);
    }
    if !is_prompt(&head.system_prompt) {
        head.system_prompt.clear();
        notes.push((Fate::SetAside, format!("a system prompt with NUL, or of more than {SYSTEM_PROMPT_BYTES} bytes")));
    }
    head.metadata = labels(head.metadata, notes);
    head
}

/// Whether a text can be a conversation's system prompt.
pub(crate) fn is_prompt(text: &str) -> bool {
    text.len() <= SYSTEM_PROMPT_BYTES && !text.contains('\0')
}

/// Whether one more label fits beside those there are.
pub(crate) fn has_room(labels: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    labels.len() < METADATA_KEYS && size(labels) + key.len() + value.len() <= METADATA_BYTES
}

fn size(labels: &BTreeMap<String, String>) -> usize {
    labels.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// The labels that fit: the largest are left out first, then the last ones.
fn labels(all: BTreeMap<String, String>, notes: &mut Notes) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (mut key, mut value) in all {
        without_nul("metadata", &mut key, notes);
        without_nul("metadata", &mut value, notes);
        labels.insert(key, value);
    }
    let mut left_out = |labels: &mut BTreeMap<String, String>, key: String| {
        labels.remove(&key);
        notes.push((Fate::SetAside, format!("{} does not fit into the metadata", named(&key))));
    };
    while size(&labels) > METADATA_BYTES {
        let largest = labels.iter().max_by_key(|(key, value)| key.len() + value.len()).map(|(key, _)| key.clone());
        left_out(&mut labels, largest.expect("what has a size has a largest"));
    }
    while labels.len() > METADATA_KEYS {
        let last = labels.keys().next_back().cloned();
        left_out(&mut labels, last.expect("there are more than allowed"));
    }
    labels
}

fn without_nul(name: &str, text: &mut String, notes: &mut Notes) {
    if text.contains('\0') {
        *text = text.replace('\0', REPLACEMENT);
        notes.push((Fate::Changed, format!("NUL in the {name} became U+FFFD")));
    }
}

/// The part, if a message of this role may hold it.
fn part(part: Part, role: Role, notes: &mut Notes) -> Option<Part> {
    let (fits, what) = match &part {
        Part::Text { .. } => (role != Role::Tool, "a text"),
        Part::ToolUse { .. } => (role == Role::Assistant, "a tool call"),
        Part::ToolResult { .. } => (role == Role::Tool, "a tool result"),
        Part::Media(_) => (matches!(role, Role::User | Role::Assistant), "media"),
        Part::Reasoning { .. } => (role == Role::Assistant, "reasoning"),
    };
    if !fits {
        notes.push((Fate::SetAside, format!("{what} in a message of the role {}", role.name())));
        return None;
    }
    Some(match part {
        Part::Text { .. } => part,
        Part::ToolUse { id: call, name, input } => {
            Part::ToolUse { id: id("tool call", call, notes), name: id("tool", name, notes), input }
        }
        Part::ToolResult { id: call, text, is_error, media: all } => {
            let mut media: Vec<Media> = all.into_iter().filter_map(|one| self::media(one, notes)).collect();
            if media.len() > MEDIA_PER_RESULT {
                media.truncate(MEDIA_PER_RESULT);
                notes.push((Fate::SetAside, format!("more than {MEDIA_PER_RESULT} media in a tool result")));
            }
            Part::ToolResult { id: id("tool call", call, notes), text, is_error, media }
        }
        Part::Media(one) => Part::Media(media(one, notes)?),
        Part::Reasoning { text, signature, mut provider, redacted } => {
            if provider.len() > ID_BYTES || provider.contains('\0') {
                provider.clear();
                notes.push((Fate::Changed, "the provider of reasoning has too long a name".into()));
            }
            Part::Reasoning { text, signature, provider, redacted }
        }
    })
}

fn media(mut media: Media, notes: &mut Notes) -> Option<Media> {
    let most = if media.uri.starts_with("data:") { MESSAGE_BYTES } else { URI_BYTES };
    if media.uri.is_empty() || media.uri.len() > most || media.uri.contains('\0') {
        notes.push((Fate::SetAside, "media whose address is empty or too long".into()));
        return None;
    }
    if media.media_type.is_empty() || media.media_type.len() > ID_BYTES || media.media_type.contains('\0') {
        media.media_type = "application/octet-stream".into();
        notes.push((Fate::Changed, "media of no readable type".into()));
    }
    media.tokens = media.tokens.min(u32::MAX.into());
    Some(media)
}

/// The digest's first half in hexadecimal digits.
pub(crate) fn hex(digest: &digest::Digest) -> String {
    let number = digest[..16].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    format!("{number:032x}")
}

/// An id that can be stored. One that is too long keeps its beginning and ends in its digest, the same wherever it
/// stands, so that a call and its result still meet.
fn id(what: &str, id: String, notes: &mut Notes) -> String {
    if !id.is_empty() && id.len() <= ID_BYTES && !id.contains('\0') {
        return id;
    }
    if id.is_empty() {
        notes.push((Fate::Changed, format!("a {what} without a name")));
        return UNNAMED.into();
    }
    notes.push((Fate::Changed, format!("the id of a {what} was longer than {ID_BYTES} bytes, or held NUL")));
    let digest = digest::of_content(&id);
    let hex = hex(&digest);
    let clean = id.replace('\0', REPLACEMENT);
    let begin = clean.floor_char_boundary((ID_BYTES - 1 - hex.len()).min(clean.len()));
    format!("{}-{hex}", &clean[..begin])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(id: &str) -> Message {
        let part = Part::ToolResult { id: id.into(), text: "t".into(), is_error: false, media: Vec::new() };
        Message { role: Role::Tool, parts: vec![part], metadata: BTreeMap::new() }
    }

    #[test]
    fn a_long_id_is_shortened_the_same_for_call_and_result() {
        let long = format!("call_{}|fc_{}", "x".repeat(100), "y".repeat(100));
        let call = Part::ToolUse { id: long.clone(), name: "n".into(), input: String::new() };
        let call = Message { role: Role::Assistant, parts: vec![call], metadata: BTreeMap::new() };
        let mut notes = Notes::new();
        let result = message(tool(&long), &mut notes).expect("fits");
        let call = message(call, &mut notes).expect("fits");
        let (Part::ToolResult { id, .. }, Part::ToolUse { id: called, .. }) = (&result.parts[0], &call.parts[0]) else {
            panic!("other parts");
        };
        assert_eq!(id, called);
        assert!(id.len() <= ID_BYTES && id.starts_with("call_xxx"), "{id}");
        assert_eq!(notes.said.len(), 2);
    }

    #[test]
    fn too_many_labels_are_set_aside_the_largest_first() {
        let mut all: BTreeMap<String, String> = (0..40).map(|n| (format!("k{n:02}"), "v".into())).collect();
        all.insert("big".into(), "x".repeat(5_000));
        let mut notes = Notes::new();
        let kept = labels(all, &mut notes);
        assert_eq!((kept.len(), kept.contains_key("big"), kept.contains_key("k00")), (32, false, true));
        assert_eq!(notes.said.len(), 9);
    }

    #[test]
    fn what_a_role_cannot_hold_is_set_aside() {
        let text = Message { parts: vec![Part::Text { text: "t".into() }], ..tool("c") };
        assert!(message(text, &mut Notes::new()).is_err());
        let mut notes = Notes::new();
        let user = message(Message { role: Role::User, ..tool("c") }, &mut notes).expect("fits");
        assert_eq!(user.parts, [Part::Text { text: String::new() }]);
        assert_eq!(notes.said[0].0, Fate::SetAside);
    }
}
