//! Pairs tool calls with results: every call is followed by exactly one result, and every result
//! follows its call.

use std::collections::HashMap;

use crate::{
    context::{Draft, Entry, Reason, RepairKind, Representation, Segment, entry::Origin},
    message::{MessageId, Part, Role},
    tokens::{Tokens, count_parts},
    tool_pairs::OpenCalls,
};

/// Text of a synthetic result.
const NO_RESULT: &str = "[no result]";

/// Gives every call exactly one result, directly after it.
///
/// Late results move up to their call. Calls without a result get a synthetic one. Results without
/// a call, and second results of one call, are dropped. [`OpenCalls`] decides which call a result
/// answers.
pub(super) fn pair_tools(draft: &mut Draft) {
    let plan = plan(&draft.entries);
    if plan.calls == 0 && plan.placements.is_empty() {
        return;
    }
    let late = detach_results(draft, &plan);
    answer_calls(draft, late, &plan);
    // A budget drops whole turns, so a result gets the turn of its call, even if a message between
    // them was dropped.
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
enum Placement {
    /// It already follows its call directly.
    Here,
    /// It moves up to the call with this number.
    Up(usize),
    /// It answers no call and is dropped.
    Nowhere,
}

/// Which result belongs to which call, decided in one pass over the entries.
struct PairingPlan {
    /// Number of calls. Calls are numbered in order.
    calls: usize,
    /// For each call: whether its result follows it directly.
    answered: Vec<bool>,
    /// For each result, in order: where it belongs.
    placements: Vec<Placement>,
}

fn plan(entries: &[Entry]) -> PairingPlan {
    let mut open_calls = OpenCalls::default();
    let mut plan = PairingPlan {
        calls: 0,
        answered: Vec::new(),
        placements: Vec::new(),
    };
    let mut last_non_tool = 0;
    for (index, entry) in entries.iter().enumerate() {
        if entry.role != Role::Tool {
            last_non_tool = index;
        }
        for part in &entry.parts {
            match part {
                Part::ToolUse { id, .. } => {
                    open_calls.open(id, index);
                    plan.answered.push(false);
                    plan.calls += 1;
                }
                Part::ToolResult { id, .. } => {
                    let placement = open_calls.answer(id).map(|call| {
                        let follows = call.message == last_non_tool;
                        plan.answered[call.number] = follows;
                        if follows {
                            Placement::Here
                        } else {
                            Placement::Up(call.number)
                        }
                    });
                    plan.placements
                        .push(placement.unwrap_or(Placement::Nowhere));
                }
                Part::Text { .. } | Part::Media(_) | Part::Reasoning { .. } => {}
            }
        }
    }
    plan
}

/// A result that was taken out of its message, with that message's id.
struct DetachedResult {
    part: Part,
    origin: Origin,
    message: Option<MessageId>,
    segment: Segment,
    estimated: bool,
}

/// Takes out every result that does not directly follow its call. Returns the results that answer a
/// call, by the call's number, and drops the others.
fn detach_results(draft: &mut Draft, plan: &PairingPlan) -> HashMap<usize, DetachedResult> {
    let mut late: HashMap<usize, DetachedResult> = HashMap::new();
    let mut all_placements = plan.placements.iter().copied();
    let mut dropped: Vec<(Option<MessageId>, String, Tokens)> = Vec::new();
    let encoding = draft.encoding;
    for entry in &mut draft.entries {
        let results = entry
            .parts
            .iter()
            .filter(|part| matches!(part, Part::ToolResult { .. }))
            .count();
        let placements: Vec<Placement> = all_placements.by_ref().take(results).collect();
        if placements
            .iter()
            .all(|placement| matches!(placement, Placement::Here))
        {
            continue;
        }
        let mut remaining = placements.iter();
        let mut taken_placements = placements
            .iter()
            .filter(|placement| !matches!(placement, Placement::Here));
        let taken = entry.take_parts(|part| {
            !matches!(part, Part::ToolResult { .. })
                || matches!(remaining.next(), Some(Placement::Here) | None)
        });
        for (part, origin) in taken {
            match (taken_placements.next(), &part) {
                (Some(Placement::Up(call)), _) => {
                    let (message, segment, estimated) =
                        (entry.message_id(), entry.segment, entry.estimated);
                    late.insert(
                        *call,
                        DetachedResult {
                            part,
                            origin,
                            message,
                            segment,
                            estimated,
                        },
                    );
                }
                (_, Part::ToolResult { id, .. }) => {
                    let tokens = count_parts(encoding, std::slice::from_ref(&part));
                    dropped.push((entry.message_id(), id.clone(), tokens));
                }
                _ => {}
            }
        }
        entry.tokens = count_parts(encoding, &entry.parts);
    }
    for (message, call, tokens) in dropped {
        draft.report_repair(RepairKind::ResultDropped, message, call);
        if let Some(manifest_entry) = message.and_then(|id| draft.manifest_entry_mut(id)) {
            manifest_entry.representation = Representation::Repaired;
            manifest_entry.reason = Reason::ResultWithoutCall;
            manifest_entry.tokens = manifest_entry.tokens.less(tokens);
        }
    }
    draft.entries.retain(|entry| !entry.parts.is_empty());
    late
}

/// Adds the missing results, moved or synthetic ones. They come after the message with the calls
/// and the results that already follow it.
fn answer_calls(draft: &mut Draft, mut late: HashMap<usize, DetachedResult>, plan: &PairingPlan) {
    if plan.answered.iter().all(|answered| *answered) {
        return;
    }
    let entries = std::mem::take(&mut draft.entries);
    let mut paired: Vec<Entry> = Vec::with_capacity(entries.len() + 2);
    let mut unanswered: Vec<(usize, String)> = Vec::new();
    let mut calling_index = 0;
    let mut call = 0;
    for entry in entries {
        if entry.role != Role::Tool {
            attach_results(
                draft,
                &mut paired,
                calling_index,
                &mut unanswered,
                &mut late,
            );
            calling_index = paired.len();
            for part in &entry.parts {
                if let Part::ToolUse { id, .. } = part {
                    if !plan.answered[call] {
                        unanswered.push((call, id.clone()));
                    }
                    call += 1;
                }
            }
        }
        paired.push(entry);
    }
    attach_results(
        draft,
        &mut paired,
        calling_index,
        &mut unanswered,
        &mut late,
    );
    draft.entries = paired;
}

/// Appends to `paired` a result for every call in `unanswered`. These are calls of the entry at
/// index `calling_index`.
fn attach_results(
    draft: &mut Draft,
    paired: &mut Vec<Entry>,
    calling_index: usize,
    unanswered: &mut Vec<(usize, String)>,
    late: &mut HashMap<usize, DetachedResult>,
) {
    // Synthetic results in a row are one message.
    let mut last_synthetic = None;
    for (number, call) in unanswered.drain(..) {
        let (turn, segment, calling_message) = (
            paired[calling_index].turn,
            paired[calling_index].segment,
            paired[calling_index].message_id(),
        );
        let (kind, result) = late.remove(&number).map_or_else(
            || {
                let (part, origin) = (synthetic_result(&call), Origin::default());
                (
                    RepairKind::ResultAdded,
                    DetachedResult {
                        part,
                        origin,
                        message: None,
                        segment,
                        estimated: false,
                    },
                )
            },
            |late_result| (RepairKind::ResultMoved, late_result),
        );
        draft.report_repair(kind, result.message.or(calling_message), call);
        let is_synthetic = kind == RepairKind::ResultAdded;
        if is_synthetic
            && let Some(before) = last_synthetic.and_then(|index: usize| paired.get_mut(index))
        {
            before.tokens += count_parts(draft.encoding, std::slice::from_ref(&result.part));
            before.parts.push(result.part);
            before.origins.push(result.origin);
            continue;
        }
        last_synthetic = is_synthetic.then_some(paired.len());
        let parts = vec![result.part];
        paired.push(Entry {
            segment: result.segment,
            role: Role::Tool,
            tokens: count_parts(draft.encoding, &parts),
            parts,
            ids: result.message.into_iter().collect(),
            turn,
            framing_count: 1,
            estimated: result.estimated,
            original: !is_synthetic,
            origins: vec![result.origin],
            joins: Vec::new(),
        });
    }
}

fn synthetic_result(call: &str) -> Part {
    Part::ToolResult {
        id: call.to_owned(),
        text: NO_RESULT.into(),
        is_error: true,
        media: Vec::new(),
    }
}
