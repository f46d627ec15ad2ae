//! Enforces the sequence of roles that a provider accepts, after the budget. Adjacent messages of
//! one role are merged. Where the provider requires it, a user message is added at the beginning
//! and at the end. Reasoning and results are put into the order that the provider requires.

use std::collections::HashMap;

use crate::{
    context::{Draft, Entry, RepairKind, Segment},
    message::{PART_JOIN, Part, Role},
    provider_format::Format,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// Text of the user message that is added where a conversation would begin with the model or, in
/// OpenAI's format, hold only system messages.
const CONVERSATION_BEGINS: &str = "[The conversation begins.]";
/// Text of the user message that is added where a conversation would end with the model.
const CONTINUE: &str = "[Continue.]";

/// An upper bound of the tokens that [`enforce_role_sequence`] adds, whatever the budget drops in
/// between.
pub(in crate::context) fn reserved_tokens(draft: &Draft) -> Tokens {
    let cost = |text| draft.encoding.counter().count(text) + FRAMING_PER_MESSAGE;
    let after_prompt = || {
        draft
            .entries
            .iter()
            .filter(|entry| entry.segment != Segment::SystemPrompt)
    };
    let has_summary = after_prompt().any(|entry| entry.segment == Segment::CheckpointSummary);
    let has_user = after_prompt().any(|entry| entry.role == Role::User);
    let may_add_beginning = match draft.format {
        Format::Neutral => false,
        Format::OpenAiChat => !has_user,
        Format::AnthropicMessages | Format::GeminiContents => !has_summary,
    };
    let mut tokens = if may_add_beginning {
        cost(CONVERSATION_BEGINS)
    } else {
        Tokens::ZERO
    };
    if draft.format.alternates()
        && after_prompt()
            .next_back()
            .is_some_and(|entry| entry.role == Role::Assistant)
    {
        tokens += cost(CONTINUE);
    }
    tokens
}

/// Changes the draft so that its roles have the sequence that its format requires.
pub(in crate::context) fn enforce_role_sequence(draft: &mut Draft) {
    if draft.format.alternates() {
        for entry in draft
            .entries
            .iter_mut()
            .filter(|entry| entry.is_conversation() && entry.role == Role::System)
        {
            entry.role = Role::User;
        }
    }
    add_user_at_the_ends(draft);
    merge_adjacent_roles(draft);
    match draft.format {
        Format::AnthropicMessages => draft.entries.iter_mut().for_each(move_reasoning_first),
        Format::GeminiContents => order_results_by_call(draft),
        Format::Neutral | Format::OpenAiChat => {}
    }
}

fn add_user_at_the_ends(draft: &mut Draft) {
    let start = draft
        .entries
        .iter()
        .take_while(|entry| entry.segment == Segment::SystemPrompt)
        .count();
    let mut after_prompt = draft.entries[start..].iter();
    let needs_user_first = match draft.format {
        Format::Neutral => false,
        Format::OpenAiChat => after_prompt.all(|entry| entry.role == Role::System),
        Format::AnthropicMessages | Format::GeminiContents => after_prompt
            .next()
            .is_none_or(|entry| entry.role == Role::Assistant),
    };
    if needs_user_first {
        let entry = synthetic_user_entry(draft, CONVERSATION_BEGINS);
        draft.entries.insert(start, entry);
    }
    if draft.format.alternates()
        && draft
            .entries
            .last()
            .is_some_and(|entry| entry.role == Role::Assistant)
    {
        let entry = synthetic_user_entry(draft, CONTINUE);
        draft.entries.push(entry);
    }
}

fn synthetic_user_entry(draft: &mut Draft, text: &str) -> Entry {
    draft.report_repair(RepairKind::UserAdded, None, String::new());
    Entry {
        segment: Segment::Tail,
        role: Role::User,
        parts: vec![Part::Text {
            text: text.to_owned(),
        }],
        ids: Vec::new(),
        turn: 0,
        tokens: draft.encoding.counter().count(text),
        framing_count: 1,
        estimated: false,
        original: false,
        origins: Vec::new(),
        joins: Vec::new(),
    }
}

/// Merges adjacent user messages, and adjacent assistant messages. A blank line separates texts
/// that become one.
///
/// The checkpoint's summary and the system prompt are never merged: prefix caches depend on their
/// staying unchanged. In a provider's format, a user message after the summary becomes a block of
/// the same message. In Anthropic's format a user message after results becomes part of their
/// message as well, and merged texts stay blocks of their own: that provider caches whole blocks,
/// so a text that grows would be written to the cache again. Nothing is merged into an assistant
/// message with calls, because the results of its calls follow.
fn merge_adjacent_roles(draft: &mut Draft) {
    let entries = std::mem::take(&mut draft.entries);
    let mut merged: Vec<Entry> = Vec::with_capacity(entries.len());
    // Whether the last merged message holds a call. Only the added message is searched, because a
    // merged message can grow without limit.
    let mut last_has_calls = false;
    for entry in entries {
        let adds_calls = entry
            .parts
            .iter()
            .any(|part| matches!(part, Part::ToolUse { .. }));
        let joins = !last_has_calls
            && merged
                .last()
                .is_some_and(|before| may_be_merged(before, &entry));
        last_has_calls = adds_calls;
        match merged.last_mut() {
            Some(before) if joins => {
                draft.report_repair(RepairKind::Merged, entry.message_id(), String::new());
                join(before, entry, draft.format);
            }
            before => {
                if before
                    .is_some_and(|before| share_a_provider_message(before, &entry, draft.format))
                {
                    draft.report_repair(RepairKind::Merged, entry.message_id(), String::new());
                }
                merged.push(entry);
            }
        }
    }
    draft.entries = merged;
}

/// Whether both are user messages of the conversation, or both are assistant messages.
fn may_be_merged(before: &Entry, entry: &Entry) -> bool {
    before.role == entry.role
        && matches!(entry.role, Role::User | Role::Assistant)
        && before.is_conversation()
        && entry.is_conversation()
}

/// Whether the format writes both entries into one message although they stay two entries here.
fn share_a_provider_message(before: &Entry, entry: &Entry, format: Format) -> bool {
    entry.role == Role::User
        && match before.role {
            Role::User => format != Format::Neutral,
            Role::Tool => format == Format::AnthropicMessages,
            Role::Assistant | Role::System => false,
        }
}

/// Appends the content of `entry` to `before`.
fn join(before: &mut Entry, entry: Entry, format: Format) {
    let end = before.extent();
    let mut parts = entry.parts.into_iter().peekable();
    match (before.parts.last_mut(), parts.peek()) {
        (Some(Part::Text { text }), Some(Part::Text { text: next }))
            if format != Format::AnthropicMessages =>
        {
            text.push_str(PART_JOIN);
            text.push_str(next);
            parts.next();
        }
        _ => before.joins.push(end),
    }
    before.segment = entry.segment;
    before.ids.extend(entry.ids);
    before.tokens += entry.tokens;
    before.framing_count += entry.framing_count;
    before.estimated |= entry.estimated;
    before.parts.extend(parts);
}

/// Moves reasoning to the front where Anthropic requires it. Anthropic accepts reasoning between
/// other parts, but not as the last part, and only if the first part is reasoning too. An accepted
/// order is kept, because the model's order is part of what its signature covers.
fn move_reasoning_first(entry: &mut Entry) {
    let is_reasoning = |part: Option<&Part>| matches!(part, Some(Part::Reasoning { .. }));
    if entry.role == Role::Assistant
        && (!is_reasoning(entry.parts.first()) || is_reasoning(entry.parts.last()))
    {
        entry.parts.sort_by_key(|part| !is_reasoning(Some(part)));
        // The parts of merged messages are mixed now.
        entry.joins.clear();
    }
}

/// Puts all results of one message's calls into one entry, in the order of the calls, because
/// Gemini matches results to calls by their order.
fn order_results_by_call(draft: &mut Draft) {
    let mut ordered: Vec<Entry> = Vec::with_capacity(draft.entries.len());
    let mut positions: HashMap<String, usize> = HashMap::new();
    for entry in std::mem::take(&mut draft.entries) {
        if entry.role != Role::Tool {
            sort_results(ordered.last_mut(), &positions);
        }
        if entry.role == Role::Assistant {
            positions.clear();
            let calls = entry.parts.iter().filter_map(|part| match part {
                Part::ToolUse { id, .. } => Some(id.clone()),
                _ => None,
            });
            positions.extend(calls.enumerate().map(|(position, call)| (call, position)));
        }
        match ordered.last_mut() {
            Some(before) if before.role == Role::Tool && entry.role == Role::Tool => {
                join(before, entry, draft.format);
            }
            _ => ordered.push(entry),
        }
    }
    sort_results(ordered.last_mut(), &positions);
    draft.entries = ordered;
}

/// Sorts the results of a complete entry by the positions of their calls.
fn sort_results(entry: Option<&mut Entry>, positions: &HashMap<String, usize>) {
    if let Some(results) = entry.filter(|entry| entry.role == Role::Tool && positions.len() > 1) {
        results.parts.sort_by_key(|part| match part {
            Part::ToolResult { id, .. } => positions.get(id).copied(),
            _ => None,
        });
    }
}
