//! What must hold at the last, whatever the budget took: messages of one role in a row are joined, the user opens and
//! ends the conversation where a provider wants it so, and parts stand in the order that it wants.

use std::collections::HashMap;

use super::{Draft, Entry, RepairKind, Segment};
use crate::{
    message::{PART_JOIN, Part, Role},
    render::Format,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// What the user says where a conversation would begin with the model.
const BEGINS: &str = "[The conversation begins.]";
/// What the user says where a conversation would end with the model.
const CONTINUE: &str = "[Continue.]";

/// Tokens that [`close`] may add; it never adds more, whatever the budget takes before it.
pub(super) fn reserve(draft: &Draft) -> Tokens {
    let cost = |text| draft.encoding.counter().count(text) + FRAMING_PER_MESSAGE;
    let conversation = || draft.entries.iter().filter(|entry| entry.segment != Segment::SystemPrompt);
    let summarised = conversation().any(|entry| entry.segment == Segment::CheckpointSummary);
    let asked = conversation().any(|entry| entry.role == Role::User);
    let may_begin = match draft.format {
        Format::Neutral => false,
        Format::OpenAiChat => !asked,
        Format::AnthropicMessages | Format::GeminiContents => !summarised,
    };
    let mut tokens = if may_begin { cost(BEGINS) } else { Tokens::ZERO };
    if draft.format.alternates() && conversation().next_back().is_some_and(|entry| entry.role == Role::Assistant) {
        tokens += cost(CONTINUE);
    }
    tokens
}

/// Brings the draft into its last shape.
pub(super) fn close(draft: &mut Draft) {
    if draft.format.alternates() {
        for entry in draft.entries.iter_mut().filter(|entry| entry.is_spoken() && entry.role == Role::System) {
            entry.role = Role::User;
        }
    }
    open_and_end_with_the_user(draft);
    merge(draft);
    match draft.format {
        Format::AnthropicMessages => draft.entries.iter_mut().for_each(thoughts_first),
        Format::GeminiContents => results_in_order(draft),
        Format::Neutral | Format::OpenAiChat => {}
    }
}

fn open_and_end_with_the_user(draft: &mut Draft) {
    let start = draft.entries.iter().take_while(|entry| entry.segment == Segment::SystemPrompt).count();
    let mut conversation = draft.entries[start..].iter();
    let wanted = match draft.format {
        Format::Neutral => false,
        Format::OpenAiChat => conversation.all(|entry| entry.role == Role::System),
        Format::AnthropicMessages | Format::GeminiContents => {
            conversation.next().is_none_or(|entry| entry.role == Role::Assistant)
        }
    };
    if wanted {
        let entry = said_for_the_user(draft, BEGINS);
        draft.entries.insert(start, entry);
    }
    if draft.format.alternates() && draft.entries.last().is_some_and(|entry| entry.role == Role::Assistant) {
        let entry = said_for_the_user(draft, CONTINUE);
        draft.entries.push(entry);
    }
}

fn said_for_the_user(draft: &mut Draft, text: &str) -> Entry {
    draft.repair(RepairKind::UserAdded, None, String::new());
    Entry {
        segment: Segment::Tail,
        role: Role::User,
        parts: vec![Part::Text { text: text.to_owned() }],
        ids: Vec::new(),
        turn: 0,
        tokens: draft.encoding.counter().count(text),
        framings: 1,
        estimated: false,
        original: false,
        origins: Vec::new(),
    }
}

/// Joins user messages in a row, and assistant messages in a row, with a blank line between texts that meet.
///
/// The checkpoint's summary and the system prompt stay by themselves: they are constant, and caches depend on it. In a
/// provider's format a user message after the summary becomes a block of its own in one message with it; in Anthropic's
/// also one after results. An assistant message with calls takes nothing more: its results follow.
fn merge(draft: &mut Draft) {
    let entries = std::mem::take(&mut draft.entries);
    let mut merged: Vec<Entry> = Vec::with_capacity(entries.len());
    // Whether the last of the merged ones holds a call. Looked for in what is added alone: a merged entry grows without bound.
    let mut calls = false;
    for entry in entries {
        let adds_calls = entry.parts.iter().any(|part| matches!(part, Part::ToolUse { .. }));
        let joins = !calls && merged.last().is_some_and(|before| are_of_one_speaker(before, &entry));
        calls = adds_calls;
        match merged.last_mut() {
            Some(before) if joins => {
                draft.repair(RepairKind::Merged, entry.message(), String::new());
                join(before, entry);
            }
            before => {
                if before.is_some_and(|before| meets(before, &entry, draft.format)) {
                    draft.repair(RepairKind::Merged, entry.message(), String::new());
                }
                merged.push(entry);
            }
        }
    }
    draft.entries = merged;
}

fn are_of_one_speaker(before: &Entry, entry: &Entry) -> bool {
    before.role == entry.role
        && matches!(entry.role, Role::User | Role::Assistant)
        && before.is_spoken()
        && entry.is_spoken()
}

/// Whether the format puts both into one message though they stay two here.
fn meets(before: &Entry, entry: &Entry, format: Format) -> bool {
    entry.role == Role::User
        && match before.role {
            Role::User => format != Format::Neutral,
            Role::Tool => format == Format::AnthropicMessages,
            Role::Assistant | Role::System => false,
        }
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

/// Anthropic takes thoughts between what was said, but not after it, nor for the first time then. Where they stand well they
/// stay: the model's own order is part of what was signed.
fn thoughts_first(entry: &mut Entry) {
    let is_thought = |part: Option<&Part>| matches!(part, Some(Part::Reasoning { .. }));
    if entry.role == Role::Assistant && (!is_thought(entry.parts.first()) || is_thought(entry.parts.last())) {
        entry.parts.sort_by_key(|part| !is_thought(Some(part)));
    }
}

/// Gemini goes by order: the results of one message's calls stand in one entry, as the calls do.
fn results_in_order(draft: &mut Draft) {
    let mut ordered: Vec<Entry> = Vec::with_capacity(draft.entries.len());
    let mut places: HashMap<String, usize> = HashMap::new();
    for entry in std::mem::take(&mut draft.entries) {
        if entry.role != Role::Tool {
            order_results(ordered.last_mut(), &places);
        }
        if entry.role == Role::Assistant {
            places.clear();
            let calls = entry.parts.iter().filter_map(|part| match part {
                Part::ToolUse { id, .. } => Some(id.clone()),
                _ => None,
            });
            places.extend(calls.enumerate().map(|(place, call)| (call, place)));
        }
        match ordered.last_mut() {
            Some(before) if before.role == Role::Tool && entry.role == Role::Tool => join(before, entry),
            _ => ordered.push(entry),
        }
    }
    order_results(ordered.last_mut(), &places);
    draft.entries = ordered;
}

/// Sorts the results of an entry that is complete by the places of their calls.
fn order_results(entry: Option<&mut Entry>, places: &HashMap<String, usize>) {
    if let Some(results) = entry.filter(|entry| entry.role == Role::Tool && places.len() > 1) {
        results.parts.sort_by_key(|part| match part {
            Part::ToolResult { id, .. } => places.get(id).copied(),
            _ => None,
        });
    }
}
