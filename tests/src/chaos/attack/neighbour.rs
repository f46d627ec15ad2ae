//! A client of the neighbour's: an application that does its ordinary work, call by call, and compares what it reads with what it
//! was told.

use std::{sync::Arc, time::Duration};

use pb::{
    chat_response::Event, chat_service_client::ChatServiceClient, context_service_client::ContextServiceClient,
    conversation_event::Event as Watched, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient, part::Part,
};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{
    super::{client::Client, history::Said, turns::answer_to},
    promises::{COUNTED_WITHIN, Conversation},
    work::{DEADLINE, Work, due, in_words},
};
use crate::{Guest, Web, assistant, pb, prose, user};

/// From one round of calls to the next.
const PACE: Duration = Duration::from_millis(200);
/// Rounds after which a conversation is deleted, and another one begun.
const ROUNDS: usize = 8;
/// Bytes of a message that is read by ranges.
const LONG: usize = 20_000;
/// The neighbour's agent.
const AGENT: &str = "panel";

/// One client.
pub(super) struct Neighbour {
    work: Arc<Work>,
    number: usize,
    said: usize,
    kept: Guest,
    web: Web,
}

impl Neighbour {
    pub(super) fn new(work: Arc<Work>, number: usize) -> Self {
        let (kept, web) = (work.guest(number), Web::at(work.servers[number % work.servers.len()].http));
        Self { work, number, said: 0, kept, web }
    }

    /// Works until it is over.
    pub(super) async fn run(mut self) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.work.over.is_cancelled() {
            pace.tick().await;
            let Some(conversation) = self.create().await else { continue };
            for _ in 0..ROUNDS {
                pace.tick().await;
                if self.work.over.is_cancelled() {
                    return;
                }
                if self.round(&conversation).await.is_none() {
                    break;
                }
            }
            self.delete(&conversation).await;
        }
    }

    /// The connection of the next call: the one that is kept, or a new one to the other server.
    fn guest(&self) -> Guest {
        if self.said.is_multiple_of(2) { self.kept.clone() } else { self.work.guest(self.number + 1) }
    }

    /// A conversation whose watch has begun.
    async fn create(&mut self) -> Option<Arc<Conversation>> {
        self.said += 1;
        let ask = pb::CreateConversationRequest {
            agent_id: AGENT.into(),
            policy: Some(Client::policy()),
            ..Default::default()
        };
        let mut conversations = ConversationServiceClient::new(self.guest());
        let made = self.work.call("CreateConversation", conversations.create_conversation(due(ask))).await?;
        let conversation = Arc::new(Conversation::new(made.conversation_id));
        self.work.begin(&conversation);
        tokio::spawn(watch(Arc::clone(&self.work), self.work.guest(self.number), Arc::clone(&conversation)));
        Some(conversation)
    }

    /// One of each call; None: one failed that leaves open what is stored.
    async fn round(&mut self, conversation: &Conversation) -> Option<()> {
        self.append(conversation).await?;
        self.chat(conversation).await?;
        self.chat_over_http(conversation).await?;
        self.read(conversation).await;
        self.read_over_http(conversation).await;
        let mut health = HealthClient::new(self.guest());
        self.work.call("Health/Check", health.check(due(HealthCheckRequest::default()))).await;
        Some(())
    }

    async fn append(&mut self, conversation: &Conversation) -> Option<()> {
        self.said += 1;
        let said = if self.said.is_multiple_of(5) { prose(self.said, LONG / 100) } else { prose(self.said, 1) };
        let messages = vec![user(&said), assistant("Noted.")];
        let said = Said::new(format!("append-{}-{}", self.number, self.said), messages);
        let place = conversation.talk.begin(&said);
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation.talk.id.clone(),
            messages: said.messages.clone(),
            request_id: said.request_id.clone(),
            ..Default::default()
        };
        let mut messages = MessageServiceClient::new(self.guest());
        let done = self.work.call("AppendMessages", messages.append_messages(due(ask))).await?;
        let ids: Vec<i64> = done.messages.iter().map(|message| message.message_id).collect();
        conversation.acknowledged(place, &said, &ids, &self.work.findings);
        Some(())
    }

    /// A question that the model answers, and how its turn is stored.
    fn question(&mut self, conversation: &Conversation) -> (String, Said, usize) {
        self.said += 1;
        let question = format!("What of note {} of {}?", self.said, self.number);
        let messages = vec![user(&question), assistant(&answer_to(&question))];
        let said = Said::new(format!("turn-{}-{}", self.number, self.said), messages);
        let place = conversation.talk.begin(&said);
        (question, said, place)
    }

    async fn chat(&mut self, conversation: &Conversation) -> Option<()> {
        let (question, said, place) = self.question(conversation);
        let ask = pb::ChatRequest {
            conversation_id: conversation.talk.id.clone(),
            messages: vec![user(&question)],
            request_id: said.request_id.clone(),
            ..Default::default()
        };
        let turn = async {
            let mut chats = ChatServiceClient::new(self.guest());
            let mut events = chats.chat(due(ask)).await.map_err(|status| in_words(&status))?.into_inner();
            let mut heard = String::new();
            while let Some(event) = events.message().await.map_err(|status| in_words(&status))? {
                match event.event {
                    Some(Event::TextDelta(text)) => heard.push_str(&text),
                    Some(Event::Attempt(_)) => heard.clear(),
                    Some(Event::Done(done)) => return Ok((heard, done.message_ids)),
                    _ => {}
                }
            }
            Err("the turn broke off".to_owned())
        };
        let (heard, ids) = self.work.measured("Chat", turn).await?;
        self.answered(conversation, (place, &said), &heard, &ids);
        Some(())
    }

    async fn chat_over_http(&mut self, conversation: &Conversation) -> Option<()> {
        let (question, said, place) = self.question(conversation);
        let body = json!({"sessionId": conversation.talk.id, "message": question, "requestId": said.request_id});
        let request = self.web.json("POST", &format!("/api/agents/{AGENT}/chat"), &body);
        let text = self.work.request("POST chat", request).await?;
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
        let last = events.last().cloned().unwrap_or_default();
        if last["type"] != "done" {
            self.work
                .findings
                .add("calls", format!("POST chat ended with {} {}", last["type"], last["problem"]["reason"]));
            return None;
        }
        let pieces = events.iter().filter(|event| event["type"] == "text");
        let heard: String = pieces.filter_map(|event| event["text"].as_str()).collect();
        let ids: Vec<i64> = last["messageIds"].as_array()?.iter().filter_map(Value::as_i64).collect();
        self.answered(conversation, (place, &said), &heard, &ids);
        Some(())
    }

    /// A turn was answered, and is stored.
    fn answered(&self, conversation: &Conversation, (place, said): (usize, &Said), heard: &str, ids: &[i64]) {
        self.work.tally.one("turns of the neighbour");
        let answer = assistant(heard);
        self.work.findings.demand(said.messages.last() == Some(&answer), "content", || {
            format!("the model's answer came as {heard:?}")
        });
        conversation.acknowledged(place, said, ids, &self.work.findings);
    }

    async fn read(&self, conversation: &Conversation) {
        let (work, newest, id) = (&self.work, conversation.talk.newest(), || conversation.talk.id.clone());
        let mut messages = MessageServiceClient::new(self.guest());
        let after = (newest - 20).max(0);
        let ask = pb::ListMessagesRequest { conversation_id: id(), after_message_id: after, ..Default::default() };
        if let Some(page) = work.call("ListMessages", messages.list_messages(due(ask))).await {
            let ids = page.messages.iter().map(|message| message.message_id);
            work.findings.demand(ids.eq(after + 1..=newest), "order", || "a page has gaps or is short".to_owned());
            page.messages.iter().for_each(|message| conversation.compare(message, &work.findings));
            work.tally.add("messages compared", page.messages.len() as u64);
        }
        self.read_range(conversation, newest - 5).await;
        let ask = pb::BuildContextRequest {
            conversation_id: id(),
            format: (newest % 4) as i32,
            budget_tokens: Some(4_000),
            ..Default::default()
        };
        let mut contexts = ContextServiceClient::new(self.guest());
        if let Some(context) = work.call("BuildContext", contexts.build_context(due(ask))).await {
            // Where a budget leaves out what was between them, several user messages are one text.
            let question = conversation.talk.told(newest - 1).map(|said| text_of(&said.parts)).unwrap_or_default();
            let is_there = context.rendered.as_deref().is_some_and(|rendered| rendered.contains(&question))
                || context.messages.iter().any(|message| text_of(&message.parts).ends_with(&question));
            work.findings.demand(is_there, "coverage", || "a context lacks the newest user message".to_owned());
            work.findings.demand(context.last_message_id == newest, "coverage", || {
                format!("a context ends with {} of {newest}", context.last_message_id)
            });
            work.tally.one("contexts of the neighbour");
        }
        let mut conversations = ConversationServiceClient::new(self.guest());
        let ask = pb::GetConversationRequest { conversation_id: id() };
        if let Some(said) = work.call("GetConversation", conversations.get_conversation(due(ask))).await {
            work.findings.demand(said.message_count == newest, "order", || {
                format!("{newest} messages were acknowledged, and {} are there", said.message_count)
            });
        }
    }

    /// Bytes of a message, as they were said.
    async fn read_range(&self, conversation: &Conversation, message_id: i64) {
        let Some(said) = conversation.talk.told(message_id) else { return };
        let Some(Part::Text(said)) = said.parts.into_iter().next().and_then(|part| part.part) else { return };
        let (offset, length) = (said.text.len() / 3, said.text.len() / 3);
        let range = pb::ByteRange { offset: offset as i64, length: length as i64 };
        let ask =
            pb::GetMessageRequest { conversation_id: conversation.talk.id.clone(), message_id, range: Some(range) };
        let mut messages = MessageServiceClient::new(self.guest());
        if let Some(got) = self.work.call("GetMessage", messages.get_message(due(ask))).await {
            let same = got.text == said.text[offset..offset + length];
            self.work.findings.demand(same, "content", || "a range of bytes is not what was said".to_owned());
        }
    }

    async fn read_over_http(&self, conversation: &Conversation) {
        let (work, id) = (&self.work, &conversation.talk.id);
        let list = self.web.request("GET", &format!("/api/agents/{AGENT}/sessions"));
        if let Some(text) = work.request("GET sessions", list).await {
            work.findings.demand(text.contains(id), "durability", || "a list lacks a session in use".to_owned());
        }
        let history = self.web.request("GET", &format!("/api/agents/{AGENT}/sessions/{id}"));
        if let Some(text) = work.request("GET session", history).await {
            let session: Value = serde_json::from_str(&text).unwrap_or_default();
            let count = session["messages"].as_array().map_or(0, Vec::len) as i64;
            work.findings.demand(count == conversation.talk.newest(), "durability", || {
                format!("a history has {count} messages of {}", conversation.talk.newest())
            });
        }
    }

    /// Deletes a conversation: nothing is left of it.
    async fn delete(&self, conversation: &Conversation) {
        self.work.leave(conversation);
        let id = || conversation.talk.id.clone();
        let mut conversations = ConversationServiceClient::new(self.guest());
        let ask = pb::DeleteConversationRequest { conversation_id: id(), ..Default::default() };
        if self.work.call("DeleteConversation", conversations.delete_conversation(due(ask))).await.is_none() {
            return;
        }
        self.work.tally.one("deletions of the neighbour");
        let again = conversations.get_conversation(due(pb::GetConversationRequest { conversation_id: id() })).await;
        let is_gone = again.as_ref().is_err_and(|status| status.code() == Code::NotFound);
        self.work.findings.demand(is_gone, "deletion", || format!("a deleted conversation: {:?}", again.err()));
    }
}

/// The texts among these parts.
fn text_of(parts: &[pb::Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.part {
        Some(Part::Text(text)) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Listens to a conversation until nobody has to do with it any more.
async fn watch(work: Arc<Work>, guest: Guest, conversation: Arc<Conversation>) {
    let mut position = String::new();
    let listen = async {
        loop {
            let after_message_id = position.is_empty().then_some(0);
            let ask = pb::WatchConversationRequest {
                conversation_id: conversation.talk.id.clone(),
                position: position.clone(),
                after_message_id,
                ..Default::default()
            };
            let mut messages = MessageServiceClient::new(guest.clone());
            let Some(mut events) = work.call("WatchConversation", messages.watch_conversation(ask)).await else {
                tokio::time::interval_at(tokio::time::Instant::now() + PACE, PACE).tick().await;
                continue;
            };
            loop {
                match events.message().await {
                    Ok(Some(event)) => {
                        position = event.position;
                        hear(&work, &conversation, event.event);
                    }
                    Ok(None) => break work.findings.add("watch", "a watch ended without a status"),
                    Err(status) => break work.findings.add("watch", format!("a watch ended: {}", in_words(&status))),
                }
            }
        }
    };
    tokio::select! {
        () = conversation.over.cancelled() => {}
        () = listen => {}
    }
}

fn hear(work: &Work, conversation: &Conversation, event: Option<Watched>) {
    match event {
        Some(Watched::MessageAppended(message)) => {
            work.tally.one("messages heard");
            conversation.hear(&message, &work.findings, &work.latencies);
        }
        Some(Watched::TokensCounted(counted)) => {
            work.tally.one("counts heard");
            conversation.hear_counts(counted.through_message_id, &work.latencies);
        }
        Some(Watched::CheckpointCreated(_)) => work.tally.one("checkpoints heard"),
        Some(Watched::JobDead(dead)) => work.findings.add("jobs", format!("a job was given up: {}", dead.last_error)),
        _ => {}
    }
}

/// Waits until all that the neighbour has said is heard and counted; compares what is stored with what was said.
pub(super) async fn settle(work: &Work) {
    let mut looks = interval(Duration::from_millis(100));
    let all_settled = async {
        loop {
            looks.tick().await;
            let waiting = work.conversations().into_iter();
            let waiting = waiting.filter(|one| !one.check_waits(&work.findings, &work.latencies)).count();
            if waiting == 0 {
                return;
            }
        }
    };
    let settled = tokio::time::timeout(COUNTED_WITHIN + DEADLINE, all_settled).await;
    work.findings.demand(settled.is_ok(), "jobs", || "jobs are left long after the attack".to_owned());
    for conversation in work.conversations() {
        compare_stored(work, &conversation).await;
        work.leave(&conversation);
    }
}

async fn compare_stored(work: &Work, conversation: &Conversation) {
    let (mut stored, mut page_token) = (Vec::new(), String::new());
    let mut messages = MessageServiceClient::new(work.guest(0)).max_decoding_message_size(usize::MAX);
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.talk.id.clone(),
            page_size: 500,
            page_token,
            ..Default::default()
        };
        let Some(page) = work.call("ListMessages", messages.list_messages(due(ask))).await else { return };
        stored.extend(page.messages);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    conversation.compare_all(&stored, &work.findings);
    work.tally.add("messages compared", stored.len() as u64);
    let ask = pb::VerifyConversationRequest { conversation_id: conversation.talk.id.clone() };
    let mut operators = OperatorServiceClient::new(work.guest(0));
    if let Some(verified) = work.call("VerifyConversation", operators.verify_conversation(due(ask))).await {
        for violation in verified.violations {
            work.findings.add("verification", violation.description);
        }
    }
}
