//! A client of the neighbor: an application that makes ordinary calls and compares what it reads
//! with what was acknowledged.

use std::{sync::Arc, time::Duration};

use pb::{
    chat_response::Event, chat_service_client::ChatServiceClient,
    context_service_client::ContextServiceClient, conversation_event::Event as Watched,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient, operator_service_client::OperatorServiceClient,
    part::Part,
};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};
use tonic::Code;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{
    super::{chat_client::answer_to, client::Client, history::RecordedAppend},
    neighbor_state::{DEADLINE, NeighborState, status_text, with_deadline},
    watched_conversation::{COUNTED_WITHIN, WatchedConversation},
};
use crate::{AuthorizedChannel, HttpClient, assistant, pb, prose, user};

/// The interval between two rounds of calls.
const PACE: Duration = Duration::from_millis(200);
/// Rounds after which the client deletes its conversation and creates another.
const ROUNDS: usize = 8;
/// Approximate size of a long question in bytes. A sentence of `prose` has a little less than 100.
const LONG_BYTES: usize = 20_000;
/// The neighbor's agent.
const AGENT: &str = "panel";

/// One client of the neighbor.
pub(super) struct Neighbor {
    state: Arc<NeighborState>,
    number: usize,
    /// Number of changes that this client has requested.
    sent: usize,
    kept_channel: AuthorizedChannel,
    web: HttpClient,
}

impl Neighbor {
    pub(super) fn new(state: Arc<NeighborState>, number: usize) -> Self {
        let (kept_channel, web) = (
            state.channel(number),
            HttpClient::at(state.servers[number % state.servers.len()].http),
        );
        Self {
            state,
            number,
            sent: 0,
            kept_channel,
            web,
        }
    }

    /// Runs until the campaign is over.
    pub(super) async fn run(mut self) {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.state.over.is_cancelled() {
            pace.tick().await;
            let Some(conversation) = self.create().await else {
                continue;
            };
            for _ in 0..ROUNDS {
                pace.tick().await;
                if self.state.over.is_cancelled() {
                    return;
                }
                if self.round(&conversation).await.is_none() {
                    break;
                }
            }
            self.delete(&conversation).await;
        }
    }

    /// The kept channel, or, after an odd number of changes, a new one to the other server.
    fn channel(&self) -> AuthorizedChannel {
        if self.sent.is_multiple_of(2) {
            self.kept_channel.clone()
        } else {
            self.state.channel(self.number + 1)
        }
    }

    /// Creates a conversation and starts its watch.
    async fn create(&mut self) -> Option<Arc<WatchedConversation>> {
        self.sent += 1;
        let ask = pb::CreateConversationRequest {
            agent_id: AGENT.into(),
            policy: Some(Client::policy()),
            ..Default::default()
        };
        let mut conversations = ConversationServiceClient::new(self.channel());
        let made = self
            .state
            .call(
                "CreateConversation",
                conversations.create_conversation(with_deadline(ask)),
            )
            .await?;
        let conversation = Arc::new(WatchedConversation::new(made.conversation_id));
        self.state.add(&conversation);
        tokio::spawn(watch(
            Arc::clone(&self.state),
            self.state.channel(self.number),
            Arc::clone(&conversation),
        ));
        Some(conversation)
    }

    /// Makes one call of each kind. None if a change failed, because it may or may not be stored.
    async fn round(&mut self, conversation: &WatchedConversation) -> Option<()> {
        self.append(conversation).await?;
        self.chat(conversation).await?;
        self.chat_over_http(conversation).await?;
        self.read(conversation).await;
        self.read_over_http(conversation).await;
        let mut health = HealthClient::new(self.channel());
        self.state
            .call(
                "Health/Check",
                health.check(with_deadline(HealthCheckRequest::default())),
            )
            .await;
        Some(())
    }

    async fn append(&mut self, conversation: &WatchedConversation) -> Option<()> {
        self.sent += 1;
        let question = if self.sent.is_multiple_of(5) {
            prose(self.sent, LONG_BYTES / 100)
        } else {
            prose(self.sent, 1)
        };
        let messages = vec![user(&question), assistant("Noted.")];
        let append = RecordedAppend::new(format!("append-{}-{}", self.number, self.sent), messages);
        let place = conversation.recorded.begin_append(&append);
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation.recorded.id.clone(),
            messages: append.messages.clone(),
            request_id: append.request_id.clone(),
            ..Default::default()
        };
        let mut messages = MessageServiceClient::new(self.channel());
        let done = self
            .state
            .call(
                "AppendMessages",
                messages.append_messages(with_deadline(ask)),
            )
            .await?;
        let ids: Vec<i64> = done
            .messages
            .iter()
            .map(|message| message.message_id)
            .collect();
        conversation.record_acknowledged(place, &append, &ids, &self.state.findings);
        Some(())
    }

    /// Records the start of a turn. Returns the question, the messages to be stored, and the index
    /// of their append in the history.
    fn begin_turn(
        &mut self,
        conversation: &WatchedConversation,
    ) -> (String, RecordedAppend, usize) {
        self.sent += 1;
        let question = format!("What of note {} of {}?", self.sent, self.number);
        let messages = vec![user(&question), assistant(&answer_to(&question))];
        let append = RecordedAppend::new(format!("turn-{}-{}", self.number, self.sent), messages);
        let place = conversation.recorded.begin_append(&append);
        (question, append, place)
    }

    async fn chat(&mut self, conversation: &WatchedConversation) -> Option<()> {
        let (question, append, place) = self.begin_turn(conversation);
        let ask = pb::ChatRequest {
            conversation_id: conversation.recorded.id.clone(),
            messages: vec![user(&question)],
            request_id: append.request_id.clone(),
            ..Default::default()
        };
        let turn = async {
            let mut chats = ChatServiceClient::new(self.channel());
            let mut events = chats
                .chat(with_deadline(ask))
                .await
                .map_err(|status| status_text(&status))?
                .into_inner();
            let mut received = String::new();
            while let Some(event) = events
                .message()
                .await
                .map_err(|status| status_text(&status))?
            {
                match event.event {
                    Some(Event::TextDelta(text)) => received.push_str(&text),
                    Some(Event::Attempt(_)) => received.clear(),
                    Some(Event::Done(done)) => return Ok((received, done.message_ids)),
                    _ => {}
                }
            }
            Err("the turn broke off".to_owned())
        };
        let (received, ids) = self.state.measure("Chat", turn).await?;
        self.record_turn(conversation, (place, &append), &received, &ids);
        Some(())
    }

    async fn chat_over_http(&mut self, conversation: &WatchedConversation) -> Option<()> {
        let (question, append, place) = self.begin_turn(conversation);
        let body = json!({"sessionId": conversation.recorded.id, "message": question, "requestId": append.request_id});
        let request = self
            .web
            .json("POST", &format!("/api/agents/{AGENT}/chat"), &body);
        let text = self.state.request("POST chat", request).await?;
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events
            .filter_map(|data| serde_json::from_str(data).ok())
            .collect();
        let last = events.last().cloned().unwrap_or_default();
        if last["type"] != "done" {
            self.state.findings.add(
                "calls",
                format!(
                    "POST chat ended with {} {}",
                    last["type"], last["problem"]["reason"]
                ),
            );
            return None;
        }
        let pieces = events.iter().filter(|event| event["type"] == "text");
        let received: String = pieces.filter_map(|event| event["text"].as_str()).collect();
        let ids: Vec<i64> = last["messageIds"]
            .as_array()?
            .iter()
            .filter_map(Value::as_i64)
            .collect();
        self.record_turn(conversation, (place, &append), &received, &ids);
        Some(())
    }

    /// Checks and records an answered turn.
    fn record_turn(
        &self,
        conversation: &WatchedConversation,
        (place, append): (usize, &RecordedAppend),
        received: &str,
        ids: &[i64],
    ) {
        self.state.tally.increment("turns of the neighbor");
        let answer = assistant(received);
        self.state
            .findings
            .demand(append.messages.last() == Some(&answer), "content", || {
                format!("the received answer is not the model's: {received:?}")
            });
        conversation.record_acknowledged(place, append, ids, &self.state.findings);
    }

    async fn read(&self, conversation: &WatchedConversation) {
        let (state, newest, id) = (&self.state, conversation.recorded.newest(), || {
            conversation.recorded.id.clone()
        });
        let mut messages = MessageServiceClient::new(self.channel());
        let after = (newest - 20).max(0);
        let ask = pb::ListMessagesRequest {
            conversation_id: id(),
            after_message_id: after,
            ..Default::default()
        };
        if let Some(page) = state
            .call("ListMessages", messages.list_messages(with_deadline(ask)))
            .await
        {
            let ids = page.messages.iter().map(|message| message.message_id);
            state
                .findings
                .demand(ids.eq(after + 1..=newest), "order", || {
                    "a page has gaps or is short".to_owned()
                });
            page.messages
                .iter()
                .for_each(|message| conversation.compare(message, &state.findings));
            state
                .tally
                .add("messages compared", page.messages.len() as u64);
        }
        // A round stores six messages. The first of them is the appended question.
        self.read_range(conversation, newest - 5).await;
        let ask = pb::BuildContextRequest {
            conversation_id: id(),
            format: (newest % 4) as i32,
            budget_tokens: Some(4_000),
            ..Default::default()
        };
        let mut contexts = ContextServiceClient::new(self.channel());
        if let Some(context) = state
            .call("BuildContext", contexts.build_context(with_deadline(ask)))
            .await
        {
            // The newest message is an answer; the one before it is its question. If the budget
            // leaves out the messages between user messages, the user messages are joined into one
            // text.
            let question = conversation
                .recorded
                .find_message(newest - 1)
                .map(|message| text_of(&message.parts))
                .unwrap_or_default();
            let is_there = context
                .rendered
                .as_deref()
                .is_some_and(|rendered| rendered.contains(&question))
                || context
                    .messages
                    .iter()
                    .any(|message| text_of(&message.parts).ends_with(&question));
            state.findings.demand(is_there, "coverage", || {
                "a context lacks the newest user message".to_owned()
            });
            state
                .findings
                .demand(context.last_message_id == newest, "coverage", || {
                    format!(
                        "a context ends with message {}, but the newest is {newest}",
                        context.last_message_id
                    )
                });
            state.tally.increment("contexts of the neighbor");
        }
        let mut conversations = ConversationServiceClient::new(self.channel());
        let ask = pb::GetConversationRequest {
            conversation_id: id(),
        };
        if let Some(found) = state
            .call(
                "GetConversation",
                conversations.get_conversation(with_deadline(ask)),
            )
            .await
        {
            state
                .findings
                .demand(found.message_count == newest, "order", || {
                    format!(
                        "{newest} messages were acknowledged, but the conversation has {}",
                        found.message_count
                    )
                });
        }
    }

    /// Reads a range of bytes of a message and compares it.
    async fn read_range(&self, conversation: &WatchedConversation, message_id: i64) {
        let Some(message) = conversation.recorded.find_message(message_id) else {
            return;
        };
        let Some(Part::Text(part)) = message.parts.into_iter().next().and_then(|part| part.part)
        else {
            return;
        };
        let third = part.text.len() / 3;
        let (offset, length) = (third as i64, third as i64);
        let ask = pb::GetMessageRequest {
            conversation_id: conversation.recorded.id.clone(),
            message_id,
            range: Some(pb::ByteRange { offset, length }),
            ..Default::default()
        };
        let mut messages = MessageServiceClient::new(self.channel());
        if let Some(got) = self
            .state
            .call("GetMessage", messages.get_message(with_deadline(ask)))
            .await
        {
            let same = got.text == part.text[third..2 * third];
            self.state.findings.demand(same, "content", || {
                "a range of bytes is not what was sent".to_owned()
            });
        }
    }

    async fn read_over_http(&self, conversation: &WatchedConversation) {
        let (state, id) = (&self.state, &conversation.recorded.id);
        let list = self
            .web
            .request("GET", &format!("/api/agents/{AGENT}/sessions"));
        if let Some(text) = state.request("GET sessions", list).await {
            state.findings.demand(text.contains(id), "durability", || {
                "a list lacks a session in use".to_owned()
            });
        }
        let history = self
            .web
            .request("GET", &format!("/api/agents/{AGENT}/sessions/{id}"));
        if let Some(text) = state.request("GET session", history).await {
            let session: Value = serde_json::from_str(&text).unwrap_or_default();
            let count = session["messages"].as_array().map_or(0, Vec::len) as i64;
            state.findings.demand(
                count == conversation.recorded.newest(),
                "durability",
                || {
                    format!(
                        "a history has {count} messages instead of {}",
                        conversation.recorded.newest()
                    )
                },
            );
        }
    }

    /// Deletes a conversation and checks that it is gone.
    async fn delete(&self, conversation: &WatchedConversation) {
        self.state.remove(conversation);
        let id = || conversation.recorded.id.clone();
        let mut conversations = ConversationServiceClient::new(self.channel());
        let ask = pb::DeleteConversationRequest {
            conversation_id: id(),
            ..Default::default()
        };
        if self
            .state
            .call(
                "DeleteConversation",
                conversations.delete_conversation(with_deadline(ask)),
            )
            .await
            .is_none()
        {
            return;
        }
        self.state.tally.increment("deletions of the neighbor");
        let answer = conversations
            .get_conversation(with_deadline(pb::GetConversationRequest {
                conversation_id: id(),
            }))
            .await;
        let is_gone = answer
            .as_ref()
            .is_err_and(|status| status.code() == Code::NotFound);
        self.state.findings.demand(is_gone, "deletion", || {
            format!("reading a deleted conversation: {:?}", answer.err())
        });
    }
}

/// The concatenated texts of these parts.
fn text_of(parts: &[pb::Part]) -> String {
    let texts = parts.iter().filter_map(|part| match &part.part {
        Some(Part::Text(text)) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Watches a conversation until it is removed.
async fn watch(
    state: Arc<NeighborState>,
    channel: AuthorizedChannel,
    conversation: Arc<WatchedConversation>,
) {
    let mut position = String::new();
    let listen = async {
        loop {
            let after_message_id = position.is_empty().then_some(0);
            let ask = pb::WatchConversationRequest {
                conversation_id: conversation.recorded.id.clone(),
                position: position.clone(),
                after_message_id,
                ..Default::default()
            };
            let mut messages = MessageServiceClient::new(channel.clone());
            let Some(mut events) = state
                .call("WatchConversation", messages.watch_conversation(ask))
                .await
            else {
                tokio::time::interval_at(tokio::time::Instant::now() + PACE, PACE)
                    .tick()
                    .await;
                continue;
            };
            loop {
                match events.message().await {
                    Ok(Some(event)) => {
                        position = event.position;
                        record_event(&state, &conversation, event.event);
                    }
                    Ok(None) => {
                        break state
                            .findings
                            .add("watch", "a watch ended without a status");
                    }
                    Err(status) => {
                        break state
                            .findings
                            .add("watch", format!("a watch ended: {}", status_text(&status)));
                    }
                }
            }
        }
    };
    tokio::select! {
        () = conversation.over.cancelled() => {}
        () = listen => {}
    }
}

fn record_event(state: &NeighborState, conversation: &WatchedConversation, event: Option<Watched>) {
    match event {
        Some(Watched::MessageAppended(message)) => {
            state.tally.increment("messages delivered");
            conversation.record_message(&message, &state.findings, &state.latencies);
        }
        Some(Watched::TokensCounted(counted)) => {
            state.tally.increment("counts reported");
            conversation.record_counts(counted.through_message_id, &state.latencies);
        }
        Some(Watched::CheckpointCreated(_)) => state.tally.increment("checkpoints reported"),
        Some(Watched::JobDead(dead)) => state
            .findings
            .add("jobs", format!("a job was given up: {}", dead.last_error)),
        _ => {}
    }
}

/// Waits until the neighbor's watches have reported every message and every count. Then compares
/// the stored messages with the acknowledged ones.
pub(super) async fn wait_for_counts_and_compare(state: &NeighborState) {
    let mut ticks = interval(Duration::from_millis(100));
    let all_settled = async {
        loop {
            ticks.tick().await;
            let waiting = state.conversations().into_iter();
            let waiting = waiting
                .filter(|one| !one.check_waits(&state.findings, &state.latencies))
                .count();
            if waiting == 0 {
                return;
            }
        }
    };
    let settled = tokio::time::timeout(COUNTED_WITHIN + DEADLINE, all_settled).await;
    state.findings.demand(settled.is_ok(), "jobs", || {
        "messages are not counted long after the attack".to_owned()
    });
    for conversation in state.conversations() {
        compare_stored_messages(state, &conversation).await;
        state.remove(&conversation);
    }
}

/// Compares all stored messages with the acknowledged ones, and has the server verify them.
async fn compare_stored_messages(state: &NeighborState, conversation: &WatchedConversation) {
    let (mut stored, mut page_token) = (Vec::new(), String::new());
    let mut messages =
        MessageServiceClient::new(state.channel(0)).max_decoding_message_size(usize::MAX);
    loop {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.recorded.id.clone(),
            page_size: 500,
            page_token,
            ..Default::default()
        };
        let Some(page) = state
            .call("ListMessages", messages.list_messages(with_deadline(ask)))
            .await
        else {
            return;
        };
        stored.extend(page.messages);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    conversation.compare_all(&stored, &state.findings);
    state.tally.add("messages compared", stored.len() as u64);
    let ask = pb::VerifyConversationRequest {
        conversation_id: conversation.recorded.id.clone(),
    };
    let mut operators = OperatorServiceClient::new(state.channel(0));
    if let Some(verified) = state
        .call(
            "VerifyConversation",
            operators.verify_conversation(with_deadline(ask)),
        )
        .await
    {
        for violation in verified.violations {
            state.findings.add("verification", violation.description);
        }
    }
}
