//! The policies and messages of the simulation. With each policy but number 3, a few small messages
//! are enough for a checkpoint.

use anneal_core::{
    policy::{PolicyOverrides, Profile, TokenThreshold},
    tokens::Tokens,
};
use anneal_testkit::{assistant, call, media, message, pb, prose, result, user};
use pb::{Role, part::Part};

/// Number of policies.
pub(crate) const POLICIES: u8 = 5;

/// Whether the policy with this number stores tool messages.
pub(crate) const fn keeps_tools(policy: u8) -> bool {
    policy != 4
}

/// The policy with this number, below [`POLICIES`].
pub(crate) fn policy(number: u8) -> PolicyOverrides {
    let large = Some(Tokens::new(150));
    let base = PolicyOverrides {
        max_message_count: Some(5),
        large_message_threshold: large,
        ..PolicyOverrides::default()
    };
    match number {
        0 => base,
        1 => PolicyOverrides {
            max_message_count: Some(8),
            hot_zone_radius: Some(1),
            ..base
        },
        2 => PolicyOverrides {
            token_threshold: Some(TokenThreshold::Tokens(Tokens::new(400))),
            max_message_count: Some(0),
            ..base
        },
        4 => PolicyOverrides {
            store_tool_messages: Some(false),
            ..base
        },
        _ => PolicyOverrides {
            profile: Some(Profile::Agents),
            ..PolicyOverrides::default()
        },
    }
}

/// Number of message kinds (`body`).
pub(crate) const BODIES: u8 = 8;
/// The message kind of a tool call.
pub(crate) const CALL: u8 = 3;
/// The message kind of a small tool result.
pub(crate) const RESULT: u8 = 4;

/// A message with a word by which its content is recognized.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MarkedMessage {
    pub(crate) message: pb::NewMessage,
    /// The word. It is in the message's texts and in the inputs of its tool calls.
    pub(crate) mark: String,
}

/// A small, medium or large text (size 0, 1 or 2), different for each number. It begins with the
/// mark.
fn text(size: u8, number: usize, mark: &str) -> String {
    let prose = prose(
        17 * usize::from(size) + number,
        [1, 3, 12][usize::from(size)],
    );
    format!("{mark} {prose}")
}

/// A message of the kind `body`, different for each number: a text of one of three sizes from the
/// user or the model (kinds 0 to 2), a tool call, a small or large tool result, reasoning with text
/// and two tool calls, or a picture with text. `unanswered` is the id of a call without a result,
/// if there is one.
pub(crate) fn new_message(
    body: u8,
    number: usize,
    unanswered: Option<&str>,
    mark: String,
) -> MarkedMessage {
    let message = message_of_kind(body, number, unanswered, &mark);
    MarkedMessage { message, mark }
}

/// A question of the user, of this size, different for each number.
pub(crate) fn new_question(size: u8, number: usize, mark: String) -> MarkedMessage {
    MarkedMessage {
        message: user(&text(size, number, &mark)),
        mark,
    }
}

/// New content for a stored message, of this size. Its role and the ids of its tool calls and
/// results are those that it has.
pub(crate) fn edited_message(
    stored: &pb::NewMessage,
    size: u8,
    number: usize,
    mark: String,
) -> MarkedMessage {
    let mut message = stored.clone();
    let parts = message.parts.iter_mut();
    for part in parts.filter_map(|part| part.part.as_mut()) {
        match part {
            Part::Text(part) => part.text = text(size, number, &mark),
            Part::ToolResult(part) => part.text = text(size, number, &mark),
            Part::ToolUse(part) => part.input = format!("{{\"word\": \"{mark}\"}}"),
            Part::Reasoning(_) | Part::Media(_) => {}
        }
    }
    MarkedMessage { message, mark }
}

fn message_of_kind(
    body: u8,
    number: usize,
    unanswered: Option<&str>,
    mark: &str,
) -> pb::NewMessage {
    // Kinds 6 and 7 have such a part: kind 6 a small text, kind 7 a medium one.
    let text_part = || {
        Part::Text(pb::TextPart {
            text: text(body % 2, number, mark),
        })
    };
    let tool_use = |name: &str| {
        let input = format!("{{\"n\": {number}, \"why\": \"{name}\", \"word\": \"{mark}\"}}");
        Part::ToolUse(pb::ToolUsePart {
            id: format!("{name}{number}"),
            name: "look".into(),
            input,
        })
    };
    let call_id = unanswered.map_or_else(|| format!("nobody{number}"), str::to_owned);
    match body {
        0..3 if number.is_multiple_of(2) => user(&text(body, number, mark)),
        0..3 => assistant(&text(body, number, mark)),
        CALL => call(&format!("c{number}"), &format!("{{\"word\": \"{mark}\"}}")),
        RESULT => result(&call_id, &text(1, number, mark)),
        5 => result(&call_id, &text(2, number, mark)),
        6 => {
            let reasoning = pb::ReasoningPart {
                text: "Hm.".into(),
                provider: "anthropic".into(),
                ..Default::default()
            };
            message(
                Role::Assistant,
                vec![
                    Part::Reasoning(reasoning),
                    text_part(),
                    tool_use("a"),
                    tool_use("b"),
                ],
            )
        }
        _ => {
            let mut picture = media("s3://bucket/picture");
            let texts = [text_part(), text_part()].map(|part| pb::Part { part: Some(part) });
            picture.parts.splice(0..0, texts);
            picture
        }
    }
}
