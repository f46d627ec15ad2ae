//! What providers refuse, mended on the way out: calls without results, results without calls, empty messages, and
//! messages of one role in a row. Storage is untouched; every change is reported.

use std::collections::{HashMap, HashSet};

use super::{Draft, Entry, Reason, Repair, RepairKind, Representation, Segment};
use crate::{
    message::{MessageId, PART_JOIN, Part, Role},
    tokens::{Tokens, count_parts},
};

/// What a call is answered with when nobody has answered it.
const NO_RESULT: &str = "[no result]";

/// Brings every call together with exactly one result, directly after it.
///
/// Results that came late move up to their call; calls without a result get a synthetic one; results without a call and
/// second results to one call are left out.
pub(super) fn pair_tools(draft: &mut Draft) {
    drop_empty(draft);
    let late = take_unplaced_results(draft);
    answer_calls(draft, late);
}

/// A result taken from its place, with the turn and message it came from.
struct Taken {
    part: Part,
    message: Option<MessageId>,
    segment: Segment,
    turn: i32,
}

/// Takes out every result that does not directly follow its call: those that have a call before them are given back by
/// call (to be moved), the others are gone.
fn take_unplaced_results(draft: &mut Draft) -> HashMap<String, Taken> {
    let mut open: HashSet<String> = HashSet::new();
    let mut expected: HashSet<String> = HashSet::new();
    let mut late: HashMap<String, Taken> = HashMap::new();
    let mut dropped: Vec<Repair> = Vec::new();
    let mut shrunk: Vec<(Option<MessageId>, Tokens)> = Vec::new();
    let encoding = draft.encoding;
    for entry in &mut draft.entries {
        if entry.role != Role::Tool {
            expected.clear();
            for part in &entry.parts {
                if let Part::ToolUse { id, .. } = part {
                    open.insert(id.clone());
                    late.remove(id);
                    expected.insert(id.clone());
                }
            }
            continue;
        }
        let before = entry.parts.len();
        let mut kept = Vec::with_capacity(before);
        for part in std::mem::take(&mut entry.parts) {
            let Part::ToolResult { id, .. } = &part else {
                kept.push(part);
                continue;
            };
            let call = id.clone();
            let known = open.remove(&call);
            if expected.remove(&call) {
                kept.push(part);
            } else if known {
                let taken = Taken { part, message: entry.message(), segment: entry.segment, turn: entry.turn };
                late.insert(call, taken);
            } else {
                dropped.push(Repair { kind: RepairKind::ResultDropped, message: entry.message(), call });
            }
        }
        entry.parts = kept;
        if entry.parts.len() != before {
            entry.tokens = count_parts(encoding, &entry.parts);
        }
        if dropped.last().is_some_and(|repair| repair.message == entry.message()) {
            shrunk.push((entry.message(), entry.tokens));
        }
    }
    draft.repairs.extend(dropped);
    for (message, tokens) in shrunk {
        if let Some(line) = message.and_then(|id| draft.fate(id)) {
            line.representation = Representation::Repaired;
            line.reason = Reason::ResultWithoutCall;
            line.tokens = tokens;
        }
    }
    draft.entries.retain(|entry| !entry.parts.is_empty());
    late
}

/// After every message with calls: the results that are missing there, moved up or synthetic.
fn answer_calls(draft: &mut Draft, mut late: HashMap<String, Taken>) {
    let entries = std::mem::take(&mut draft.entries);
    let mut mended: Vec<Entry> = Vec::with_capacity(entries.len());
    let mut waiting: Vec<String> = Vec::new();
    for entry in entries {
        if entry.role == Role::Tool {
            for part in &entry.parts {
                if let Part::ToolResult { id, .. } = part {
                    waiting.retain(|call| call != id);
                }
            }
        } else {
            settle(draft, &mut mended, &mut waiting, &mut late);
            waiting.extend(entry.parts.iter().filter_map(|part| match part {
                Part::ToolUse { id, .. } => Some(id.clone()),
                _ => None,
            }));
        }
        mended.push(entry);
    }
    settle(draft, &mut mended, &mut waiting, &mut late);
    draft.entries = mended;
}

/// Gives every waiting call its result.
fn settle(draft: &mut Draft, mended: &mut Vec<Entry>, waiting: &mut Vec<String>, late: &mut HashMap<String, Taken>) {
    for call in waiting.drain(..) {
        let caller = mended.iter().rev().find(|entry| entry.role == Role::Assistant);
        let (turn, segment, message) =
            caller.map_or((0, Segment::Tail, None), |entry| (entry.turn, entry.segment, entry.message()));
        let (kind, taken) = late.remove(&call).map_or_else(
            || (RepairKind::ResultAdded, Taken { part: no_result(&call), message: None, segment, turn }),
            |taken| (RepairKind::ResultMoved, taken),
        );
        draft.repairs.push(Repair { kind, message: taken.message.or(message), call });
        let mut entry = Entry {
            segment: taken.segment,
            role: Role::Tool,
            parts: vec![taken.part],
            ids: taken.message.into_iter().collect(),
            turn: taken.turn.min(turn),
            tokens: Tokens::ZERO,
            framings: 1,
            estimated: false,
            original: kind == RepairKind::ResultMoved,
        };
        entry.tokens = count_parts(draft.encoding, &entry.parts);
        mended.push(entry);
    }
}

fn no_result(call: &str) -> Part {
    Part::ToolResult { id: call.to_owned(), text: NO_RESULT.into(), is_error: true, media: Vec::new() }
}

/// Leaves out messages in which nothing can be sent.
fn drop_empty(draft: &mut Draft) {
    let said = |part: &Part| match part {
        Part::Text { text } => !text.is_empty(),
        Part::Reasoning { text, signature } => !text.is_empty() || !signature.is_empty(),
        Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Media(_) => true,
    };
    let mut gone = Vec::new();
    for entry in &mut draft.entries {
        entry.parts.retain(said);
        if entry.parts.is_empty() {
            gone.push(entry.message());
        }
    }
    draft.entries.retain(|entry| !entry.parts.is_empty());
    for message in gone {
        if let Some(line) = message.and_then(|id| draft.fate(id)) {
            line.representation = Representation::Repaired;
            line.reason = Reason::Empty;
            line.tokens = Tokens::ZERO;
        }
        draft.repairs.push(Repair { kind: RepairKind::EmptyDropped, message, call: String::new() });
    }
}

/// Joins user messages in a row, and assistant messages in a row, with a blank line between texts that meet.
///
/// The checkpoint's summary and the system prompt stay by themselves: they are constant, and caches depend on it.
/// An assistant message with calls takes nothing more: its results follow.
pub(super) fn merge(draft: &mut Draft) {
    let entries = std::mem::take(&mut draft.entries);
    for entry in entries {
        match draft.entries.last_mut() {
            Some(before) if may_join(before, &entry) => {
                draft.repairs.push(Repair { kind: RepairKind::Merged, message: entry.message(), call: String::new() });
                join(before, entry);
            }
            _ => draft.entries.push(entry),
        }
    }
}

fn may_join(before: &Entry, entry: &Entry) -> bool {
    before.role == entry.role
        && matches!(entry.role, Role::User | Role::Assistant)
        && before.is_spoken()
        && entry.is_spoken()
        && !before.parts.iter().any(|part| matches!(part, Part::ToolUse { .. }))
}

fn join(before: &mut Entry, entry: Entry) {
    before.segment = entry.segment;
    before.ids.extend(entry.ids);
    before.tokens += entry.tokens;
    before.framings += entry.framings;
    before.estimated |= entry.estimated;
    let mut parts = entry.parts.into_iter().peekable();
    if let (Some(Part::Text { text }), Some(Part::Text { .. })) = (before.parts.last_mut(), parts.peek())
        && let Some(Part::Text { text: next }) = parts.next()
    {
        text.push_str(PART_JOIN);
        text.push_str(&next);
    }
    before.parts.extend(parts);
}
