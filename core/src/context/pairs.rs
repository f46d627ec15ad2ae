//! Calls and their results, brought together: every call is followed by exactly one result, and every result by none
//! but its own call.

use std::collections::HashMap;

use super::{Draft, Entry, Reason, RepairKind, Representation, Segment, entry::Origin};
use crate::{
    message::{MessageId, Part, Role},
    tokens::{Tokens, count_parts},
};

/// What a call is answered with when nobody has answered it.
const NO_RESULT: &str = "[no result]";

/// Brings every call together with exactly one result, directly after it.
///
/// Results that came late move up to their call; calls without a result get a synthetic one; results without a call and
/// second results to one call are left out. A result belongs to the newest call of its id that still has none.
pub(super) fn pair_tools(draft: &mut Draft) {
    let plan = plan(&draft.entries);
    if plan.calls == 0 && plan.places.is_empty() {
        return;
    }
    let late = take_unplaced(draft, &plan);
    answer_calls(draft, late, &plan);
    // A budget drops whole turns: a result goes with its call, also where a message between them was left out.
    let mut turn = 0;
    for entry in &mut draft.entries {
        match entry.role {
            Role::Tool => entry.turn = turn,
            Role::User | Role::Assistant | Role::System => turn = entry.turn,
        }
    }
}

/// Where a result belongs.
#[derive(Clone, Copy)]
enum Place {
    /// Where it stands, directly after its call.
    Here,
    /// Up, to the call of this number.
    Up(usize),
    /// Nowhere: it answers no call.
    Nowhere,
}

/// What was found in one pass over the entries.
struct Plan {
    /// Number of calls; they are numbered in their order.
    calls: usize,
    /// Calls that have their result directly after them.
    answered: Vec<bool>,
    /// Where each result belongs, in their order.
    places: Vec<Place>,
}

fn plan(entries: &[Entry]) -> Plan {
    /// A call that waits: the entry it is in, and its number.
    type Waiting = (usize, usize);
    let mut waiting: HashMap<&str, Vec<Waiting>> = HashMap::new();
    let mut plan = Plan { calls: 0, answered: Vec::new(), places: Vec::new() };
    let mut speaker = 0;
    for (index, entry) in entries.iter().enumerate() {
        if entry.role != Role::Tool {
            speaker = index;
        }
        for part in &entry.parts {
            match part {
                Part::ToolUse { id, .. } => {
                    waiting.entry(id).or_default().push((index, plan.calls));
                    plan.answered.push(false);
                    plan.calls += 1;
                }
                Part::ToolResult { id, .. } => {
                    let place = waiting.get_mut(id.as_str()).and_then(|calls| {
                        let newest = calls.last()?.0;
                        let first = calls.iter().rposition(|(entry, _)| *entry != newest).map_or(0, |older| older + 1);
                        let (entry, call) = calls.remove(first);
                        plan.answered[call] = entry == speaker;
                        Some(if entry == speaker { Place::Here } else { Place::Up(call) })
                    });
                    plan.places.push(place.unwrap_or(Place::Nowhere));
                }
                Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => {}
            }
        }
    }
    plan
}

/// A result taken from its place, with the message it came from.
struct Taken {
    part: Part,
    origin: Origin,
    message: Option<MessageId>,
    segment: Segment,
    estimated: bool,
}

/// Takes out every result that does not directly follow its call. Those that answer a call come back, by its number;
/// the others are gone.
fn take_unplaced(draft: &mut Draft, plan: &Plan) -> HashMap<usize, Taken> {
    let mut late: HashMap<usize, Taken> = HashMap::new();
    let mut places = plan.places.iter().copied();
    let mut gone: Vec<(Option<MessageId>, String, Tokens)> = Vec::new();
    let encoding = draft.encoding;
    for entry in &mut draft.entries {
        let results = entry.parts.iter().filter(|part| matches!(part, Part::ToolResult { .. })).count();
        let places: Vec<Place> = places.by_ref().take(results).collect();
        if places.iter().all(|place| matches!(place, Place::Here)) {
            continue;
        }
        let mut own = places.iter();
        let mut moved = places.iter().filter(|place| !matches!(place, Place::Here));
        let taken = entry.take_parts(|part| {
            !matches!(part, Part::ToolResult { .. }) || matches!(own.next(), Some(Place::Here) | None)
        });
        for (part, origin) in taken {
            match (moved.next(), &part) {
                (Some(Place::Up(call)), _) => {
                    let (message, segment, estimated) = (entry.message(), entry.segment, entry.estimated);
                    late.insert(*call, Taken { part, origin, message, segment, estimated });
                }
                (_, Part::ToolResult { id, .. }) => {
                    let tokens = count_parts(encoding, std::slice::from_ref(&part));
                    gone.push((entry.message(), id.clone(), tokens));
                }
                _ => {}
            }
        }
        entry.tokens = count_parts(encoding, &entry.parts);
    }
    for (message, call, tokens) in gone {
        draft.repair(RepairKind::ResultDropped, message, call);
        if let Some(line) = message.and_then(|id| draft.fate(id)) {
            line.representation = Representation::Repaired;
            line.reason = Reason::ResultWithoutCall;
            line.tokens = line.tokens.less(tokens);
        }
    }
    draft.entries.retain(|entry| !entry.parts.is_empty());
    late
}

/// After every message with calls and the results that are there: the missing ones, moved up or synthetic.
fn answer_calls(draft: &mut Draft, mut late: HashMap<usize, Taken>, plan: &Plan) {
    if plan.answered.iter().all(|answered| *answered) {
        return;
    }
    let entries = std::mem::take(&mut draft.entries);
    let mut mended: Vec<Entry> = Vec::with_capacity(entries.len() + 2);
    let mut unanswered: Vec<(usize, String)> = Vec::new();
    let mut caller = 0;
    let mut call = 0;
    for entry in entries {
        if entry.role != Role::Tool {
            settle(draft, &mut mended, caller, &mut unanswered, &mut late);
            caller = mended.len();
            for part in &entry.parts {
                if let Part::ToolUse { id, .. } = part {
                    if !plan.answered[call] {
                        unanswered.push((call, id.clone()));
                    }
                    call += 1;
                }
            }
        }
        mended.push(entry);
    }
    settle(draft, &mut mended, caller, &mut unanswered, &mut late);
    draft.entries = mended;
}

/// Gives every unanswered call of the entry at `caller` its result, at the end of `mended`.
fn settle(
    draft: &mut Draft,
    mended: &mut Vec<Entry>,
    caller: usize,
    unanswered: &mut Vec<(usize, String)>,
    late: &mut HashMap<usize, Taken>,
) {
    for (number, call) in unanswered.drain(..) {
        let (turn, segment, asker) = (mended[caller].turn, mended[caller].segment, mended[caller].message());
        let (kind, taken) = late.remove(&number).map_or_else(
            || {
                let (part, origin) = (no_result(&call), Origin::default());
                (RepairKind::ResultAdded, Taken { part, origin, message: None, segment, estimated: false })
            },
            |taken| (RepairKind::ResultMoved, taken),
        );
        draft.repair(kind, taken.message.or(asker), call);
        let parts = vec![taken.part];
        mended.push(Entry {
            segment: taken.segment,
            role: Role::Tool,
            tokens: count_parts(draft.encoding, &parts),
            parts,
            ids: taken.message.into_iter().collect(),
            turn,
            framings: 1,
            estimated: taken.estimated,
            original: kind == RepairKind::ResultMoved,
            origins: vec![taken.origin],
        });
    }
}

fn no_result(call: &str) -> Part {
    Part::ToolResult { id: call.to_owned(), text: NO_RESULT.into(), is_error: true, media: Vec::new() }
}
