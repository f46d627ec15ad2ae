//! Conversations as prompts and answers, so that chat turns can replay them: each answer of the
//! model follows a message of a user or a tool.

use anneal_testkit::{Chat, Say, TranscriptFolder, message, pb, skip_without_test_data, user};
use pb::part::Part;
use serde_json::Value;

/// A family of conversations.
pub(crate) struct Replays {
    pub(crate) name: &'static str,
    pub(crate) chats: Vec<Chat>,
}

/// How much of the conversations is replayed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Most conversations of a family.
    pub(crate) chats: usize,
    /// Most messages of a conversation's file.
    pub(crate) messages: usize,
    /// Most bytes of the texts of a prompt.
    pub(crate) prompt_bytes: usize,
}

/// How many short dialogues make one conversation.
const DIALOGUES_PER_CONVERSATION: usize = 30;
/// Most conversations of a family of short dialogues, which are all alike.
const CONVERSATIONS_OF_DIALOGUES: usize = 4;

/// The families of real conversations; none where these are not installed. Where they are required,
/// a family without conversations is a failure.
pub(crate) fn real_families(extent: Extent) -> Vec<Replays> {
    let Some(folder) = TranscriptFolder::find() else {
        return Vec::new();
    };
    let families = folder.all().into_iter();
    families
        .map(|family| {
            let is_short = matches!(family.name, "CrossWOZ" | "KdConv" | "XPersona");
            let chats = if is_short {
                let joined = family.chats.chunks(DIALOGUES_PER_CONVERSATION);
                let joined = joined.map(|some| Chat::joined(some[0].name.clone(), some));
                joined.take(CONVERSATIONS_OF_DIALOGUES).collect()
            } else {
                family.chats
            };
            let replayed = chats.iter().take(extent.chats);
            Replays {
                name: family.name,
                chats: replayed.map(|chat| of_exchanges(chat, extent)).collect(),
            }
        })
        .filter(|family| {
            if family.chats.is_empty() {
                skip_without_test_data(&format!("{} has no conversations", family.name));
            }
            !family.chats.is_empty()
        })
        .collect()
}

/// A prompt and its answer.
#[derive(Default)]
struct Exchange {
    results: Vec<pb::ToolResultPart>,
    question: String,
    answer: String,
    calls: Vec<pb::ToolUsePart>,
}

impl Exchange {
    fn is_answered(&self) -> bool {
        !self.answer.is_empty() || !self.calls.is_empty()
    }

    fn messages(self, prompt_bytes: usize) -> Vec<pb::NewMessage> {
        let mut messages = Vec::new();
        let text_bytes = prompt_bytes / (self.results.len() + 1);
        if !self.results.is_empty() {
            let shorten = |result: pb::ToolResultPart| {
                let text = shortened(&result.text, text_bytes).to_owned();
                Part::ToolResult(pb::ToolResultPart { text, ..result })
            };
            let parts = self.results.into_iter().map(shorten).collect();
            messages.push(message(pb::Role::Tool, parts));
        }
        if !self.question.is_empty() {
            messages.push(user(shortened(&self.question, text_bytes)));
        }
        if messages.is_empty() {
            messages.push(user("Go on."));
        }
        let text =
            (!self.answer.is_empty()).then_some(Part::Text(pb::TextPart { text: self.answer }));
        let calls = self.calls.into_iter().map(Part::ToolUse);
        messages.push(message(
            pb::Role::Assistant,
            text.into_iter().chain(calls).collect(),
        ));
        messages
    }
}

/// The conversation up to its last answer. Messages of one author in a row become one; reasoning,
/// media, blank texts and results without a call are left out.
fn of_exchanges(chat: &Chat, extent: Extent) -> Chat {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut current = Exchange::default();
    // Calls of the last answer without a result: their ids in the file, and their new ids.
    let mut open_calls: Vec<(String, String)> = Vec::new();
    let mut calls = 0;
    for source in chat.messages.iter().take(extent.messages) {
        let is_answer = source.role() == pb::Role::Assistant;
        for part in source.parts.iter().filter_map(|part| part.part.clone()) {
            match part {
                Part::Text(part) if part.text.trim().is_empty() => {}
                Part::Text(part) if is_answer => add_text(&mut current.answer, &part.text),
                Part::ToolUse(call) if is_answer => {
                    calls += 1;
                    let id = format!("call_{calls}");
                    open_calls.push((call.id.clone(), id.clone()));
                    current.calls.push(pb::ToolUsePart {
                        id,
                        input: object_or_empty(call.input),
                        ..call
                    });
                }
                Part::Text(part) => {
                    begin(&mut exchanges, &mut current, &mut open_calls);
                    add_text(&mut current.question, &part.text);
                }
                Part::ToolResult(result) => {
                    let answers = |(id, _): &(String, String)| *id == result.tool_use_id;
                    if !open_calls.iter().any(answers) {
                        continue;
                    }
                    begin(&mut exchanges, &mut current, &mut open_calls);
                    if let Some(open) = open_calls.iter().position(answers) {
                        current.results.push(pb::ToolResultPart {
                            tool_use_id: open_calls.remove(open).1,
                            media: Vec::new(),
                            ..result
                        });
                    }
                }
                Part::ToolUse(_) | Part::Reasoning(_) | Part::Media(_) => {}
            }
        }
    }
    begin(&mut exchanges, &mut current, &mut open_calls);
    let messages = exchanges
        .into_iter()
        .flat_map(|exchange| exchange.messages(extent.prompt_bytes));
    Chat {
        name: chat.name.clone(),
        system_prompt: chat.system_prompt.clone(),
        messages: messages.collect(),
    }
}

/// Begins another exchange, if the current one is answered. Earlier calls get no results any more.
fn begin(
    exchanges: &mut Vec<Exchange>,
    current: &mut Exchange,
    open_calls: &mut Vec<(String, String)>,
) {
    if current.is_answered() {
        open_calls.retain(|(_, id)| current.calls.iter().any(|call| call.id == *id));
        exchanges.push(std::mem::take(current));
    }
}

fn add_text(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

/// The input of a call; an empty object if it is none.
fn object_or_empty(input: String) -> String {
    let is_object = serde_json::from_str::<Value>(&input).is_ok_and(|input| input.is_object());
    if is_object { input } else { "{}".to_owned() }
}

fn shortened(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// The pieces with which a model gives this answer.
pub(crate) fn says(answer: &pb::NewMessage) -> Vec<Say> {
    let parts = answer.parts.iter().filter_map(|part| part.part.as_ref());
    parts
        .map(|part| match part {
            Part::Text(part) => Say::text(&part.text),
            Part::ToolUse(call) => Say::tool(&call.id, &call.name, &call.input),
            other => panic!("no exchange has such a part: {other:?}"),
        })
        .collect()
}
