//! What pi itself would send of a session, against what the service sends after `anneal import` of its file: the same
//! messages in the same order, but for a list of differences, each of which a provider's rules explain.

use std::collections::BTreeMap;

use anneal_tests::{Data, Files, House, pb};
use pb::{RepairKind, Role, part::Part};
use serde_json::{Value, json};

use crate::BINARY;

/// A message as both sides are compared.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    role: Role,
    parts: Vec<Value>,
}

/// What the service does otherwise than pi, by kind: the ids of the messages concerned. Kinds are those of the repairs that
/// the service reports; there is no other difference.
type Differences = BTreeMap<&'static str, Vec<i64>>;

/// Message by message what pi sends, in the form in which both sides are compared.
fn pi_message(said: &Value) -> Said {
    let blocks = said["content"].as_array().expect("blocks");
    if said["role"] == "toolResult" {
        let texts: Vec<&str> = blocks.iter().map(|block| block["text"].as_str().expect("a text")).collect();
        let part = json!({"answers": said["toolCallId"], "text": texts.join("\n"), "failed": said["isError"]});
        return Said { role: Role::Tool, parts: vec![part] };
    }
    let parts = blocks.iter().map(|block| match block["type"].as_str().expect("a type") {
        "text" => json!({"text": block["text"]}),
        "thinking" => json!({"thought": block["thinking"]}),
        "toolCall" => json!({"call": block["id"], "name": block["name"], "input": block["arguments"]}),
        other => panic!("block {other}"),
    });
    let role = if said["role"] == "user" { Role::User } else { Role::Assistant };
    Said { role, parts: parts.collect() }
}

fn sent(message: &pb::ContextMessage) -> Said {
    let parts = message.parts.iter().map(|part| match part.part.as_ref().expect("a part") {
        Part::Text(part) => json!({"text": part.text}),
        Part::Reasoning(part) => json!({"thought": part.text}),
        Part::ToolUse(part) => {
            let input: Value = serde_json::from_str(&part.input).expect("pi's inputs are JSON");
            json!({"call": part.id, "name": part.name, "input": input})
        }
        Part::ToolResult(part) => json!({"answers": part.tool_use_id, "text": part.text, "failed": part.is_error}),
        Part::Media(_) => panic!("there are no media in the session"),
    });
    Said { role: message.role(), parts: parts.collect() }
}

/// What pi sends, changed where the service must change it, and the list of these changes. The rules are told here anew, in
/// the order of the messages; the service's own code has no part in it.
#[derive(Default)]
struct Explained {
    messages: Vec<Said>,
    differences: Differences,
    /// Calls that wait for their result, with the message that they are in.
    open: Vec<(i64, Value)>,
    /// What the user said last, if nothing but aborted answers came after it.
    asked: Option<Said>,
}

impl Explained {
    fn differs(&mut self, kind: &'static str, id: i64) {
        self.differences.entry(kind).or_default().push(id);
    }

    /// Calls that nobody answered get a result before anything else is said: providers refuse calls without one.
    fn answer_open_calls(&mut self) {
        for (id, call) in std::mem::take(&mut self.open) {
            let part = json!({"answers": call, "text": "[no result]", "failed": true});
            self.messages.push(Said { role: Role::Tool, parts: vec![part] });
            self.differs("a call of an aborted turn is answered", id);
        }
    }

    fn take(&mut self, id: i64, said: Said, aborted: bool) {
        if said.role == Role::Tool {
            let place = self.open.iter().position(|(_, call)| *call == said.parts[0]["answers"]);
            self.open.remove(place.expect("pi keeps every result after its call"));
            self.messages.push(said);
            return;
        }
        if said.parts.is_empty() {
            assert!(aborted, "message {id} says nothing and was not aborted");
            return self.differs("an answer aborted before it began is left out", id);
        }
        self.answer_open_calls();
        let repeats = said.role == Role::User && self.asked.as_ref() == Some(&said);
        self.asked = (said.role == Role::User).then(|| said.clone());
        let calls = said.parts.iter().filter(|part| part.get("call").is_some());
        self.open.extend(calls.map(|part| (id, part["call"].clone())));
        match self.messages.last_mut().filter(|before| before.role == said.role) {
            Some(_) if repeats => self.differs("a question asked again after an aborted answer is sent once", id),
            Some(before) => {
                join(before, said.parts);
                let user = self.asked.is_some();
                self.differs(
                    if user { "users' messages in a row are joined" } else { "answers in a row are joined" },
                    id,
                );
            }
            None => self.messages.push(said),
        }
    }
}

/// Texts that meet become one, with a blank line between.
fn join(before: &mut Said, parts: Vec<Value>) {
    let mut parts = parts.into_iter().peekable();
    let next = parts.peek().and_then(|part| part["text"].as_str()).map(str::to_owned);
    if let (Some(last), Some(next)) = (before.parts.last_mut(), next)
        && let Some(text) = last["text"].as_str()
    {
        *last = json!({"text": format!("{text}\n\n{next}")});
        parts.next();
    }
    before.parts.extend(parts);
}

/// A repair by the name of the difference that it is.
fn name(kind: RepairKind, role: Role) -> &'static str {
    match (kind, role) {
        (RepairKind::EmptyDropped, Role::Assistant) => "an answer aborted before it began is left out",
        (RepairKind::ResultAdded, Role::Assistant) => "a call of an aborted turn is answered",
        (RepairKind::Merged, Role::User) => "users' messages in a row are joined",
        (RepairKind::Merged, Role::Assistant) => "answers in a row are joined",
        (RepairKind::RepeatFolded, Role::User) => "a question asked again after an aborted answer is sent once",
        other => panic!("an unexplained repair: {other:?}"),
    }
}

#[tokio::test]
async fn the_service_sends_what_pi_itself_would_send_but_for_what_providers_refuse() {
    let Some(data) = Data::find() else { return };
    let pi = data.json("pi-sessions/large-session.v3.context.json");
    let pi = pi.as_array().expect("a list of messages");
    let session = data.path("pi-sessions/large-session.v3.jsonl");
    let session = session.to_str().expect("a path");
    let nothing_trips =
        ["--token-threshold", "100000000", "--max-message-count", "0", "--large-message-threshold", "100000000"];
    let house = House::start().await;
    let files = Files::new(BINARY, &house);
    let talk = files.imported(&[&[session], &nothing_trips[..]].concat()).await.pop().expect("one conversation");
    let built = talk.context().await;

    let mut explained = Explained::default();
    for (id, said) in (1..).zip(pi) {
        explained.take(id, pi_message(said), ["aborted", "error"].contains(&said["stopReason"].as_str().unwrap_or("")));
    }
    explained.answer_open_calls();
    for (place, (sent, wanted)) in built.0.messages.iter().map(sent).zip(&explained.messages).enumerate() {
        assert_eq!(sent, *wanted, "message {place} of the context");
    }
    assert_eq!(built.0.messages.len(), explained.messages.len());

    let mut reported = Differences::new();
    for repair in &built.0.repairs {
        let role = talk.message(repair.message_id).await.role();
        reported.entry(name(repair.kind(), role)).or_default().push(repair.message_id);
    }
    for ids in reported.values_mut() {
        ids.sort_unstable();
    }
    assert_eq!(reported, explained.differences, "the service reports every difference, and nothing else");
    let counts: Vec<_> = explained.differences.iter().map(|(kind, ids)| (*kind, ids.len())).collect();
    println!("{} messages of pi, {} of the service: {counts:?}", pi.len(), built.0.messages.len());
    assert_eq!(pi.len(), 914);
    let wanted = [
        ("a call of an aborted turn is answered", 18),
        ("an answer aborted before it began is left out", 14),
        ("answers in a row are joined", 1),
        ("users' messages in a row are joined", 9),
    ];
    assert_eq!(counts, wanted);
}
