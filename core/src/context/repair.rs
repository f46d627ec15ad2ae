//! What providers refuse, mended on the way out, before the budget: storage is untouched, and every change is reported.

use super::{Draft, Entry, Reason, Representation, names, pairs, shape};
use crate::{
    message::{MessageId, Part, Role},
    render::Format,
    tokens::{FRAMING_PER_MESSAGE, Tokens},
};

/// A change that makes the context acceptable to providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// What was done.
    pub kind: RepairKind,
    /// The stored message concerned; None for current input.
    pub message: Option<MessageId>,
    /// The tool call concerned; empty when there is none.
    pub call: String,
}

/// Kinds of repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// Joined to the message before, which has the same role.
    Merged,
    /// A call got a synthetic result.
    ResultAdded,
    /// A result without a call was left out.
    ResultDropped,
    /// A message with nothing in it was left out.
    EmptyDropped,
    /// A result that came late was moved up to its call.
    ResultMoved,
    /// A user message that was said again after a failed turn is sent once.
    RepeatFolded,
    /// A user message was put in where the provider wants one: at the start, or at the end.
    UserAdded,
    /// An application's message became the user's, marked as what it is.
    RoleChanged,
    /// A call and its result got an id that the provider takes.
    IdChanged,
    /// A call's input that is no JSON object was put into one.
    InputWrapped,
    /// Thoughts that the provider would not take back were left out.
    ReasoningDropped,
    /// Media that the provider does not take there are described in words.
    MediaDescribed,
    /// A tool got a name that the provider takes.
    NameChanged,
    /// A failed result without a text got one.
    TextAdded,
}

/// Mends the draft for its format: parts first, then messages, then what belongs together.
pub(super) fn mend(draft: &mut Draft) {
    shape::shape(draft);
    drop_empty(draft);
    fold_repeats(draft);
    pairs::pair_tools(draft);
    if draft.format != Format::Neutral {
        names::distinct_ids(draft);
        weigh_results(draft);
    }
}

/// Leaves out messages in which nothing can be sent.
fn drop_empty(draft: &mut Draft) {
    let gone: Vec<Option<MessageId>> =
        draft.entries.iter().filter(|entry| entry.parts.is_empty()).map(Entry::message).collect();
    if gone.is_empty() {
        return;
    }
    draft.entries.retain(|entry| !entry.parts.is_empty());
    for message in gone {
        note_empty(draft, message);
    }
}

fn note_empty(draft: &mut Draft, message: Option<MessageId>) {
    note(draft, message, Reason::Empty);
    draft.repair(RepairKind::EmptyDropped, message, String::new());
}

fn note(draft: &mut Draft, message: Option<MessageId>, reason: Reason) {
    if let Some(line) = message.and_then(|id| draft.fate(id)) {
        line.representation = Representation::Repaired;
        line.reason = reason;
        line.tokens = Tokens::ZERO;
    }
}

/// Sends a user message once that was said again after a turn that failed: with nothing between, or nothing but
/// assistant messages that say nothing. It stays in its newest place, and stands for the earlier ones.
fn fold_repeats(draft: &mut Draft) {
    if !draft.entries.iter().any(|entry| entry.role == Role::User) {
        return;
    }
    let entries = std::mem::take(&mut draft.entries);
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for mut entry in entries {
        if entry.role == Role::User && entry.is_spoken() {
            let said = kept.iter().rposition(|before| !is_failure(before));
            if let Some(said) = said.filter(|said| repeats(&kept[*said], &entry)) {
                for failure in kept.drain(said + 1..) {
                    note_empty(draft, failure.message());
                }
                if let Some(mut earlier) = kept.pop() {
                    if entry.message().is_some() {
                        note(draft, earlier.message(), Reason::Repeated);
                    }
                    draft.repair(RepairKind::RepeatFolded, entry.message(), String::new());
                    // Behind the ids of those before: in front of them each repeat would move all.
                    earlier.ids.append(&mut entry.ids);
                    entry.ids = earlier.ids;
                }
            }
        }
        kept.push(entry);
    }
    draft.entries = kept;
}

fn repeats(before: &Entry, entry: &Entry) -> bool {
    before.role == Role::User && before.is_spoken() && before.parts == entry.parts
}

/// An answer that says nothing: blank texts and thoughts at most.
fn is_failure(entry: &Entry) -> bool {
    let says_nothing = |part: &Part| match part {
        Part::Text { text } => text.trim().is_empty(),
        Part::Reasoning { .. } => true,
        Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Media(_) => false,
    };
    entry.role == Role::Assistant && entry.parts.iter().all(says_nothing)
}

/// What a format writes beside the parts of tool results: OpenAI sends each as a message of its own, Gemini repeats the
/// tool's name.
fn weigh_results(draft: &mut Draft) {
    let counter = draft.encoding.counter();
    let mut names: std::collections::HashMap<String, Tokens> = std::collections::HashMap::new();
    for entry in &mut draft.entries {
        for part in &entry.parts {
            match (part, draft.format) {
                (Part::ToolUse { id, name, .. }, Format::GeminiContents) => {
                    names.insert(id.clone(), counter.count(name));
                }
                (Part::ToolResult { id, .. }, Format::GeminiContents) => {
                    entry.tokens += names.get(id).copied().unwrap_or(FRAMING_PER_MESSAGE);
                }
                _ => {}
            }
        }
        if entry.role == Role::Tool && draft.format == Format::OpenAiChat {
            entry.framings = entry.framings.max(entry.parts.len() as u64);
        }
    }
}
