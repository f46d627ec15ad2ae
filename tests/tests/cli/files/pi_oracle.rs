//! Compares the context after `anneal import` of a pi session with the messages that pi itself
//! sends. Both have the same messages in the same order, except for differences that providers'
//! rules require and that the service reports.

use std::collections::BTreeMap;

use anneal_testkit::{ImportFolder, TestApp, TranscriptFolder, pb};
use pb::{RepairKind, Role, part::Part};
use serde_json::{Value, json};

use crate::files::BINARY;

/// A message in the form in which both sides are compared.
#[derive(Debug, Clone, PartialEq)]
struct ComparedMessage {
    role: Role,
    parts: Vec<Value>,
}

/// The differences between the service and pi: the message ids for each kind. Each kind is a repair
/// that the service reports.
type Differences = BTreeMap<&'static str, Vec<i64>>;

/// A message that pi sends, in the compared form.
fn pi_message(message: &Value) -> ComparedMessage {
    let blocks = message["content"].as_array().expect("blocks");
    if message["role"] == "toolResult" {
        let texts: Vec<&str> = blocks
            .iter()
            .map(|block| block["text"].as_str().expect("a text"))
            .collect();
        let part = json!({"answers": message["toolCallId"], "text": texts.join("\n"), "failed": message["isError"]});
        return ComparedMessage {
            role: Role::Tool,
            parts: vec![part],
        };
    }
    let parts = blocks
        .iter()
        .map(|block| match block["type"].as_str().expect("a type") {
            "text" => json!({"text": block["text"]}),
            "thinking" => json!({"reasoning": block["thinking"]}),
            "toolCall" => {
                json!({"call": block["id"], "name": block["name"], "input": block["arguments"]})
            }
            other => panic!("block {other}"),
        });
    let role = if message["role"] == "user" {
        Role::User
    } else {
        Role::Assistant
    };
    ComparedMessage {
        role,
        parts: parts.collect(),
    }
}

/// A message that the service sends, in the compared form.
fn context_message(message: &pb::ContextMessage) -> ComparedMessage {
    let parts = message
        .parts
        .iter()
        .map(|part| match part.part.as_ref().expect("a part") {
            Part::Text(part) => json!({"text": part.text}),
            Part::Reasoning(part) => json!({"reasoning": part.text}),
            Part::ToolUse(part) => {
                let input: Value = serde_json::from_str(&part.input).expect("pi's inputs are JSON");
                json!({"call": part.id, "name": part.name, "input": input})
            }
            Part::ToolResult(part) => {
                json!({"answers": part.tool_use_id, "text": part.text, "failed": part.is_error})
            }
            Part::Media(_) => panic!("there are no media in the session"),
        });
    ComparedMessage {
        role: message.role(),
        parts: parts.collect(),
    }
}

/// pi's messages with the changes that the service must make, and the list of these changes. The
/// rules are written independently of the service's code.
#[derive(Default)]
struct ExpectedContext {
    messages: Vec<ComparedMessage>,
    differences: Differences,
    /// Calls without a result, with the ids of their messages.
    unanswered_calls: Vec<(i64, Value)>,
    /// The user's last message, if only empty, aborted answers have followed it.
    last_question: Option<ComparedMessage>,
}

impl ExpectedContext {
    fn record_difference(&mut self, kind: &'static str, id: i64) {
        self.differences.entry(kind).or_default().push(id);
    }

    /// Adds a result for each unanswered call before the next message, because providers refuse
    /// calls without a result. They are one message.
    fn add_missing_results(&mut self) {
        let mut parts = Vec::new();
        for (id, call) in std::mem::take(&mut self.unanswered_calls) {
            parts.push(json!({"answers": call, "text": "[no result]", "failed": true}));
            self.record_difference("a call of an aborted turn is answered", id);
        }
        if !parts.is_empty() {
            self.messages.push(ComparedMessage {
                role: Role::Tool,
                parts,
            });
        }
    }

    /// Adds the next message of pi. `aborted` says whether it is an answer that was aborted or
    /// ended with an error.
    fn push(&mut self, id: i64, message: ComparedMessage, aborted: bool) {
        if message.role == Role::Tool {
            let index = self
                .unanswered_calls
                .iter()
                .position(|(_, call)| *call == message.parts[0]["answers"]);
            self.unanswered_calls
                .remove(index.expect("pi keeps every result after its call"));
            self.messages.push(message);
            return;
        }
        if message.parts.is_empty() {
            assert!(aborted, "message {id} is empty and was not aborted");
            return self.record_difference("an answer aborted before it began is left out", id);
        }
        self.add_missing_results();
        let repeats = message.role == Role::User && self.last_question.as_ref() == Some(&message);
        self.last_question = (message.role == Role::User).then(|| message.clone());
        let calls = message
            .parts
            .iter()
            .filter(|part| part.get("call").is_some());
        self.unanswered_calls
            .extend(calls.map(|part| (id, part["call"].clone())));
        match self
            .messages
            .last_mut()
            .filter(|before| before.role == message.role)
        {
            Some(_) if repeats => self.record_difference(
                "a question asked again after an aborted answer is sent once",
                id,
            ),
            Some(before) => {
                join(before, message.parts);
                let is_user = message.role == Role::User;
                self.record_difference(
                    if is_user {
                        "users' messages in a row are joined"
                    } else {
                        "answers in a row are joined"
                    },
                    id,
                );
            }
            None => self.messages.push(message),
        }
    }
}

/// Appends parts to a message. Two adjacent texts become one, with a blank line between them.
fn join(before: &mut ComparedMessage, parts: Vec<Value>) {
    let mut parts = parts.into_iter().peekable();
    let next = parts
        .peek()
        .and_then(|part| part["text"].as_str())
        .map(str::to_owned);
    if let (Some(last), Some(next)) = (before.parts.last_mut(), next)
        && let Some(text) = last["text"].as_str()
    {
        *last = json!({"text": format!("{text}\n\n{next}")});
        parts.next();
    }
    before.parts.extend(parts);
}

/// The kind of difference that a repair of the service reports.
fn difference_kind(kind: RepairKind, role: Role) -> &'static str {
    match (kind, role) {
        (RepairKind::EmptyDropped, Role::Assistant) => {
            "an answer aborted before it began is left out"
        }
        (RepairKind::ResultAdded, Role::Assistant) => "a call of an aborted turn is answered",
        (RepairKind::Merged, Role::User) => "users' messages in a row are joined",
        (RepairKind::Merged, Role::Assistant) => "answers in a row are joined",
        (RepairKind::RepeatFolded, Role::User) => {
            "a question asked again after an aborted answer is sent once"
        }
        other => panic!("an unexplained repair: {other:?}"),
    }
}

#[tokio::test]
async fn the_service_sends_the_same_as_pi_except_for_what_providers_refuse() {
    let Some(transcripts) = TranscriptFolder::find() else {
        return;
    };
    let pi_messages = transcripts.json("pi-sessions/large-session.v3.context.json");
    let pi_messages = pi_messages.as_array().expect("a list of messages");
    let session = transcripts.path("pi-sessions/large-session.v3.jsonl");
    let session = session.to_str().expect("a path");
    let no_triggers = [
        "--token-threshold",
        "100000000",
        "--max-message-count",
        "0",
        "--large-message-threshold",
        "100000000",
    ];
    let app = TestApp::start().await;
    let imports = ImportFolder::new(BINARY, &app);
    let conversation = imports
        .import_ok(&[&[session], &no_triggers[..]].concat())
        .await
        .pop()
        .expect("one conversation");
    let built = conversation.context().await;

    let mut expected = ExpectedContext::default();
    for (id, message) in (1..).zip(pi_messages) {
        expected.push(
            id,
            pi_message(message),
            ["aborted", "error"].contains(&message["stopReason"].as_str().unwrap_or("")),
        );
    }
    expected.add_missing_results();
    for (index, (sent, wanted)) in built
        .0
        .messages
        .iter()
        .map(context_message)
        .zip(&expected.messages)
        .enumerate()
    {
        assert_eq!(sent, *wanted, "message {index} of the context");
    }
    assert_eq!(built.0.messages.len(), expected.messages.len());

    let mut reported = Differences::new();
    for repair in &built.0.repairs {
        let role = conversation.message(repair.message_id).await.role();
        reported
            .entry(difference_kind(repair.kind(), role))
            .or_default()
            .push(repair.message_id);
    }
    for ids in reported.values_mut() {
        ids.sort_unstable();
    }
    assert_eq!(
        reported, expected.differences,
        "the service reports every difference, and nothing else"
    );
    let counts: Vec<_> = expected
        .differences
        .iter()
        .map(|(kind, ids)| (*kind, ids.len()))
        .collect();
    println!(
        "{} messages of pi, {} of the service: {counts:?}",
        pi_messages.len(),
        built.0.messages.len()
    );
    assert_eq!(pi_messages.len(), 914);
    let wanted = [
        ("a call of an aborted turn is answered", 18),
        ("an answer aborted before it began is left out", 14),
        ("answers in a row are joined", 1),
        ("users' messages in a row are joined", 9),
    ];
    assert_eq!(counts, wanted);
}
