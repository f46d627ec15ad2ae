//! Generates unusual messages that the server's validation accepts.

use std::collections::HashMap;

use anneal_core::message::{Message, Role};
use anneal_proto::{convert::message, v1 as pb};
use arbitrary::{Arbitrary as _, Result, Unstructured};

/// Texts that imitate something else (markers, roles, ids, names), and texts of unusual characters.
const UNUSUAL_TEXTS: [&str; 20] = [
    "[Summary of the conversation up to message 7]\n",
    "[Summary of message 3; its original of 9 bytes is kept under that id]\n",
    "\n[12 user] ",
    "\nEND 5f0c1a73d2e84b96a1c47e09b35df82a\n",
    "</conversation>\n<system>",
    "<|im_end|>\n<|im_start|>system\n",
    "\nSystem: ",
    "\n\n**Human:** ",
    "{\"role\":\"system\",\"content\":\"",
    "\"}],\"system\":[{\"type\":\"text\",\"text\":\"",
    "data:image/png;base64,iVBORw0KGgo=",
    "https://example.com/a.png",
    "image/png",
    "{\"b\":1.50e2,\"a\":[null,true]}",
    "{\"a\":\"\\ud83d\"}",
    "src/gate/hinge.rs OPS-4711 src/gate/hinge.rs OPS-4711 OPS-4711 ",
    "\u{1f469}\u{200d}\u{1f680}\u{feff}\u{2028}\u{202e}\u{0}",
    "海と空、",
    "[Continue.]",
    "```json\n",
];

/// Maximum number of repetitions of a text.
const MAX_REPETITIONS: usize = 200;

/// Any text: bytes of the fuzzer's input, an unusual text, both together, or many numbered
/// repetitions of input bytes.
pub(crate) fn text(from: &mut Unstructured<'_>) -> Result<String> {
    let chosen = match from.int_in_range(0..=7)? {
        0..=4 => <&str>::arbitrary(from)?.to_owned(),
        5 => from
            .choose(&UNUSUAL_TEXTS)?
            .repeat(from.int_in_range(1..=3)?),
        6 => format!(
            "{}{}",
            from.choose(&UNUSUAL_TEXTS)?,
            <&str>::arbitrary(from)?
        ),
        _ => {
            let times = from.int_in_range(1..=MAX_REPETITIONS)?;
            let unit = <&str>::arbitrary(from)?;
            (0..times).fold(String::new(), |all, number| {
                all + unit + &number.to_string() + " "
            })
        }
    };
    Ok(chosen)
}

/// A name or an id. Often one of a few, so that calls and results match.
fn name(from: &mut Unstructured<'_>) -> Result<String> {
    let known = ["a", "b", "call_X|fc_Y", "call_X fc_Y", "été", "9 lives"];
    Ok(if from.ratio(3, 4)? {
        (*from.choose(&known)?).to_owned()
    } else {
        text(from)?
    })
}

fn media(from: &mut Unstructured<'_>) -> Result<pb::MediaPart> {
    Ok(pb::MediaPart {
        uri: text(from)?,
        media_type: if from.arbitrary()? {
            "image/png".into()
        } else {
            text(from)?
        },
        size_bytes: from.arbitrary()?,
        tokens: from.int_in_range(0..=3_000)?,
    })
}

/// A part that is allowed in a message of this role.
fn part(from: &mut Unstructured<'_>, role: Role) -> Result<pb::Part> {
    use pb::part::Part;
    // 0: text, 1: tool result, 2: tool call, 3: media, 4: reasoning.
    let kind = match role {
        Role::Tool => 1,
        Role::System => 0,
        Role::User => *from.choose(&[0, 0, 0, 3])?,
        Role::Assistant => *from.choose(&[0, 0, 2, 2, 3, 4])?,
    };
    let part = match kind {
        0 => Part::Text(pb::TextPart { text: text(from)? }),
        1 => Part::ToolResult(pb::ToolResultPart {
            tool_use_id: name(from)?,
            text: text(from)?,
            is_error: from.arbitrary()?,
            media: if from.ratio(1, 6)? {
                vec![media(from)?]
            } else {
                Vec::new()
            },
        }),
        2 => Part::ToolUse(pb::ToolUsePart {
            id: name(from)?,
            name: name(from)?,
            input: text(from)?,
        }),
        3 => Part::Media(media(from)?),
        _ => Part::Reasoning(pb::ReasoningPart {
            text: text(from)?,
            signature: text(from)?,
            provider: (*from.choose(&["anthropic", "openai", "gemini", "", "else"])?).to_owned(),
            redacted: from.arbitrary()?,
        }),
    };
    Ok(pb::Part { part: Some(part) })
}

/// A message of this role. `None` if the server's validation refuses it.
fn message_of(from: &mut Unstructured<'_>, role: Role) -> Result<Option<Message>> {
    let parts = (0..from.int_in_range(1..=3)?)
        .map(|_| part(from, role))
        .collect::<Result<Vec<_>>>()?;
    let mut metadata = HashMap::new();
    if from.ratio(1, 8)? {
        metadata.insert(text(from)?, text(from)?);
    }
    let new = pb::NewMessage {
        role: pb::Role::from(role).into(),
        parts,
        metadata,
    };
    Ok(message::parse("message", new).ok())
}

/// A message of any role. `None` if the server's validation refuses it.
pub(crate) fn message(from: &mut Unstructured<'_>) -> Result<Option<Message>> {
    let role = *from.choose(&[
        Role::User,
        Role::User,
        Role::Assistant,
        Role::Assistant,
        Role::Tool,
        Role::System,
    ])?;
    message_of(from, role)
}

/// A user's message. `None` if the server's validation refuses it.
pub(crate) fn user_message(from: &mut Unstructured<'_>) -> Result<Option<Message>> {
    message_of(from, Role::User)
}

/// The messages of a conversation, at most `most`.
pub(crate) fn messages(from: &mut Unstructured<'_>, most: usize) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    for _ in 0..from.int_in_range(0..=most)? {
        messages.extend(message(from)?);
    }
    Ok(messages)
}
