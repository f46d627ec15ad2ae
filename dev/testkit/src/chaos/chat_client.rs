//! A client that runs chat turns in a session. It retries each call until there is a final answer.
//! No other client uses its conversations, so their final content is known exactly.

use std::{sync::Arc, time::Duration};

use pb::{
    chat_response::{Done, Event},
    chat_service_client::ChatServiceClient,
    conversation_service_client::ConversationServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Request, Status, transport::Channel};

use super::{
    client::Client,
    history::{RecordedAppend, RecordedConversation},
};
use crate::{assistant, direct_scope, pb, user};

/// Number of turns after which the session is rotated. They have more messages than
/// [`CHECKPOINT_MESSAGES`].
const TURNS: usize = 8;
/// The number of messages of the tail at which a checkpoint is due.
const CHECKPOINT_MESSAGES: u32 = 10;
/// The deadline that the server gets for a turn. Storing the answer may take longer.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time limit of one try of a turn. It is longer than a turn may take: after the deadline, the
/// server retries to store the answer for as long as a lease lasts.
const CHAT_TIMEOUT: Duration = Duration::from_secs(45);

/// The model's answer to this question.
pub(super) fn answer_to(question: &str) -> String {
    format!("You have asked: {question}")
}

impl Client {
    /// Runs until the campaign is over.
    pub(super) async fn run_turns(mut self) {
        let mut pace = interval(self.state.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut conversation: Option<Arc<RecordedConversation>> = None;
        while !self.state.is_over() {
            pace.tick().await;
            conversation = match conversation {
                Some(conversation) if conversation.append_count() < TURNS => {
                    self.run_turn(&conversation).await;
                    self.check_session(&conversation).await;
                    Some(conversation)
                }
                Some(conversation) => self.rotate().await.or(Some(conversation)),
                None => self
                    .resolve()
                    .await
                    .inspect(|conversation| self.state.history.add(Arc::clone(conversation))),
            };
        }
    }

    /// Retries one turn until it is answered, and checks the answer.
    async fn run_turn(&mut self, conversation: &RecordedConversation) {
        self.sent += 1;
        let question = format!("What of note {}?", self.mark(0));
        let answer = answer_to(&question);
        let recorded = RecordedAppend::new(
            format!("turn-{}-{}", self.number, self.sent),
            vec![user(&question), assistant(&answer)],
        );
        let place = conversation.begin_append(&recorded);
        let ask = pb::ChatRequest {
            conversation_id: conversation.id.clone(),
            request_id: recorded.request_id,
            messages: vec![user(&question)],
            ..Default::default()
        };
        let first_server = self.first_server();
        match self
            .state
            .call_with_retries_within(CHAT_TIMEOUT, "Chat", first_server, |channel| {
                chat(channel, ask.clone())
            })
            .await
        {
            Some(Ok((received, done))) => {
                self.state.tally.increment("turns");
                let findings = &self.state.findings;
                findings.demand(received == answer, "content", || {
                    format!(
                        "{}: asked {question:?}, received {received:?}",
                        conversation.id
                    )
                });
                findings.demand(done.message_ids.len() == 2, "one effect", || {
                    format!(
                        "{}: a turn has the messages {:?} instead of two",
                        conversation.id, done.message_ids
                    )
                });
                let after = conversation.record_acknowledged(place, &done.message_ids);
                let first_id = done.message_ids.first().copied().unwrap_or_default();
                findings.demand(first_id == after + 1, "order", || {
                    format!(
                        "{}: a turn after message {after} begins with {first_id}",
                        conversation.id
                    )
                });
            }
            Some(Err(status)) => self.report_refusal(conversation, "Chat", &status),
            None => {}
        }
    }

    /// Resolves this client's session. Returns a new record of its conversation.
    async fn resolve(&mut self) -> Option<Arc<RecordedConversation>> {
        let ask = pb::ResolveSessionRequest {
            scope: Some(self.scope()),
            defaults: Some(Self::defaults()),
            ..Default::default()
        };
        let first_server = self.first_server();
        let resolve = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel)
                    .resolve_session(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match self
            .state
            .call_with_retries("ResolveSession", first_server, resolve)
            .await?
        {
            Ok(session) => closed_record_of(session),
            Err(status) => {
                self.state
                    .findings
                    .add("right codes", format!("ResolveSession: {status:?}"));
                None
            }
        }
    }

    /// Checks that the session still leads to this conversation.
    async fn check_session(&mut self, conversation: &RecordedConversation) {
        let Some(found) = self.resolve().await else {
            return;
        };
        self.state.tally.increment("sessions found");
        self.state
            .findings
            .demand(found.id == conversation.id, "one effect", || {
                format!(
                    "a session leads to {}, but led to {} before",
                    found.id, conversation.id
                )
            });
    }

    /// Rotates this client's session, checks that its conversation is new, and adds the
    /// conversation to the history.
    async fn rotate(&mut self) -> Option<Arc<RecordedConversation>> {
        self.sent += 1;
        let ask = pb::RotateSessionRequest {
            scope: Some(self.scope()),
            defaults: Some(Self::defaults()),
            request_id: format!("rotate-{}-{}", self.number, self.sent),
        };
        let first_server = self.first_server();
        let rotate = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel)
                    .rotate_session(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match self
            .state
            .call_with_retries("RotateSession", first_server, rotate)
            .await?
        {
            Ok(session) => {
                let conversation = closed_record_of(session)?;
                let is_new = self
                    .state
                    .history
                    .all()
                    .iter()
                    .all(|other| other.id != conversation.id);
                self.state.findings.demand(is_new, "one effect", || {
                    format!(
                        "{} is not new, although the session was rotated",
                        conversation.id
                    )
                });
                self.state.tally.increment("sessions rotated");
                self.state.history.add(Arc::clone(&conversation));
                Some(conversation)
            }
            Err(status) => {
                self.state
                    .findings
                    .add("right codes", format!("RotateSession: {status:?}"));
                None
            }
        }
    }

    /// The scope of this client's session.
    fn scope(&self) -> pb::SessionScope {
        direct_scope(&format!("client-{}", self.number))
    }

    /// The settings of this client's conversations.
    fn defaults() -> pb::CreateConversationRequest {
        let policy = pb::Policy {
            max_message_count: Some(CHECKPOINT_MESSAGES),
            ..Self::policy()
        };
        pb::CreateConversationRequest {
            policy: Some(policy),
            ..Default::default()
        }
    }
}

/// A new record of a session's conversation. The record is closed, so that no other client uses the
/// conversation.
fn closed_record_of(session: pb::Session) -> Option<Arc<RecordedConversation>> {
    let conversation = RecordedConversation::new(session.conversation?.conversation_id);
    conversation.close();
    Some(Arc::new(conversation))
}

/// Runs a turn once. Returns the text of the answer and the last event.
async fn chat(channel: Channel, ask: pb::ChatRequest) -> Result<(String, Done), Status> {
    let mut request = Request::new(ask);
    request.set_timeout(DEADLINE);
    let mut events = ChatServiceClient::new(channel)
        .chat(request)
        .await?
        .into_inner();
    let mut received = String::new();
    while let Some(event) = events.message().await? {
        match event.event {
            Some(Event::TextDelta(text)) => received.push_str(&text),
            Some(Event::Attempt(_)) => received.clear(),
            Some(Event::Done(done)) => return Ok((received, done)),
            _ => {}
        }
    }
    Err(Status::unknown("the turn broke off"))
}
