//! The last messages of a conversation, as text for the screen.

use std::fmt::Write as _;

use anneal_proto::v1 as pb;
use pb::{Role, part::Part};
use tonic::Status;

use super::answer::tool_call_line;
use crate::{
    client::Client,
    columns::{clipped, screenful},
    sanitize::sanitize,
};

/// Most messages that are shown: the last two turns, if each has two messages.
const MAX_MESSAGES: i32 = 4;
/// Most rows of the screen that the text of a message fills.
const MAX_ROWS: usize = 6;
/// Bytes fetched of a message that has more.
const EXCERPT_BYTES: i64 = 4_000;

/// Fetches the last messages, and returns a few lines of each, oldest first.
pub(super) async fn recent_messages(
    client: &Client,
    id: &str,
    columns: usize,
) -> Result<String, Status> {
    let ask = pb::ListMessagesRequest {
        conversation_id: id.to_owned(),
        page_size: MAX_MESSAGES,
        newest_first: true,
        without_content: true,
        ..Default::default()
    };
    let mut listed = client
        .messages()
        .list_messages(ask)
        .await?
        .into_inner()
        .messages;
    listed.reverse();
    let mut page = String::new();
    if let Some(earlier) = listed
        .first()
        .map(|first| first.message_id - 1)
        .filter(|earlier| *earlier > 0)
    {
        let _ = writeln!(
            page,
            "… {} before",
            crate::text_format::pluralize(earlier as usize, "message")
        );
    }
    for message in &listed {
        let text = fetch_text(client, id, message).await?;
        page.push_str(&message_lines(message, &text, columns));
    }
    Ok(page)
}

/// Fetches a question, and returns its first lines.
pub(super) async fn question_excerpt(
    client: &Client,
    id: &str,
    message: &pb::Message,
    columns: usize,
) -> Result<String, Status> {
    let text = fetch_text(client, id, message).await?;
    let (mut lines, is_cut) = first_lines(message, &text, columns);
    if is_cut {
        let _ = writeln!(lines, "{:<6}| …", "");
    }
    Ok(lines)
}

/// Fetches the text of a message, or the beginning of a long one. Returns it sanitized.
async fn fetch_text(client: &Client, id: &str, message: &pb::Message) -> Result<String, Status> {
    let exceeds_excerpt = message.text_bytes > EXCERPT_BYTES;
    let ask = pb::GetMessageRequest {
        conversation_id: id.to_owned(),
        message_id: message.message_id,
        range: exceeds_excerpt.then_some(pb::ByteRange {
            offset: 0,
            length: EXCERPT_BYTES,
        }),
        ..Default::default()
    };
    let found = client.messages().get_message(ask).await?.into_inner();
    let text = if exceeds_excerpt {
        found.text
    } else {
        found
            .message
            .map(|message| message_text(&message))
            .unwrap_or_default()
    };
    Ok(sanitize(&text))
}

/// The text of a message, part by part, without reasoning.
fn message_text(message: &pb::Message) -> String {
    let parts = message
        .parts
        .iter()
        .filter_map(|part| match part.part.as_ref()? {
            Part::Text(part) => Some(part.text.clone()),
            Part::ToolUse(part) => Some(tool_call_line(part)),
            Part::ToolResult(part) => Some(part.text.clone()),
            Part::Media(part) => Some(format!("[{} {}]", part.media_type, clipped(&part.uri, 60))),
            Part::Reasoning(_) => None,
        });
    parts.collect::<Vec<_>>().join("\n\n")
}

/// The first lines of a message, with its role, and the command for the rest.
fn message_lines(message: &pb::Message, text: &str, columns: usize) -> String {
    let (mut lines, is_cut) = first_lines(message, text, columns);
    if is_cut {
        let _ = writeln!(lines, "{:<6}| … (/show {})", "", message.message_id);
    }
    if message.stopped {
        let _ = writeln!(lines, "{:<6}| (stopped before its end)", "");
    }
    lines
}

/// The first lines of a message, with its role, and whether the message has more.
fn first_lines(message: &pb::Message, text: &str, columns: usize) -> (String, bool) {
    let author = match message.role() {
        Role::User => "you",
        Role::Assistant => "model",
        Role::Tool => "tool",
        Role::System | Role::Unspecified => "app",
    };
    let text = text.trim();
    // Eight columns are for the role and the bar before each line. On a screen of fewer than 28
    // columns, the terminal wraps the lines.
    let shown = &text[..screenful(text, MAX_ROWS, columns.saturating_sub(8).max(20))];
    let mut lines = String::new();
    for (index, line) in shown.lines().enumerate() {
        let _ = writeln!(lines, "{:<6}| {line}", if index == 0 { author } else { "" });
    }
    // The text may lack much of the message: only an excerpt was fetched, reasoning was left out,
    // or the input of a tool call was cut. Trimming alone hardly ever halves it.
    let is_cut = shown.len() < text.len()
        || i64::try_from(text.len()).is_ok_and(|bytes| bytes < message.text_bytes / 2);
    if lines.is_empty() && !is_cut {
        let _ = writeln!(lines, "{author:<6}|");
    }
    (lines, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_and_name_the_command_for_the_rest() {
        let message = pb::Message {
            message_id: 7,
            role: Role::Assistant.into(),
            ..Default::default()
        };
        let text = "a line\n".repeat(20);
        let lines = message_lines(&message, &text, 80);
        assert_eq!(lines.lines().count(), MAX_ROWS + 1, "{lines}");
        assert!(
            lines.starts_with("model | a line\n      | a line\n") && lines.ends_with("(/show 7)\n"),
            "{lines}"
        );
        assert_eq!(message_lines(&message, "", 80), "model |\n");
        let stopped = pb::Message {
            stopped: true,
            ..message
        };
        assert_eq!(
            message_lines(&stopped, "Once", 80),
            "model | Once\n      | (stopped before its end)\n"
        );
    }
}
