//! The parts of a message that a client of this API sees. A stored message and one of a request are
//! the same if they show the same.

use anneal_core::digest::{self, Digest};
use anneal_proto::v1::{self as pb, part::Part};

/// Something that a message shows: a text of the assistant, a call, a result, or a whole message of
/// another role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown(Digest);

impl Shown {
    fn of(fields: &[&str]) -> Self {
        Self(digest::of_fields(
            fields.iter().map(|field| field.as_bytes()),
        ))
    }
}

/// The shown parts of the message, in order. Reasoning is not shown, so there may be none.
pub(super) fn shown_in(role: pb::Role, parts: &[pb::Part]) -> Vec<Shown> {
    match role {
        pb::Role::Assistant => shown_of_assistant(parts),
        pb::Role::Tool => shown_of_tool(parts),
        pb::Role::User | pb::Role::System | pb::Role::Unspecified => {
            let mut fields = vec![role.as_str_name()];
            for part in parts {
                match &part.part {
                    Some(Part::Text(part)) => fields.extend(["text", part.text.as_str()]),
                    Some(Part::Media(media)) => fields.extend(["media", media.uri.as_str()]),
                    Some(Part::ToolUse(_) | Part::ToolResult(_) | Part::Reasoning(_)) | None => {}
                }
            }
            vec![Shown::of(&fields)]
        }
    }
}

/// The texts of an answer are one content, which comes before its calls.
fn shown_of_assistant(parts: &[pb::Part]) -> Vec<Shown> {
    let mut text = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match &part.part {
            Some(Part::Text(part)) => text.push_str(&part.text),
            Some(Part::ToolUse(call)) => {
                calls.push(Shown::of(&["call", &call.id, &call.name, &call.input]));
            }
            Some(Part::ToolResult(_) | Part::Media(_) | Part::Reasoning(_)) | None => {}
        }
    }
    let text = (!text.is_empty()).then(|| Shown::of(&["answer", &text]));
    text.into_iter().chain(calls).collect()
}

fn shown_of_tool(parts: &[pb::Part]) -> Vec<Shown> {
    let results = parts.iter().filter_map(|part| match &part.part {
        Some(Part::ToolResult(result)) => {
            Some(Shown::of(&["result", &result.tool_use_id, &result.text]))
        }
        _ => None,
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> pb::Part {
        pb::Part {
            part: Some(Part::Text(pb::TextPart { text: text.into() })),
        }
    }

    fn thought() -> pb::Part {
        pb::Part {
            part: Some(Part::Reasoning(pb::ReasoningPart::default())),
        }
    }

    #[test]
    fn an_answer_shows_its_texts_as_one_and_no_thoughts() {
        let answer = |parts: &[pb::Part]| shown_in(pb::Role::Assistant, parts);
        assert_eq!(
            answer(&[thought(), text("I "), text("look.")]),
            answer(&[text("I look.")])
        );
        assert_eq!(answer(&[thought()]), []);
        assert_eq!(answer(&[text("")]), []);
        assert_ne!(answer(&[text("a")]), answer(&[text("b")]));
        assert_ne!(
            answer(&[text("a")]),
            shown_in(pb::Role::User, &[text("a")]),
            "another author"
        );
    }

    #[test]
    fn a_message_of_the_user_shows_its_parts_apart() {
        let user = |parts: &[pb::Part]| shown_in(pb::Role::User, parts);
        assert_ne!(user(&[text("a"), text("b")]), user(&[text("ab")]));
        assert_eq!(user(&[text("a"), text("b")]).len(), 1);
    }
}
