//! Translates the pieces of an answer to the events of a response. The number of an event is a
//! position: each event takes one, and each delta as many as its text has bytes and has the number
//! of its last byte. So an answer has the same numbers however its text is cut into deltas, also
//! when it is replayed from the store, and a reader that has the events up to a number gets exactly
//! the rest.

use std::collections::VecDeque;

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_proto::v1::{self as pb, part::Part};
use serde_json::{Value, json};

use super::{
    outcome::{Outcome, Status},
    parameters::ShownRequest,
};
use crate::http::openai::{
    errors::ApiError,
    ids::{ItemId, ItemKind, random_item_id},
    items,
};

/// A piece of an answer, in the order of the answer.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// More text.
    Text(String),
    /// A signed reasoning part, as it is stored. Other reasoning is not stored, so no answer shows
    /// it.
    Reasoning(pb::ReasoningPart),
    /// A complete tool call.
    Call(pb::ToolUsePart),
}

/// How the items of an answer get their ids.
#[derive(Debug, Clone, Copy)]
pub(super) enum ItemIds {
    /// From the message that stores the answer.
    Stored(ConversationId, MessageId),
    /// At random: the answer is not stored.
    Random,
}

/// The state of a translation.
pub(super) struct Translator {
    shown: ShownRequest,
    ids: ItemIds,
    /// Events up to this position are left out. None: no event is.
    after: Option<u64>,
    /// The position after the last event.
    next: u64,
    /// The message item that gets text.
    open: Option<OpenMessage>,
    /// The complete items.
    output: Vec<Value>,
    /// Events that were not taken yet.
    events: VecDeque<Value>,
    /// The response object of the last event.
    ended: Option<Value>,
}

/// A message item that gets text.
struct OpenMessage {
    id: String,
    text: String,
}

impl Piece {
    /// The pieces of a stored answer.
    pub(super) fn of_parts(parts: Vec<pb::Part>) -> impl Iterator<Item = Self> {
        parts.into_iter().filter_map(|part| match part.part? {
            Part::Text(text) => Some(Self::Text(text.text)),
            Part::Reasoning(part) => Some(Self::Reasoning(part)),
            Part::ToolUse(call) => Some(Self::Call(call)),
            Part::ToolResult(_) | Part::Media(_) => None,
        })
    }
}

impl ItemIds {
    fn id(self, kind: ItemKind, index: usize) -> String {
        match self {
            Self::Stored(conversation, message) => ItemId {
                kind,
                conversation,
                message,
                index: index as u32,
            }
            .to_string(),
            Self::Random => random_item_id(kind),
        }
    }
}

impl Translator {
    /// A translator that has made the events with which a response begins.
    pub(super) fn new(shown: ShownRequest, ids: ItemIds, after: Option<u64>) -> Self {
        let mut translator = Self {
            shown,
            ids,
            after,
            next: 0,
            open: None,
            output: Vec::new(),
            events: VecDeque::new(),
            ended: None,
        };
        translator.begin();
        translator
    }

    /// Forgets the answer, which will come again from its beginning. Only events after those that
    /// were made so far will be made.
    pub(super) fn restart(&mut self) {
        self.after = self.after.max(self.next.checked_sub(1));
        self.next = 0;
        self.open = None;
        self.output = Vec::new();
        self.begin();
    }

    fn begin(&mut self) {
        if self.shown.is_background() {
            self.emit_state("response.created", Status::Queued);
            self.emit_state("response.queued", Status::Queued);
        } else {
            self.emit_state("response.created", Status::InProgress);
        }
        self.emit_state("response.in_progress", Status::InProgress);
    }

    /// Changes how items get their ids, which must be before the first piece.
    pub(super) fn set_ids(&mut self, ids: ItemIds) {
        self.ids = ids;
    }

    /// How items get their ids.
    pub(super) const fn ids(&self) -> ItemIds {
        self.ids
    }

    /// Whether a piece of the answer has come.
    pub(super) fn has_pieces(&self) -> bool {
        self.open.is_some() || !self.output.is_empty()
    }

    /// The position after the last event.
    pub(super) const fn position(&self) -> u64 {
        self.next
    }

    /// What the answers show of the request.
    pub(super) const fn shown(&self) -> &ShownRequest {
        &self.shown
    }

    /// Takes the next event.
    pub(super) fn take_event(&mut self) -> Option<Value> {
        self.events.pop_front()
    }

    /// The response object after its end.
    pub(super) fn into_ended(self) -> Option<Value> {
        self.ended
    }

    /// Translates a piece.
    pub(super) fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.push_text(&text),
            Piece::Reasoning(part) => {
                self.close_message("completed");
                self.push_reasoning(part);
            }
            Piece::Call(call) => {
                self.close_message("completed");
                self.push_call(call);
            }
        }
    }

    /// Makes the last event. A failed response keeps no item, so an open one is not ended.
    pub(super) fn finish(&mut self, outcome: &Outcome) {
        if outcome.status.has_output() {
            self.close_message(if outcome.status == Status::Completed {
                "completed"
            } else {
                "incomplete"
            });
        }
        let object = self.shown.ended(outcome, &self.output);
        let kind = match outcome.status {
            Status::Completed => "response.completed",
            Status::Failed => "response.failed",
            Status::Incomplete | Status::Cancelled | Status::InProgress | Status::Queued => {
                "response.incomplete"
            }
        };
        if !outcome.status.has_output() {
            // What was shown of the answer is gone. The event must have a number above that of
            // every event that was sent.
            let shown_until = self.after.map_or(0, |after| after + 1);
            let position = outcome
                .position
                .unwrap_or_else(|| self.next.max(shown_until));
            self.next = position;
        }
        self.ended = Some(object.clone());
        self.emit(json!({"type": kind, "response": object}));
    }

    /// Makes the last event for a reader that cannot get the rest of the answer.
    pub(super) fn break_off(&mut self, error: &ApiError) {
        self.next = self.next.max(self.after.map_or(0, |after| after + 1));
        self.emit(error_event(error));
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let index = self.output.len();
        if self.open.is_none() {
            let id = self.ids.id(ItemKind::Message, index);
            self.emit(json!({
                "type": "response.output_item.added",
                "output_index": index,
                "item": {
                    "id": id, "type": "message", "status": "in_progress", "role": "assistant",
                    "content": [],
                },
            }));
            self.emit(part_event(
                "response.content_part.added",
                (&id, index),
                &json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []}),
            ));
            self.open = Some(OpenMessage {
                id,
                text: String::new(),
            });
        }
        let Some(open) = &mut self.open else {
            return;
        };
        open.text.push_str(text);
        let event = json!({
            "type": "response.output_text.delta",
            "item_id": open.id,
            "output_index": index,
            "content_index": 0,
            "logprobs": [],
        });
        self.emit_delta(event, text);
    }

    /// Ends the message item that gets text, if there is one.
    fn close_message(&mut self, status: &str) {
        let Some(OpenMessage { id, text }) = self.open.take() else {
            return;
        };
        let index = self.output.len();
        self.emit(json!({
            "type": "response.output_text.done",
            "item_id": id,
            "output_index": index,
            "content_index": 0,
            "text": text,
            "logprobs": [],
        }));
        let part = Part::Text(pb::TextPart { text });
        let mut item = item_of(part, &id);
        item["status"] = json!(status);
        let part = item["content"][0].clone();
        self.emit(part_event(
            "response.content_part.done",
            (&id, index),
            &part,
        ));
        self.end_item(item);
    }

    fn push_reasoning(&mut self, part: pb::ReasoningPart) {
        let index = self.output.len();
        let id = self.ids.id(ItemKind::Reasoning, index);
        let text = part.text.clone();
        let item = item_of(Part::Reasoning(part), &id);
        self.emit(json!({
            "type": "response.output_item.added",
            "output_index": index,
            "item": {"id": id, "type": "reasoning", "summary": []},
        }));
        let content = item["content"].get(0).cloned();
        if let Some(part) = content.filter(|_| !text.is_empty()) {
            let empty = json!({"type": "reasoning_text", "text": ""});
            self.emit(part_event(
                "response.content_part.added",
                (&id, index),
                &empty,
            ));
            // No deltas: the text is complete. Open Responses and OpenAI name their events
            // differently, and OpenAI's client for JavaScript fails at a name that is not its own.
            self.emit(part_event(
                "response.content_part.done",
                (&id, index),
                &part,
            ));
        }
        self.end_item(item);
    }

    fn push_call(&mut self, call: pb::ToolUsePart) {
        let index = self.output.len();
        let id = self.ids.id(ItemKind::FunctionCall, index);
        self.emit(json!({
            "type": "response.output_item.added",
            "output_index": index,
            "item": {
                "id": id, "type": "function_call", "status": "in_progress", "call_id": call.id,
                "name": call.name, "arguments": "",
            },
        }));
        let event = json!({
            "type": "response.function_call_arguments.delta",
            "item_id": id,
            "output_index": index,
        });
        self.emit_delta(event, &call.input);
        self.emit(json!({
            "type": "response.function_call_arguments.done",
            "item_id": id,
            "output_index": index,
            "name": call.name,
            "arguments": call.input,
        }));
        let item = item_of(Part::ToolUse(call), &id);
        self.end_item(item);
    }

    fn end_item(&mut self, item: Value) {
        self.emit(json!({
            "type": "response.output_item.done",
            "output_index": self.output.len(),
            "item": item,
        }));
        self.output.push(item);
    }

    fn emit_state(&mut self, kind: &str, status: Status) {
        self.emit(json!({"type": kind, "response": self.shown.running(status)}));
    }

    fn emit(&mut self, mut event: Value) {
        let position = self.next;
        self.next += 1;
        if self.after.is_none_or(|after| position > after) {
            event["sequence_number"] = json!(position);
            self.events.push_back(event);
        }
    }

    /// Emits the part of a delta that the reader does not have. Nothing, if it has all.
    fn emit_delta(&mut self, mut event: Value, text: &str) {
        let first = self.next;
        self.next += text.len() as u64;
        let had = self
            .after
            .map_or(0, |after| (after + 1).saturating_sub(first));
        let had = usize::try_from(had).unwrap_or(usize::MAX).min(text.len());
        // Only a number that no event had can be inside a character.
        let rest = &text[text.ceil_char_boundary(had)..];
        if !rest.is_empty() {
            event["delta"] = json!(rest);
            event["sequence_number"] = json!(self.next - 1);
            self.events.push_back(event);
        }
    }
}

/// The item of one part of an answer.
fn item_of(part: Part, id: &str) -> Value {
    let message = pb::NewMessage {
        role: pb::Role::Assistant.into(),
        parts: vec![pb::Part { part: Some(part) }],
        ..pb::NewMessage::default()
    };
    let items = items::items_of_parts(&mut |_| id.to_owned(), &message);
    items.into_iter().next().unwrap_or_default()
}

fn part_event(kind: &str, (id, index): (&str, usize), part: &Value) -> Value {
    json!({
        "type": kind,
        "item_id": id,
        "output_index": index,
        "content_index": 0,
        "part": part,
    })
}

/// An error in a stream, in the two forms that clients read.
fn error_event(error: &ApiError) -> Value {
    let object = error.object();
    json!({
        "type": "error",
        "code": object["code"],
        "message": object["message"],
        "param": object["param"],
        "error": object,
    })
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
