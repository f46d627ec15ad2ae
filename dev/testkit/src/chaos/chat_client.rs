//! A client whose conversations belong to sessions and are answered by the model. It retries each
//! turn until it is answered and each session until it is resolved. No other client uses its
//! conversations, so their final content is known exactly.

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

/// Turns until the session is rotated: more messages than the tail that triggers a checkpoint.
const TURNS: usize = 8;
const MESSAGES: u32 = 10;
/// The deadline of a turn until its model has answered.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longer than a turn may take: the server retries to store the answer for as long as a lease
/// lasts.
const CHAT_MOST: Duration = Duration::from_secs(45);

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
        let question = format!("What of note mk{}x{}x0?", self.number, self.sent);
        let answer = answer_to(&question);
        let recorded = RecordedAppend::new(
            format!("turn-{}-{}", self.number, self.sent),
            vec![user(&question), assistant(&answer)],
        );
        let place = conversation.begin(&recorded);
        let ask = pb::ChatRequest {
            conversation_id: conversation.id.clone(),
            request_id: recorded.request_id,
            messages: vec![user(&question)],
            ..Default::default()
        };
        let first = self.first();
        match self
            .state
            .call_with_retries_within(CHAT_MOST, "Chat", first, |channel| {
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
                        "{}: a turn is messages {:?}",
                        conversation.id, done.message_ids
                    )
                });
                let after = conversation.acknowledged(place, &done.message_ids);
                let first = done.message_ids.first().copied().unwrap_or_default();
                findings.demand(first == after + 1, "order", || {
                    format!(
                        "{}: a turn after message {after} begins with {first}",
                        conversation.id
                    )
                });
            }
            Some(Err(status)) => {
                self.report_refusal(conversation, "Chat", &status);
                conversation.end_append();
            }
            None => conversation.end_append(),
        }
    }

    /// Resolves this client's session.
    async fn resolve(&mut self) -> Option<Arc<RecordedConversation>> {
        let ask = pb::ResolveSessionRequest {
            scope: Some(self.scope()),
            defaults: Some(Self::defaults()),
            ..Default::default()
        };
        let first = self.first();
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
            .call_with_retries("ResolveSession", first, resolve)
            .await?
        {
            Ok(session) => conversation_of(session),
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
                    "a session leads to {}, and was told to lead to {}",
                    found.id, conversation.id
                )
            });
    }

    /// Rotates this client's session.
    async fn rotate(&mut self) -> Option<Arc<RecordedConversation>> {
        self.sent += 1;
        let ask = pb::RotateSessionRequest {
            scope: Some(self.scope()),
            defaults: Some(Self::defaults()),
            request_id: format!("rotate-{}-{}", self.number, self.sent),
        };
        let first = self.first();
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
            .call_with_retries("RotateSession", first, rotate)
            .await?
        {
            Ok(session) => {
                let conversation = conversation_of(session)?;
                let is_new = self
                    .state
                    .history
                    .all()
                    .iter()
                    .all(|other| other.id != conversation.id);
                self.state.findings.demand(is_new, "one effect", || {
                    format!("{} is no new conversation", conversation.id)
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

    /// Defaults of this client's conversations.
    fn defaults() -> pb::CreateConversationRequest {
        let policy = pb::Policy {
            max_message_count: Some(MESSAGES),
            ..Self::policy()
        };
        pb::CreateConversationRequest {
            policy: Some(policy),
            ..Default::default()
        }
    }
}

/// The conversation of a session. It is closed, so that no other client uses it.
fn conversation_of(session: pb::Session) -> Option<Arc<RecordedConversation>> {
    let conversation = RecordedConversation::new(session.conversation?.conversation_id);
    conversation.close();
    Some(Arc::new(conversation))
}

/// One try of a turn: the text of the answer, and its last event.
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
