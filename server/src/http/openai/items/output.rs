//! Messages become items. The place of an item in its message, which its id has, never changes: an
//! item that is removed leaves a gap.

use std::ops::Range;

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::v1::{self as pb, part::Part};
use serde_json::{Value, json};

use super::{
    compaction::Compaction,
    content::{self, Author},
    labels::{self, Labels, PartNotes, RemovedItems},
    reasoning,
};
use crate::http::openai::ids::{ItemId, ItemKind};

/// An item of a stored message.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::http) struct StoredItem {
    pub(in crate::http) id: ItemId,
    /// The parts of the message that the item consists of.
    pub(in crate::http) parts: Range<usize>,
    /// The item as it is shown.
    pub(in crate::http) value: Value,
}

/// The items of a stored message, in order.
pub(in crate::http) fn stored_items(
    conversation: ConversationId,
    message: &pb::Message,
) -> Vec<StoredItem> {
    if let Some(compaction) = Compaction::of_message(&message.parts, &message.metadata) {
        let id = ItemId {
            kind: ItemKind::Compaction,
            conversation,
            message: MessageId(message.message_id),
            index: 0,
        };
        let value = compaction.item(&id.to_string());
        return vec![StoredItem {
            id,
            parts: 0..1,
            value,
        }];
    }
    let removed = RemovedItems::read(&message.metadata);
    let groups = group(&message.parts, &removed);
    let last = groups.len().saturating_sub(1);
    let indexes = (0..).filter(|index| !removed.contains(*index));
    let groups = groups.into_iter().enumerate().zip(indexes);
    let items = groups.map(|((place, (kind, parts)), index)| {
        let id = ItemId {
            kind,
            conversation,
            message: MessageId(message.message_id),
            index,
        };
        let view = ItemView {
            role: message.role(),
            parts: message.parts.get(parts.clone()).unwrap_or_default(),
            labels: &message.metadata,
            has_labels: index == 0,
            status: status(&message.metadata, place == last, message.stopped),
        };
        let value = view.show(&id.to_string());
        StoredItem { id, parts, value }
    });
    items.collect()
}

/// The items of a stored message as they are shown, in order.
pub(in crate::http) fn items_of(conversation: ConversationId, message: &pb::Message) -> Vec<Value> {
    let items = stored_items(conversation, message).into_iter();
    items.map(|item| item.value).collect()
}

/// The items of a message that is not stored, in order. `ids` returns an id for each.
pub(in crate::http) fn items_of_parts(
    ids: &mut dyn FnMut(ItemKind) -> String,
    message: &pb::NewMessage,
) -> Vec<Value> {
    if let Some(compaction) = Compaction::of_message(&message.parts, &message.metadata) {
        return vec![compaction.item(&ids(ItemKind::Compaction))];
    }
    let groups = group(&message.parts, &RemovedItems::default());
    let last = groups.len().saturating_sub(1);
    let items = groups
        .into_iter()
        .enumerate()
        .map(|(place, (kind, parts))| {
            let view = ItemView {
                role: message.role(),
                parts: message.parts.get(parts).unwrap_or_default(),
                labels: &message.metadata,
                has_labels: place == 0,
                status: status(&message.metadata, place == last, false),
            };
            view.show(&ids(kind))
        });
    items.collect()
}

/// The parts of each item, and its type. An item never spans a place from which one was removed.
fn group(parts: &[pb::Part], removed: &RemovedItems) -> Vec<(ItemKind, Range<usize>)> {
    let mut groups: Vec<(ItemKind, Range<usize>)> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let Some(kind) = part.part.as_ref().map(kind_of) else {
            continue;
        };
        match groups.last_mut() {
            Some((ItemKind::Message, range))
                if kind == ItemKind::Message
                    && range.end == place
                    && !removed.has_gap_at(place) =>
            {
                range.end = place + 1;
            }
            _ => groups.push((kind, place..place + 1)),
        }
    }
    groups
}

const fn kind_of(part: &Part) -> ItemKind {
    match part {
        Part::Text(_) | Part::Media(_) => ItemKind::Message,
        Part::ToolUse(_) => ItemKind::FunctionCall,
        Part::ToolResult(_) => ItemKind::FunctionCallOutput,
        Part::Reasoning(_) => ItemKind::Reasoning,
    }
}

/// The status of an item. Only the last item of a message can be unfinished.
fn status(labels: &Labels, is_last: bool, is_stopped: bool) -> String {
    let unfinished = is_stopped.then_some("incomplete");
    let status = labels.get(labels::STATUS).map(String::as_str);
    let status = status.or(unfinished).filter(|_| is_last);
    status.unwrap_or("completed").to_owned()
}

/// One item, before it is shown.
struct ItemView<'m> {
    role: pb::Role,
    /// The parts of the item.
    parts: &'m [pb::Part],
    labels: &'m Labels,
    /// Whether labels about one item are about this one: they are about the first.
    has_labels: bool,
    status: String,
}

impl ItemView<'_> {
    fn show(&self, id: &str) -> Value {
        let empty = Labels::new();
        let labels = if self.has_labels { self.labels } else { &empty };
        match self.parts.first().and_then(|part| part.part.as_ref()) {
            Some(Part::ToolUse(call)) => json!({
                "id": id,
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.input,
                "status": self.status,
            }),
            Some(Part::ToolResult(result)) => {
                let mut item = json!({
                    "id": id,
                    "type": "function_call_output",
                    "call_id": result.tool_use_id,
                    "output": show_output(result, labels),
                    "status": self.status,
                });
                if result.is_error {
                    item["is_error"] = true.into();
                }
                item
            }
            Some(Part::Reasoning(part)) => reasoning::show_reasoning(part, labels, id),
            Some(Part::Text(_) | Part::Media(_)) | None => self.show_message(id, labels),
        }
    }

    fn show_message(&self, id: &str, labels: &Labels) -> Value {
        let is_developer = self.labels.get(labels::ROLE).map(String::as_str) == Some("developer");
        let (role, author) = match self.role {
            pb::Role::Assistant => ("assistant", Author::Assistant),
            pb::Role::System if is_developer => ("developer", Author::System),
            pb::Role::System => ("system", Author::System),
            pb::Role::User | pb::Role::Tool | pb::Role::Unspecified => ("user", Author::User),
        };
        let mut notes = PartNotes::read(labels);
        let parts = self.parts.iter().enumerate();
        let content = parts.filter_map(|(place, part)| match part.part.as_ref()? {
            Part::Text(part) => Some(content::show_text(&part.text, author, &notes.take(place))),
            Part::Media(media) => Some(content::show_media(media, notes.take(place))),
            Part::ToolUse(_) | Part::ToolResult(_) | Part::Reasoning(_) => None,
        });
        let content: Vec<Value> = content.collect();
        let mut item = json!({
            "id": id,
            "type": "message",
            "role": role,
            "status": self.status,
            "content": content,
        });
        let phase = self.labels.get(labels::PHASE);
        if let Some(phase) = phase.filter(|_| author == Author::Assistant) {
            item["phase"] = phase.as_str().into();
        }
        item
    }
}

/// The output of a call: a text, or a list of texts and media.
fn show_output(result: &pb::ToolResultPart, labels: &Labels) -> Value {
    let layout = labels.get(labels::LAYOUT);
    let pieces = layout.and_then(|layout| labels::split(layout, &result.text));
    let count_media = |pieces: &[labels::Piece<'_>]| {
        let media = pieces.iter().filter(|(letter, _)| *letter == labels::MEDIA);
        media.count()
    };
    let pieces = pieces.filter(|pieces| count_media(pieces) == result.media.len());
    let pieces = match pieces {
        Some(pieces) => pieces,
        None if result.media.is_empty() => return result.text.as_str().into(),
        None => {
            let text = (!result.text.is_empty()).then_some(('t', result.text.as_str()));
            let media = result.media.iter().map(|_| (labels::MEDIA, ""));
            text.into_iter().chain(media).collect()
        }
    };
    let mut notes = PartNotes::read(labels);
    let mut media = result.media.iter();
    let parts = pieces
        .into_iter()
        .enumerate()
        .map(|(place, (letter, text))| {
            let note = notes.take(place);
            let next = (letter == labels::MEDIA).then(|| media.next()).flatten();
            next.map_or_else(
                || content::show_text(text, Author::User, &labels::PartNote::default()),
                |media| content::show_media(media, note),
            )
        });
    parts.collect::<Vec<Value>>().into()
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;
    use uuid::Uuid;

    use super::*;

    fn part(part: Part) -> pb::Part {
        pb::Part { part: Some(part) }
    }

    fn text(text: &str) -> pb::Part {
        part(Part::Text(pb::TextPart { text: text.into() }))
    }

    fn call(id: &str) -> pb::Part {
        part(Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            name: "look".into(),
            input: "{}".into(),
        }))
    }

    fn thought(text: &str, signature: &str) -> pb::Part {
        part(Part::Reasoning(pb::ReasoningPart {
            text: text.into(),
            signature: signature.into(),
            provider: "anthropic".into(),
            redacted: false,
        }))
    }

    fn answer(parts: Vec<pb::Part>) -> pb::Message {
        pb::Message {
            message_id: 7,
            role: pb::Role::Assistant.into(),
            parts,
            ..pb::Message::default()
        }
    }

    const CONVERSATION: ConversationId = ConversationId(Uuid::nil());
    const HEX: &str = "00000000000000000000000000000000";

    #[test]
    fn an_answer_is_an_item_for_each_thought_run_of_texts_and_call() {
        let message = answer(vec![
            thought("Hm.", "s"),
            text("I look."),
            text("Now."),
            call("a"),
            call("b"),
        ]);
        let items = items_of(CONVERSATION, &message);
        let ids: Vec<&str> = items
            .iter()
            .filter_map(|item| item["id"].as_str())
            .collect();
        assert_eq!(
            ids,
            [
                format!("rs_{HEX}_7_0"),
                format!("msg_{HEX}_7_1"),
                format!("fc_{HEX}_7_2"),
                format!("fc_{HEX}_7_3"),
            ]
        );
        assert_eq!(
            items[1],
            json!({
                "id": ids[1], "type": "message", "role": "assistant", "status": "completed",
                "content": [
                    {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []},
                    {"type": "output_text", "text": "Now.", "annotations": [], "logprobs": []},
                ],
            })
        );
        assert_eq!(items[0]["summary"], json!([]));
        assert_eq!(
            items[0]["content"],
            json!([{"type": "reasoning_text", "text": "Hm."}])
        );
        assert!(items[0]["encrypted_content"].is_string());
    }

    #[test]
    fn a_message_made_from_a_compaction_is_shown_as_one() {
        let key = super::super::compaction::SealKey([1; 32]);
        let compaction = Compaction::seal("All is well.".into(), "m".into(), &key);
        let new = compaction.message();
        let stored = pb::Message {
            message_id: 3,
            role: new.role,
            parts: new.parts.clone(),
            metadata: new.metadata.clone(),
            ..pb::Message::default()
        };
        let shown = items_of(CONVERSATION, &stored);
        assert_eq!(shown, [compaction.item(&format!("cmp_{HEX}_3_0"))]);
        let unstored = items_of_parts(&mut |_| "cmp_1".into(), &new);
        assert_eq!(unstored, [compaction.item("cmp_1")]);
    }

    #[test]
    fn only_the_last_item_of_a_stopped_answer_is_incomplete() {
        let mut message = answer(vec![text("a"), call("c"), text("b")]);
        message.stopped = true;
        let items = items_of(CONVERSATION, &message);
        let statuses: Vec<&Value> = items.iter().map(|item| &item["status"]).collect();
        assert_eq!(statuses, ["completed", "completed", "incomplete"]);
    }

    #[test]
    fn a_result_without_labels_is_a_text_or_its_text_and_its_media() {
        let mut result = pb::ToolResultPart {
            tool_use_id: "c".into(),
            text: "Seen.".into(),
            ..pb::ToolResultPart::default()
        };
        assert_eq!(show_output(&result, &Labels::new()), json!("Seen."));
        result.media.push(pb::MediaPart {
            uri: "https://a.example/b.png".into(),
            media_type: "image/png".into(),
            ..pb::MediaPart::default()
        });
        let shown = json!([
            {"type": "input_text", "text": "Seen."},
            {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "auto"},
        ]);
        assert_eq!(show_output(&result, &Labels::new()), shown);
        let wrong = Labels::from([(labels::LAYOUT.to_owned(), "t5".to_owned())]);
        assert_eq!(show_output(&result, &wrong), shown);
    }

    #[test]
    fn items_that_are_not_stored_get_the_ids_that_they_are_given() {
        let message = pb::NewMessage {
            parts: vec![text("a"), call("c")],
            ..text_message(pb::Role::Assistant, "")
        };
        let mut kinds = Vec::new();
        let mut ids = |kind| {
            kinds.push(kind);
            format!("id{}", kinds.len())
        };
        let items = items_of_parts(&mut ids, &message);
        assert_eq!(
            (&items[0]["id"], &items[1]["id"]),
            (&json!("id1"), &json!("id2"))
        );
        assert_eq!(kinds, [ItemKind::Message, ItemKind::FunctionCall]);
    }
}
