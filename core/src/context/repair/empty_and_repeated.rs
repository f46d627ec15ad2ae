//! Drops messages that have no content to send. Of equal user messages that a client sent again
//! after failed turns, keeps only the last.

use crate::{
    context::{Draft, Entry, Reason, RepairKind, Representation},
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

/// Drops messages that have no content to send.
pub(super) fn drop_empty(draft: &mut Draft) {
    let dropped: Vec<Option<MessageId>> = draft
        .entries
        .iter()
        .filter(|entry| entry.parts.is_empty())
        .map(Entry::message_id)
        .collect();
    if dropped.is_empty() {
        return;
    }
    draft.entries.retain(|entry| !entry.parts.is_empty());
    for message in dropped {
        record_empty(draft, message);
    }
}

fn record_empty(draft: &mut Draft, message: Option<MessageId>) {
    record_repaired(draft, message, Reason::Empty);
    draft.report_repair(RepairKind::EmptyDropped, message, String::new());
}

fn record_repaired(draft: &mut Draft, message: Option<MessageId>, reason: Reason) {
    if let Some(manifest_entry) = message.and_then(|id| draft.manifest_entry_mut(id)) {
        manifest_entry.representation = Representation::Repaired;
        manifest_entry.reason = reason;
        manifest_entry.tokens = Tokens::ZERO;
    }
}

/// Keeps only the last of several equal user messages with nothing but empty answers between them,
/// as after failed turns. The last one then represents the earlier ones too.
pub(super) fn fold_repeats(draft: &mut Draft) {
    if !draft.entries.iter().any(|entry| entry.role == Role::User) {
        return;
    }
    let entries = std::mem::take(&mut draft.entries);
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for mut entry in entries {
        if entry.role == Role::User && entry.is_conversation() {
            let position = kept.iter().rposition(|before| !is_empty_answer(before));
            if let Some(position) = position.filter(|position| repeats(&kept[*position], &entry)) {
                for empty_answer in kept.drain(position + 1..) {
                    record_empty(draft, empty_answer.message_id());
                }
                if let Some(mut earlier) = kept.pop() {
                    // Current input has no entry in the manifest. Then the tokens stay with the
                    // earlier message.
                    if entry.message_id().is_some() {
                        record_repaired(draft, earlier.message_id(), Reason::Repeated);
                    }
                    draft.report_repair(
                        RepairKind::RepeatFolded,
                        entry.message_id(),
                        String::new(),
                    );
                    // Append to the earlier ids: prepending would move all of them for each repeat.
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
    before.role == Role::User && before.is_conversation() && before.parts == entry.parts
}

/// Whether an assistant message holds nothing but blank texts and reasoning.
fn is_empty_answer(entry: &Entry) -> bool {
    let is_blank = |part: &Part| match part {
        Part::Text { text } => text.trim().is_empty(),
        Part::Reasoning { .. } => true,
        Part::ToolUse { .. } | Part::ToolResult { .. } | Part::Media(_) => false,
    };
    entry.role == Role::Assistant && entry.parts.iter().all(is_blank)
}
