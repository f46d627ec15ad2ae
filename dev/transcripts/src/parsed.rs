//! Messages in the form of the core, for code that counts and decides without a service.

use anneal_core::message::{Media, Message, Part, Role};

use crate::pb::{self, part::Part as Wire};

/// Parses a message like the server. Messages that the server would refuse do not occur in the
/// transcripts.
pub fn parsed(new: &pb::NewMessage) -> Message {
    let parts = new
        .parts
        .iter()
        .map(|part| part.part.clone().expect("readers fill every part"));
    Message {
        role: match new.role() {
            pb::Role::User => Role::User,
            pb::Role::Assistant => Role::Assistant,
            pb::Role::Tool => Role::Tool,
            pb::Role::System => Role::System,
            pb::Role::Unspecified => unreachable!("readers give every message a role"),
        },
        parts: parts.map(part).collect(),
        metadata: new.metadata.clone().into_iter().collect(),
    }
}

fn part(part: Wire) -> Part {
    match part {
        Wire::Text(part) => Part::Text { text: part.text },
        Wire::ToolUse(part) => Part::ToolUse {
            id: part.id,
            name: part.name,
            input: part.input,
        },
        Wire::ToolResult(part) => Part::ToolResult {
            id: part.tool_use_id,
            text: part.text,
            is_error: part.is_error,
            media: part.media.into_iter().map(media).collect(),
        },
        Wire::Media(part) => Part::Media(media(part)),
        Wire::Reasoning(pb::ReasoningPart {
            text,
            signature,
            provider,
            redacted,
        }) => Part::Reasoning {
            text,
            signature,
            provider,
            redacted,
        },
    }
}

fn media(part: pb::MediaPart) -> Media {
    Media {
        uri: part.uri,
        media_type: part.media_type,
        bytes: part.size_bytes,
        tokens: u64::from(part.tokens),
    }
}
