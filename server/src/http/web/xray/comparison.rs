//! A message compared with its extracted summary: which of its lines the summary has literally.

use std::collections::HashSet;

use anneal_proto::v1::{self as pb, part::Part as Content};
use anneal_web::xray::Line;

/// Most lines of a message that are compared with its summary.
const MOST_LINES: usize = 400;

/// Most bytes of these lines.
const MOST_LINE_BYTES: usize = 64 * 1024;

/// Bytes of a line that are shown.
const SHOWN_LINE_BYTES: usize = 4 * 1024;

/// The lines of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Each with whether its summary has it literally.
    pub(super) lines: Vec<Line>,
    /// Lines are cut or missing.
    pub(super) is_cut: bool,
    /// Bytes of these lines that the summary does not have.
    pub(super) left_out_bytes: u64,
}

impl Comparison {
    /// Compares the beginning of a message with its summary.
    pub(super) fn of(stored: &pb::Message, summary: &str) -> Self {
        let kept: HashSet<&str> = summary
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let longest = kept.iter().map(|line| line.len()).max().unwrap_or(0);
        let mut comparison = Self::default();
        let mut bytes = 0;
        for line in stored.parts.iter().filter_map(text).flat_map(str::lines) {
            if comparison.lines.len() == MOST_LINES || bytes >= MOST_LINE_BYTES {
                comparison.is_cut = true;
                break;
            }
            let whole = line.trim();
            let is_kept = whole.len() <= longest && kept.contains(whole);
            if !is_kept {
                comparison.left_out_bytes += line.len() as u64;
            }
            let shown = &line[..line.floor_char_boundary(SHOWN_LINE_BYTES)];
            comparison.is_cut |= shown.len() < line.len();
            bytes += shown.len();
            comparison.lines.push(Line {
                text: shown.to_owned(),
                kept: is_kept,
            });
        }
        comparison
    }
}

/// The text of a part.
fn text(part: &pb::Part) -> Option<&str> {
    match part.part.as_ref()? {
        Content::Text(text) => Some(&text.text),
        Content::ToolResult(result) => Some(&result.text),
        Content::ToolUse(call) => Some(&call.input),
        Content::Reasoning(_) | Content::Media(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> pb::Message {
        let text = pb::TextPart { text: text.into() };
        pb::Message {
            parts: vec![pb::Part {
                part: Some(Content::Text(text)),
            }],
            ..pb::Message::default()
        }
    }

    #[test]
    fn lines_that_a_summary_repeats_are_kept() {
        let compared = Comparison::of(&message("first\n  second\nthird"), "…\nsecond\n");
        let kept: Vec<bool> = compared.lines.iter().map(|line| line.kept).collect();
        assert_eq!(kept, [false, true, false]);
        assert_eq!((compared.left_out_bytes, compared.is_cut), (10, false));
    }

    #[test]
    fn a_long_message_and_a_long_line_are_cut_and_it_is_said() {
        let compared = Comparison::of(&message(&"a line\n".repeat(1_000_000)), "a line");
        assert_eq!((compared.lines.len(), compared.is_cut), (MOST_LINES, true));
        let compared = Comparison::of(&message(&"ü".repeat(1_000_000)), "u");
        assert_eq!(compared.lines[0].text.len(), SHOWN_LINE_BYTES);
        assert!(compared.is_cut);
        let long = format!("{}\n", "x".repeat(SHOWN_LINE_BYTES)).repeat(100);
        let compared = Comparison::of(&message(&long), "x");
        assert_eq!(compared.lines.len() * SHOWN_LINE_BYTES, MOST_LINE_BYTES);
        assert!(compared.is_cut);
    }
}
