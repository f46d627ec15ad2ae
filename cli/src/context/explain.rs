//! `--explain`: for each message, how it is sent and why; then repairs, the provider's cache, the
//! due checkpoint and the total.

use std::fmt::Write as _;

use anneal_proto::v1 as pb;
use pb::{BreakReason, Reason, RepairKind, Representation};

use super::page::page_head;
use crate::{
    compact,
    sanitize::sanitize,
    terminal_style::TerminalStyle,
    text_format::{pluralize, wrap},
};

/// Bytes of a hash that are shown, as hex digits.
const HASH_BYTES: usize = 6;

/// The explanation of a context, as a page.
pub(super) fn explanation(
    conversation: &pb::Conversation,
    context: &pb::BuildContextResponse,
    style: TerminalStyle,
) -> String {
    let mut page = page_head(conversation, context, style);
    write_messages(&mut page, context, style);
    write_repairs(&mut page, context, style);
    write_prefix(&mut page, context, style);
    write_due_checkpoint(&mut page, context, style);
    write_total(&mut page, context, style);
    page
}

/// Consecutive entries of the manifest that share a line, because their messages are sent in the
/// same way for the same reason; or one entry that has a line of its own.
struct Run<'a> {
    /// Id of the first message.
    first: i64,
    /// Id of the last message.
    last: i64,
    /// Tokens of all messages as sent.
    tokens: u64,
    /// Tokens of all messages as stored.
    original_tokens: u64,
    /// The first entry.
    entry: &'a pb::ManifestEntry,
}

fn write_messages(page: &mut String, context: &pb::BuildContextResponse, style: TerminalStyle) {
    let _ = writeln!(page, "{}", style.bold("messages"));
    if context.manifest.is_empty() {
        page.push_str("  none are stored\n");
    }
    for run in runs(&context.manifest) {
        let ids = if run.first == run.last {
            run.first.to_string()
        } else {
            format!("{}-{}", run.first, run.last)
        };
        let tokens = if run.original_tokens == 0 || run.original_tokens == run.tokens {
            run.tokens.to_string()
        } else {
            format!("{} -> {}", run.original_tokens, run.tokens)
        };
        let heat = match run.entry.representation() {
            Representation::Checkpoint
            | Representation::BeforeSeparator
            | Representation::Withdrawn => "",
            _ if run.entry.cool => "cool",
            _ => "hot",
        };
        let (sent, why) = (sent_as(run.entry.representation()), why(run.entry.reason()));
        let _ = writeln!(
            page,
            "  {ids:>11}  {sent:<14}  {heat:<4}  {tokens:>16}  {why}"
        );
        for range in &run.entry.clipped {
            let (id, offset, length) = (run.first, range.offset, range.length);
            let _ = writeln!(
                page,
                "{:15}left out: GetMessage {{\"message_id\":{id},\"range\":{{\"offset\":{offset},\"length\":{length}}}}}",
                ""
            );
        }
    }
    page.push('\n');
}

fn runs(manifest: &[pb::ManifestEntry]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for entry in manifest {
        match runs.last_mut() {
            Some(run) if run.includes(entry) => {
                run.last = entry.last_message_id;
                run.tokens += entry.tokens;
                run.original_tokens += entry.original_tokens;
            }
            _ => runs.push(Run {
                first: entry.first_message_id,
                last: entry.last_message_id,
                tokens: entry.tokens,
                original_tokens: entry.original_tokens,
                entry,
            }),
        }
    }
    runs
}

impl Run<'_> {
    /// Whether the entry belongs on the same line. Large and clipped messages have their own lines.
    fn includes(&self, entry: &pb::ManifestEntry) -> bool {
        let columns = |one: &pb::ManifestEntry| (one.representation(), one.reason(), one.cool);
        let may_share_line = match entry.representation() {
            Representation::Original => entry.reason() == Reason::Small,
            Representation::Dropped | Representation::Repaired => true,
            _ => false,
        };
        may_share_line && columns(self.entry) == columns(entry)
    }
}

const fn sent_as(representation: Representation) -> &'static str {
    match representation {
        Representation::Original => "as stored",
        Representation::Summary => "its summary",
        Representation::Checkpoint => "in a summary",
        Representation::BeforeSeparator | Representation::Dropped | Representation::Withdrawn => {
            "not sent"
        }
        Representation::Clipped => "clipped",
        Representation::Repaired => "left out",
        Representation::Unspecified => "?",
    }
}

const fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Small => "not large",
        Reason::Hot => "large, too recent to be swapped",
        Reason::SummaryPending => "large and cool, its summary is not ready",
        Reason::Cool => "large, cool and summarized",
        Reason::StepPending => "large and cool: swapped with the next step",
        Reason::Checkpointed => "covered by the checkpoint",
        Reason::Separated => "a separator stands after it",
        Reason::Budget => "to fit the budget",
        Reason::ResultWithoutCall => "a tool's result without a call",
        Reason::Empty => "nothing of it is left to send",
        Reason::Pressure => "because the model refused a longer context",
        Reason::Repeated => "the user repeated it directly after",
        Reason::ContentLimit => "newer messages fill what one context reads",
        Reason::Withdrawn => "withdrawn or erased",
        Reason::Unspecified => "?",
    }
}

/// One paragraph per kind of repair: what was done, and at which messages.
fn write_repairs(page: &mut String, context: &pb::BuildContextResponse, style: TerminalStyle) {
    if context.repairs.is_empty() {
        return;
    }
    let mut kinds: Vec<(RepairKind, Vec<String>)> = Vec::new();
    for repair in &context.repairs {
        let place = place(repair);
        match kinds.iter_mut().find(|(kind, _)| *kind == repair.kind()) {
            Some((_, places)) => places.push(place),
            None => kinds.push((repair.kind(), vec![place])),
        }
    }
    let _ = writeln!(
        page,
        "{}",
        style.bold(&pluralize(context.repairs.len(), "repair"))
    );
    for (kind, places) in kinds {
        page.push_str(&wrap(&format!(
            "{}: {}",
            repair_text(kind),
            places.join(", ")
        )));
    }
    page.push('\n');
}

/// Where a repair was made: at which message and which tool call.
fn place(repair: &pb::Repair) -> String {
    let call = sanitize(&repair.tool_use_id);
    match (repair.message_id, repair.kind()) {
        (0, RepairKind::UserAdded) => "once".to_owned(),
        (0, _) if call.is_empty() => "the input".to_owned(),
        (0, _) => format!("call {call} of the input"),
        (id, _) if call.is_empty() => id.to_string(),
        (id, _) => format!("{id} (call {call})"),
    }
}

const fn repair_text(kind: RepairKind) -> &'static str {
    match kind {
        RepairKind::Merged => "joined to the message before, which has the same role",
        RepairKind::ResultAdded => "a call without a result got a synthetic one",
        RepairKind::ResultDropped => "a result without a call was left out",
        RepairKind::EmptyDropped => "an empty message was left out",
        RepairKind::ResultMoved => "a result that came late was moved up to its call",
        RepairKind::RepeatFolded => "a message repeated after a failed turn was sent once",
        RepairKind::UserAdded => "a user message was added where the provider wants one",
        RepairKind::RoleChanged => "a message of the application got the role user, and is marked",
        RepairKind::IdChanged => "a call and its result got an id that the provider accepts",
        RepairKind::InputWrapped => "a call's input that is no JSON object was put into one",
        RepairKind::ReasoningDropped => "reasoning that the provider would not accept was left out",
        RepairKind::MediaDescribed => {
            "media that the provider does not accept there are described in words"
        }
        RepairKind::NameChanged => "a tool got a name that the provider accepts",
        RepairKind::TextAdded => "a failed result without a text got one",
        RepairKind::Unspecified => "?",
    }
}

/// How much of the context the provider's cache should hold, and what broke the cached prefix.
fn write_prefix(page: &mut String, context: &pb::BuildContextResponse, style: TerminalStyle) {
    let hash = &context.prefix_hash;
    let hash = hex::encode(&hash[..hash.len().min(HASH_BYTES)]);
    let stable = match context.prefix_stable_until {
        0 => "no earlier call is known to have sent the same".to_owned(),
        id => format!("the last call sent the same up to message {id}"),
    };
    let _ = writeln!(page, "{}\n  hash {hash}; {stable}", style.bold("beginning"));
    let _ = writeln!(
        page,
        "  the provider's cache should hold {} of {} tokens",
        context.expected_cached_tokens, context.total_tokens
    );
    if let Some(broken) = &context.cache_break {
        let at = match broken.at_message_id {
            0 => "everything".to_owned(),
            id => format!("message {id} and what follows"),
        };
        let _ = writeln!(
            page,
            "  broken: {}; {at} is sent anew",
            break_cause(broken.reason())
        );
        let saving = match (broken.saved_tokens_per_call, broken.pays_back_after_calls) {
            (0, _) => String::new(),
            (saved, calls) => {
                format!(
                    "; saves {saved} in each call, pays back after {}",
                    pluralize(calls as usize, "call")
                )
            }
        };
        let _ = writeln!(
            page,
            "  {} tokens are written to the cache again{saving}",
            broken.rewritten_tokens
        );
    }
    page.push('\n');
}

const fn break_cause(reason: BreakReason) -> &'static str {
    match reason {
        BreakReason::Checkpoint => "a checkpoint has moved the boundary",
        BreakReason::Separator => "a separator was inserted or deleted",
        BreakReason::SystemPrompt => "the system prompt has changed",
        BreakReason::Swap => "cool large messages were replaced by their summaries",
        BreakReason::Budget => "budget or pressure cut other messages than before",
        BreakReason::Repair => "a late result replaced a synthetic one",
        BreakReason::Idle => "the last model call is too long ago",
        BreakReason::Edit => "a message was edited",
        BreakReason::Withdrawal => "messages were withdrawn or restored",
        BreakReason::Erasure => "messages were erased",
        BreakReason::Model => "the context is for another model",
        BreakReason::Tools => "other tools are declared",
        BreakReason::Options => "the options of the request have changed",
        BreakReason::Unspecified => "?",
    }
}

fn write_due_checkpoint(
    page: &mut String,
    context: &pb::BuildContextResponse,
    style: TerminalStyle,
) {
    let _ = writeln!(page, "{}", style.bold("due"));
    match &context.due {
        Some(preview) => page.push_str(&compact::preview_text(preview)),
        None => page.push_str("  nothing\n"),
    }
    page.push('\n');
}

fn write_total(page: &mut String, context: &pb::BuildContextResponse, style: TerminalStyle) {
    let estimated = if context.estimated {
        ", some estimated"
    } else {
        ""
    };
    let model = match context.model_tokens {
        0 => "unknown in the model's own tokens".to_owned(),
        tokens => format!("about {tokens} in the model's own tokens"),
    };
    let _ = writeln!(
        page,
        "{}\n  {} tokens{estimated}; {model}",
        style.bold("total"),
        context.total_tokens
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: i64, representation: Representation, reason: Reason) -> pb::ManifestEntry {
        pb::ManifestEntry {
            first_message_id: id,
            last_message_id: id,
            representation: representation.into(),
            reason: reason.into(),
            tokens: 10,
            original_tokens: 10,
            ..Default::default()
        }
    }

    #[test]
    fn small_consecutive_messages_share_a_line_and_large_ones_do_not() {
        let small = |id| entry(id, Representation::Original, Reason::Small);
        let hot = |id| entry(id, Representation::Original, Reason::Hot);
        let manifest = [
            small(1),
            small(2),
            hot(3),
            hot(4),
            pb::ManifestEntry {
                cool: true,
                ..small(5)
            },
            small(6),
        ];
        let lines: Vec<(i64, i64, u64)> = runs(&manifest)
            .iter()
            .map(|run| (run.first, run.last, run.tokens))
            .collect();
        assert_eq!(
            lines,
            [(1, 2, 20), (3, 3, 10), (4, 4, 10), (5, 5, 10), (6, 6, 10)]
        );
    }

    #[test]
    fn every_reason_has_a_text_that_fits_its_column_and_every_repair_has_a_text() {
        let reasons = (0..64)
            .filter_map(|number| Reason::try_from(number).ok())
            .skip(1);
        assert!(
            reasons
                .map(why)
                .all(|words| words.len() > 2 && words.len() <= 44),
            "a text is missing, or longer than the 44 characters that keep its line below 100"
        );
        let kinds = (0..64)
            .filter_map(|number| RepairKind::try_from(number).ok())
            .skip(1);
        assert!(kinds.map(repair_text).all(|words| words.len() > 2));
    }
}
