//! `/context`: how full the context is, its segments, and when the next checkpoint is due.

use std::fmt::Write as _;

use anneal_proto::v1 as pb;
use pb::{Reason, Representation, Segment};

use super::{Chat, errors::ChatError};
use crate::{columns::grouped, terminal_style::bar_lengths, text_format::pluralize};

/// Length of a bar in characters.
const BAR_CHARACTERS: usize = 30;
/// Most message ids that a line lists.
const MAX_LISTED_IDS: usize = 8;

impl Chat {
    pub(super) async fn show_context(&mut self) -> Result<(), ChatError> {
        let conversation_id = self.target.id()?;
        let mut usage = self.fetch_usage(&conversation_id, None).await?;
        if !self.model.is_empty() {
            // The context must fit the window of the model that answered last, or of `--model`
            // before the first answer. The conversation and the server may name others.
            let policy = pb::Policy {
                model: self.model.clone(),
                ..Default::default()
            };
            let by_model = self.fetch_usage(&conversation_id, Some(policy)).await?;
            if by_model.model_window_tokens > 0 {
                (usage.window_tokens, usage.used_share) =
                    (by_model.window_tokens, by_model.used_share);
                usage.model_window_tokens = by_model.model_window_tokens;
            }
        }
        let ask = pb::BuildContextRequest {
            conversation_id,
            dry_run: true,
            ..Default::default()
        };
        let context = self
            .client
            .contexts()
            .build_context(ask)
            .await?
            .into_inner();
        Ok(self.screen.print_page(&page(&usage, &context))?)
    }

    async fn fetch_usage(
        &self,
        conversation_id: &str,
        policy: Option<pb::Policy>,
    ) -> Result<pb::GetContextUsageResponse, ChatError> {
        let ask = pb::GetContextUsageRequest {
            conversation_id: conversation_id.to_owned(),
            policy,
            ..Default::default()
        };
        Ok(self
            .client
            .contexts()
            .get_context_usage(ask)
            .await?
            .into_inner())
    }
}

fn page(usage: &pb::GetContextUsageResponse, context: &pb::BuildContextResponse) -> String {
    let mut page = String::new();
    let approximately = if usage.estimated { "~" } else { "" };
    let window_note = if usage.model_window_tokens == 0 {
        " (the token threshold, because no window is known)"
    } else {
        ""
    };
    let _ = writeln!(
        page,
        "context: {approximately}{} / {} tokens{window_note}\n{} {:.1}%\n",
        grouped(usage.total_tokens),
        grouped(usage.window_tokens),
        bar(usage.used_share),
        100.0 * usage.used_share
    );
    let segment_usage = |wanted: Segment| {
        usage
            .segments
            .iter()
            .find(|segment| segment.segment() == wanted)
            .copied()
    };
    let names = [
        (Segment::SystemPrompt, "system prompt"),
        (Segment::CheckpointSummary, "checkpoint summary"),
        (Segment::Tail, "tail"),
    ];
    let segments = names.map(|(segment, _)| segment_usage(segment).unwrap_or_default());
    let lengths = bar_lengths(&segments.map(|segment| segment.tokens), BAR_CHARACTERS);
    let mut tail = TailBar::default();
    for ((segment, (_, name)), length) in segments.iter().zip(names).zip(lengths) {
        let messages = match segment.segment() {
            Segment::Tail => format!("  {}", pluralize(segment.messages as usize, "message")),
            _ => String::new(),
        };
        segment_line(&mut page, name, segment.tokens, length, &messages);
        // The tail is the last segment.
        tail = TailBar {
            tokens: segment.tokens,
            length,
        };
    }
    tail_lines(&mut page, tail, usage, context);
    next_checkpoint_line(&mut page, usage, context);
    page
}

/// The bar of the tail, of which its parts have their shares.
#[derive(Debug, Clone, Copy, Default)]
struct TailBar {
    tokens: u64,
    /// Characters of the bar.
    length: usize,
}

/// Messages of the tail with their tokens as sent.
struct TailMessages {
    tokens: u64,
    ids: Vec<i64>,
}

/// The tail: its hot messages, its cool messages, those that are sent as their summaries, the
/// provider's framing of all of them, and those that will be sent as summaries.
fn tail_lines(
    page: &mut String,
    tail: TailBar,
    usage: &pb::GetContextUsageResponse,
    context: &pb::BuildContextResponse,
) {
    let entries: Vec<&pb::ManifestEntry> = context
        .manifest
        .iter()
        .filter(|entry| in_tail(entry))
        .collect();
    let select = |is_wanted: fn(&pb::ManifestEntry) -> bool| {
        let wanted: Vec<_> = entries.iter().filter(|entry| is_wanted(entry)).collect();
        TailMessages {
            tokens: wanted.iter().map(|entry| entry.tokens).sum(),
            ids: wanted
                .iter()
                .flat_map(|entry| entry.first_message_id..=entry.last_message_id)
                .collect(),
        }
    };
    let hot = select(|entry| !entry.cool && entry.representation() != Representation::Summary);
    let cool = select(|entry| entry.cool && entry.representation() != Representation::Summary);
    let swapped = select(|entry| entry.representation() == Representation::Summary);
    let messages = hot.tokens + cool.tokens + swapped.tokens;
    let note = |part: &TailMessages| format!("  {}", pluralize(part.ids.len(), "message"));
    let parts = [
        ("  hot", hot.tokens, note(&hot)),
        ("  cool", cool.tokens, note(&cool)),
        ("  summarized", swapped.tokens, note(&swapped)),
        (
            "  framing",
            tail.tokens.saturating_sub(messages),
            String::new(),
        ),
    ];
    let tokens: Vec<u64> = parts.iter().map(|(_, tokens, _)| *tokens).collect();
    for ((name, tokens, note), length) in parts.iter().zip(bar_lengths(&tokens, tail.length)) {
        segment_line(page, name, *tokens, length, note);
    }
    if !swapped.ids.is_empty() {
        let saved = grouped(usage.saved_tokens);
        let _ = writeln!(
            page,
            "  sent as their summaries: {} ({saved} tokens saved; /show ID shows the original)",
            message_list(&swapped.ids)
        );
    }
    let summary_pending = select(|entry| entry.reason() == Reason::SummaryPending);
    if !summary_pending.ids.is_empty() {
        let _ = writeln!(
            page,
            "  summaries pending: {}",
            message_list(&summary_pending.ids)
        );
    }
    let step_pending = select(|entry| entry.reason() == Reason::StepPending);
    if !step_pending.ids.is_empty() {
        let saved = grouped(usage.pending_saved_tokens);
        let _ = writeln!(
            page,
            "  replaced by summaries at the next cooling step: {} (saves {saved} tokens)",
            message_list(&step_pending.ids)
        );
    }
}

/// Says that a checkpoint is due, or else the thresholds at which the next one will be. Of two
/// thresholds, the one that is closer to being reached comes first.
fn next_checkpoint_line(
    page: &mut String,
    usage: &pb::GetContextUsageResponse,
    context: &pb::BuildContextResponse,
) {
    if context.due.is_some() {
        let _ = writeln!(page, "\nnext: a checkpoint is due, and waits for a worker");
        return;
    }
    let tokens = format!(
        "{} tokens (now {})",
        grouped(usage.token_threshold),
        grouped(usage.tail_tokens)
    );
    let messages = format!(
        "{} messages (now {})",
        usage.max_message_count, usage.tail_messages
    );
    let share = |now: u64, most: u64| now as f64 / most.max(1) as f64;
    let by_tokens = share(usage.tail_tokens, usage.token_threshold);
    let by_messages = share(
        usage.tail_messages.unsigned_abs(),
        usage.max_message_count.into(),
    );
    let thresholds = match usage.max_message_count {
        0 => tokens,
        _ if by_messages > by_tokens => format!("{messages}, or {tokens}"),
        _ => format!("{tokens}, or {messages}"),
    };
    let _ = writeln!(page, "\nnext: a checkpoint at {thresholds}");
}

fn segment_line(page: &mut String, name: &str, tokens: u64, length: usize, note: &str) {
    let _ = writeln!(
        page,
        "  {name:<20}{} {:>11}{note}",
        bar_of_length(length),
        grouped(tokens)
    );
}

/// A bar such as `[####------]`. Any share above zero has at least one mark.
fn bar(share: f64) -> String {
    bar_of_length((share * BAR_CHARACTERS as f64).ceil() as usize)
}

/// A bar with this many marks.
fn bar_of_length(marks: usize) -> String {
    let marks = marks.min(BAR_CHARACTERS);
    format!(
        "[{}{}]",
        "#".repeat(marks),
        "-".repeat(BAR_CHARACTERS - marks)
    )
}

/// Whether the messages of the entry are in the tail: after the boundary, and not withdrawn.
fn in_tail(entry: &pb::ManifestEntry) -> bool {
    !matches!(
        entry.representation(),
        Representation::Checkpoint | Representation::BeforeSeparator | Representation::Withdrawn
    )
}

/// `message 3`, or `messages 3, 5, 8 and 4 more`.
fn message_list(ids: &[i64]) -> String {
    let named: Vec<String> = ids
        .iter()
        .take(MAX_LISTED_IDS)
        .map(ToString::to_string)
        .collect();
    let more = if ids.len() > MAX_LISTED_IDS {
        format!(" and {} more", ids.len() - MAX_LISTED_IDS)
    } else {
        String::new()
    };
    let noun = if ids.len() == 1 {
        "message"
    } else {
        "messages"
    };
    format!("{noun} {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_share_above_zero_has_a_mark() {
        let marks = [0.0, 0.007, 0.5, 1.0, 3.0].map(|share| bar(share).matches('#').count());
        assert_eq!(marks, [0, 1, 15, BAR_CHARACTERS, BAR_CHARACTERS]);
        assert!(bar(0.5).chars().count() == BAR_CHARACTERS + 2);
    }

    #[test]
    fn the_page_shows_usage_summaries_and_when_the_next_checkpoint_is_due() {
        let segment = |segment: Segment, tokens, messages| pb::SegmentUsage {
            segment: segment.into(),
            tokens,
            messages,
        };
        let usage = pb::GetContextUsageResponse {
            segments: vec![
                segment(Segment::SystemPrompt, 200, 1),
                segment(Segment::Tail, 1_034, 3),
            ],
            total_tokens: 1_234,
            window_tokens: 180_000,
            used_share: 1_234.0 / 180_000.0,
            model_window_tokens: 180_000,
            saved_tokens: 5_000,
            tail_tokens: 1_034,
            token_threshold: 2_000_000,
            tail_messages: 3,
            max_message_count: 50,
            ..Default::default()
        };
        let entry =
            |id, representation: Representation, reason: Reason, cool, tokens| pb::ManifestEntry {
                first_message_id: id,
                last_message_id: id,
                representation: representation.into(),
                reason: reason.into(),
                tokens,
                cool,
                ..Default::default()
            };
        let manifest = vec![
            entry(1, Representation::Summary, Reason::Cool, true, 34),
            entry(
                2,
                Representation::Original,
                Reason::SummaryPending,
                true,
                600,
            ),
            entry(3, Representation::Original, Reason::Small, false, 400),
        ];
        let context = pb::BuildContextResponse {
            manifest,
            ..Default::default()
        };
        let page = page(&usage, &context);
        let marks = |name: &str| {
            let line = page
                .lines()
                .find(|line| line.trim_start().starts_with(name));
            line.map_or(0, |line| line.matches('#').count())
        };
        assert_eq!(
            marks("system prompt") + marks("tail"),
            BAR_CHARACTERS,
            "{page}"
        );
        assert_eq!(
            marks("hot") + marks("cool") + marks("summarized") + marks("framing"),
            marks("tail"),
            "{page}"
        );
        for words in [
            "context: 1,234 / 180,000 tokens\n[#-----------------------------] 0.7%",
            "sent as their summaries: message 1 (5,000 tokens saved",
            "summaries pending: message 2",
            "next: a checkpoint at 50 messages (now 3), or 2,000,000 tokens (now 1,034)",
        ] {
            assert!(page.contains(words), "{words}\n{page}");
        }
        let due = pb::BuildContextResponse {
            due: Some(pb::CompactPreview::default()),
            ..context
        };
        assert!(super::page(&usage, &due).contains("a checkpoint is due"));
    }
}
