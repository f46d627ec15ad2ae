//! The page of a context: a bar per segment, the stored messages that are large or not sent as they
//! are, and then each message to send, on a line or in full.

use std::{collections::HashMap, fmt::Write as _};

use anneal_proto::v1 as pb;
use pb::{BoundaryKind, Reason, Representation, Segment, part::Part};

use super::role;
use crate::{
    columns::clipped,
    sanitize::sanitize,
    terminal_style::{Bar, TerminalStyle},
    text_format::pluralize,
};

/// Most columns of a message's text in the outline.
const MAX_TEXT_COLUMNS: usize = 72;
/// Fewest columns of a message's text in the outline.
const MIN_TEXT_COLUMNS: usize = 16;
/// Columns of the outline before a message's text.
const FIGURE_COLUMNS: usize = 42;

/// How much of each text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextLength {
    /// The beginning, on one line.
    FirstLine,
    /// The whole text.
    Full,
}

pub(super) struct Page<'a> {
    pub(super) conversation: &'a pb::Conversation,
    pub(super) context: &'a pb::BuildContextResponse,
    pub(super) text_length: TextLength,
    pub(super) style: TerminalStyle,
    /// Columns of a line of the outline.
    pub(super) columns: usize,
}

impl Page<'_> {
    pub(super) fn text(&self) -> String {
        let mut page = page_head(self.conversation, self.context, self.style);
        self.segments(&mut page);
        self.manifest(&mut page);
        self.messages(&mut page);
        page
    }

    /// A bar per segment. The tail has one bar each for hot, cool and summarized messages.
    fn segments(&self, page: &mut String) {
        // For each bar: name, tokens and the terminal's color code.
        let mut rows: Vec<(&str, u64, &str)> = Vec::new();
        let segment_tokens = |segment: Segment| {
            self.context
                .messages
                .iter()
                .filter(move |m| m.segment() == segment)
                .map(|m| m.tokens)
                .sum::<u64>()
        };
        rows.push(("system prompt", segment_tokens(Segment::SystemPrompt), "35"));
        rows.push((
            "checkpoint",
            segment_tokens(Segment::CheckpointSummary),
            "34",
        ));
        let tail_tokens = |wanted: fn(&pb::ManifestEntry) -> bool| {
            let entries = self
                .context
                .manifest
                .iter()
                .filter(|entry| in_tail(entry) && wanted(entry));
            entries.map(|entry| entry.tokens).sum::<u64>()
        };
        rows.push((
            "tail, hot",
            tail_tokens(|entry| !entry.cool && entry.representation() != Representation::Summary),
            "31",
        ));
        rows.push((
            "tail, cool",
            tail_tokens(|entry| entry.cool && entry.representation() != Representation::Summary),
            "36",
        ));
        rows.push((
            "tail, summaries",
            tail_tokens(|entry| entry.representation() == Representation::Summary),
            "32",
        ));
        rows.push(("current input", segment_tokens(Segment::CurrentInput), "33"));
        // The manifest counts messages without the provider's framing and without what repairs add.
        let listed: u64 = rows.iter().map(|(_, tokens, _)| tokens).sum();
        rows.push((
            "framing, repairs",
            self.context.total_tokens.saturating_sub(listed),
            "90",
        ));
        let bars: Vec<Bar<'_>> = rows
            .into_iter()
            .map(|(name, tokens, color)| Bar {
                name,
                tokens,
                color,
                note: String::new(),
            })
            .collect();
        page.push_str(&self.style.bars(&bars));
        page.push('\n');
    }

    /// The messages that are large, or sent changed, or not sent, and what happens to each.
    /// Consecutive messages with the same description share a line.
    fn manifest(&self, page: &mut String) {
        let mut runs: Vec<(i64, i64, String)> = Vec::new();
        for entry in self
            .context
            .manifest
            .iter()
            .filter(|entry| !is_small_original(entry))
        {
            let text = representation_text(entry);
            match runs.last_mut() {
                Some((_, last, last_text))
                    if *last_text == text && *last + 1 == entry.first_message_id =>
                {
                    *last = entry.last_message_id;
                }
                _ => runs.push((entry.first_message_id, entry.last_message_id, text)),
            }
        }
        for (first, last, text) in runs {
            let ids = if first == last {
                format!("message {first}")
            } else {
                format!("messages {first} to {last}")
            };
            let _ = writeln!(page, "  {ids} {text}");
        }
        if !self.context.repairs.is_empty() {
            let _ = writeln!(
                page,
                "  {} for the provider's sake",
                pluralize(self.context.repairs.len(), "repair")
            );
        }
        page.push('\n');
    }

    fn messages(&self, page: &mut String) {
        let entries: HashMap<i64, &pb::ManifestEntry> = self
            .context
            .manifest
            .iter()
            .map(|entry| (entry.first_message_id, entry))
            .collect();
        let text_columns = self
            .columns
            .saturating_sub(FIGURE_COLUMNS)
            .clamp(MIN_TEXT_COLUMNS, MAX_TEXT_COLUMNS);
        for message in &self.context.messages {
            let ids: Vec<String> = message
                .message_ids
                .iter()
                .map(ToString::to_string)
                .collect();
            let entry = message.message_ids.first().and_then(|id| entries.get(id));
            let state = match (message.segment(), entry) {
                (Segment::SystemPrompt, _) => "system prompt",
                (Segment::CheckpointSummary, _) => "checkpoint",
                (_, Some(entry)) if entry.representation() == Representation::Summary => "summary",
                (_, Some(entry)) if entry.representation() == Representation::Clipped => "clipped",
                (_, Some(entry)) if entry.cool => "cool",
                (Segment::CurrentInput, _) => "input",
                (_, Some(_)) => "hot",
                _ => "added",
            };
            let ids = if ids.is_empty() {
                "-".to_owned()
            } else {
                ids.join("+")
            };
            let texts = part_texts(message);
            if self.text_length == TextLength::Full {
                let _ = writeln!(
                    page,
                    "{}",
                    self.style.bold(&format!(
                        "── {ids} {} {state} {}",
                        role(message.role),
                        message.tokens
                    ))
                );
                let _ = writeln!(page, "{}\n", texts.join("\n\n"));
            } else {
                let line = clipped(&texts.join(" "), text_columns);
                let _ = writeln!(
                    page,
                    "  {ids:>6} {:<9} {state:<13} {:>7}  {line}",
                    role(message.role),
                    message.tokens
                );
            }
        }
    }
}

/// The first lines of a page: title, figures, and where the context starts.
pub(super) fn page_head(
    conversation: &pb::Conversation,
    context: &pb::BuildContextResponse,
    style: TerminalStyle,
) -> String {
    let mut page = String::new();
    let title = if conversation.title.is_empty() {
        "(no title)".into()
    } else {
        sanitize(&conversation.title)
    };
    let _ = writeln!(
        page,
        "\n{}  {}",
        style.bold(&title),
        conversation.conversation_id
    );
    let stored = conversation.token_total.unwrap_or_default().tokens;
    let estimated = if context.estimated {
        ", some estimated"
    } else {
        ""
    };
    let _ = writeln!(
        page,
        "{} messages, {stored} tokens stored; {} tokens to send{estimated}; turn {}",
        conversation.message_count, context.total_tokens, context.current_turn
    );
    let boundary = match context.boundary_kind() {
        BoundaryKind::Unspecified => "starts at the first message".to_owned(),
        BoundaryKind::Separator => format!(
            "starts after the separator at {}",
            context.boundary_message_id
        ),
        BoundaryKind::Checkpoint => format!(
            "starts after the checkpoint at {}",
            context.boundary_message_id
        ),
    };
    let _ = writeln!(page, "the context {boundary}\n");
    page
}

/// How the context represents messages that are large, sent changed, or not sent.
fn representation_text(entry: &pb::ManifestEntry) -> String {
    let (tokens, original) = (entry.tokens, entry.original_tokens);
    match entry.representation() {
        Representation::Summary => format!("as its summary: {tokens} instead of {original} tokens"),
        Representation::Checkpoint if entry.reason() == Reason::Pressure => {
            format!("in a summary made for this call: {tokens} tokens")
        }
        Representation::Checkpoint => format!("in the checkpoint: {tokens} tokens"),
        Representation::BeforeSeparator => "before the separator: not sent".into(),
        Representation::Clipped => format!("clipped to {tokens} of {original} tokens"),
        Representation::Dropped if entry.reason() == Reason::ContentLimit => {
            "dropped: newer messages fill what one context reads".into()
        }
        Representation::Dropped => "dropped to fit the budget".into(),
        Representation::Repaired if entry.reason() == Reason::Repeated => {
            "left out: the user repeated it directly after".into()
        }
        Representation::Repaired => "left out: a provider would refuse it".into(),
        Representation::Withdrawn => "withdrawn or erased: not sent".into(),
        Representation::Original | Representation::Unspecified => match entry.reason() {
            Reason::Hot => format!("large ({original} tokens) but hot: as stored"),
            Reason::StepPending => {
                format!("large ({original} tokens) and cool: as stored until the next cooling step")
            }
            _ => format!("large ({original} tokens) and cool, its summary is not ready"),
        },
    }
}

fn in_tail(entry: &pb::ManifestEntry) -> bool {
    !matches!(
        entry.representation(),
        Representation::Checkpoint | Representation::BeforeSeparator
    )
}

fn is_small_original(entry: &pb::ManifestEntry) -> bool {
    entry.representation() == Representation::Original && entry.reason() == Reason::Small
}

/// The parts of a message as text, sanitized.
fn part_texts(message: &pb::ContextMessage) -> Vec<String> {
    let parts = message.parts.iter().filter_map(|part| part.part.as_ref());
    parts
        .map(|part| match part {
            Part::Text(part) => part.text.clone(),
            Part::ToolUse(part) => format!("→ {} {}", part.name, part.input),
            Part::ToolResult(part) => format!("← {}", part.text),
            Part::Media(part) => format!("[{} {}]", part.media_type, part.uri),
            Part::Reasoning(part) => format!("({})", part.text),
        })
        .map(|text| sanitize(&text))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(representation: Representation, reason: Reason) -> pb::ManifestEntry {
        pb::ManifestEntry {
            first_message_id: 1,
            last_message_id: 1,
            representation: representation.into(),
            reason: reason.into(),
            tokens: 10,
            ..Default::default()
        }
    }

    #[test]
    fn a_message_that_is_not_sent_has_its_own_reason() {
        for (representation, reason, text) in [
            (
                Representation::Dropped,
                Reason::Budget,
                "dropped to fit the budget",
            ),
            (
                Representation::Dropped,
                Reason::ContentLimit,
                "dropped: newer messages fill what one context reads",
            ),
            (
                Representation::Repaired,
                Reason::ResultWithoutCall,
                "left out: a provider would refuse it",
            ),
            (
                Representation::Repaired,
                Reason::Repeated,
                "left out: the user repeated it directly after",
            ),
            (
                Representation::Withdrawn,
                Reason::Withdrawn,
                "withdrawn or erased: not sent",
            ),
        ] {
            assert_eq!(representation_text(&entry(representation, reason)), text);
        }
    }

    #[test]
    fn a_hot_message_that_is_sent_as_its_summary_counts_only_as_a_summary() {
        let context = pb::BuildContextResponse {
            manifest: vec![
                entry(Representation::Original, Reason::Small),
                entry(Representation::Summary, Reason::Cool),
            ],
            total_tokens: 28,
            ..Default::default()
        };
        let page = Page {
            conversation: &pb::Conversation::default(),
            context: &context,
            text_length: TextLength::FirstLine,
            style: TerminalStyle::Plain,
            columns: 80,
        };
        let mut bars = String::new();
        page.segments(&mut bars);
        let tokens = |name: &str| {
            let line = bars.lines().find(|line| line.contains(name));
            line.and_then(|line| line.split_whitespace().next_back())
        };
        assert_eq!(tokens("tail, hot"), Some("10"), "{bars}");
        assert_eq!(tokens("tail, summaries"), Some("10"), "{bars}");
        assert_eq!(
            tokens("framing, repairs"),
            Some("8"),
            "the rows add up to the total: {bars}"
        );
    }
}
