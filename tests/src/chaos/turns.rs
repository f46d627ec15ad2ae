//! A client whose conversations are answered by the model, turn by turn, and lie in sessions: each turn is repeated until it is
//! answered, each session is asked for until it is known. Nobody else has to do with them, so that what stands in them in the end
//! is known to the word.

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
    history::{Said, Talk},
};
use crate::{assistant, direct, pb, user};

/// Turns until the session gets another conversation: more messages than a tail has when a checkpoint is due.
const TURNS: usize = 8;
const MESSAGES: u32 = 10;
/// So long a turn may take until its model has answered.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longer than a turn may take: its answer is offered to a database that is away for as long as a lease lasts, and what comes
/// after it is bounded too.
const CHAT_MOST: Duration = Duration::from_secs(45);

/// What the model answers to this.
pub(super) fn answer_to(question: &str) -> String {
    format!("You have asked: {question}")
}

impl Client {
    /// Goes on until it is enough.
    pub(super) async fn run_turns(mut self) {
        let mut pace = interval(self.scene.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut talk: Option<Arc<Talk>> = None;
        while !self.scene.is_over() {
            pace.tick().await;
            talk = match talk {
                Some(talk) if talk.appends() < TURNS => {
                    self.turn(&talk).await;
                    self.find_again(&talk).await;
                    Some(talk)
                }
                Some(talk) => self.rotate().await.or(Some(talk)),
                None => self.resolve().await.inspect(|talk| self.scene.ledger.add(Arc::clone(talk))),
            };
        }
    }

    /// Asks until it is answered.
    async fn turn(&mut self, talk: &Talk) {
        self.said += 1;
        let question = format!("What of note mk{}x{}x0?", self.number, self.said);
        let answer = answer_to(&question);
        let said = Said::new(format!("turn-{}-{}", self.number, self.said), vec![user(&question), assistant(&answer)]);
        let place = talk.begin(&said);
        let ask = pb::ChatRequest {
            conversation_id: talk.id.clone(),
            request_id: said.request_id,
            messages: vec![user(&question)],
            ..Default::default()
        };
        let first = self.first();
        match self.scene.answered_within(CHAT_MOST, "Chat", first, |channel| chat(channel, ask.clone())).await {
            Some(Ok((heard, done))) => {
                self.scene.tally.one("turns");
                let findings = &self.scene.findings;
                findings
                    .demand(heard == answer, "content", || format!("{}: asked {question:?}, heard {heard:?}", talk.id));
                findings.demand(done.message_ids.len() == 2, "one effect", || {
                    format!("{}: a turn is messages {:?}", talk.id, done.message_ids)
                });
                let after = talk.acknowledged(place, &done.message_ids);
                let first = done.message_ids.first().copied().unwrap_or_default();
                findings.demand(first == after + 1, "order", || {
                    format!("{}: a turn after message {after} begins with {first}", talk.id)
                });
            }
            Some(Err(status)) => {
                self.wrong(talk, "Chat", &status);
                talk.ended();
            }
            None => talk.ended(),
        }
    }

    /// The conversation of this client's session.
    async fn resolve(&mut self) -> Option<Arc<Talk>> {
        let ask = pb::ResolveSessionRequest {
            scope: Some(self.scope()),
            defaults: Some(Self::defaults()),
            ..Default::default()
        };
        let first = self.first();
        let resolve = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel).resolve_session(ask).await.map(tonic::Response::into_inner)
            }
        };
        match self.scene.answered("ResolveSession", first, resolve).await? {
            Ok(session) => talk_of(session),
            Err(status) => {
                self.scene.findings.add("right codes", format!("ResolveSession: {status:?}"));
                None
            }
        }
    }

    /// The session still leads to the same conversation.
    async fn find_again(&mut self, talk: &Talk) {
        let Some(found) = self.resolve().await else { return };
        self.scene.tally.one("sessions found");
        self.scene.findings.demand(found.id == talk.id, "one effect", || {
            format!("a session leads to {}, and was told to lead to {}", found.id, talk.id)
        });
    }

    /// Another conversation for the session.
    async fn rotate(&mut self) -> Option<Arc<Talk>> {
        self.said += 1;
        let ask = pb::RotateSessionRequest {
            scope: Some(self.scope()),
            defaults: Some(Self::defaults()),
            request_id: format!("rotate-{}-{}", self.number, self.said),
        };
        let first = self.first();
        let rotate = |channel: Channel| {
            let ask = ask.clone();
            async move { ConversationServiceClient::new(channel).rotate_session(ask).await.map(tonic::Response::into_inner) }
        };
        match self.scene.answered("RotateSession", first, rotate).await? {
            Ok(session) => {
                let talk = talk_of(session)?;
                let is_new = self.scene.ledger.all().iter().all(|other| other.id != talk.id);
                self.scene.findings.demand(is_new, "one effect", || format!("{} is no new conversation", talk.id));
                self.scene.tally.one("sessions rotated");
                self.scene.ledger.add(Arc::clone(&talk));
                Some(talk)
            }
            Err(status) => {
                self.scene.findings.add("right codes", format!("RotateSession: {status:?}"));
                None
            }
        }
    }

    /// Where this client talks.
    fn scope(&self) -> pb::SessionScope {
        direct(&format!("client-{}", self.number))
    }

    /// How this client's conversations start.
    fn defaults() -> pb::CreateConversationRequest {
        let policy = pb::Policy { max_message_count: Some(MESSAGES), ..Self::policy() };
        pb::CreateConversationRequest { policy: Some(policy), ..Default::default() }
    }
}

/// The conversation of a session; nobody else begins anything with it.
fn talk_of(session: pb::Session) -> Option<Arc<Talk>> {
    let talk = Talk::new(session.conversation?.conversation_id);
    talk.close();
    Some(Arc::new(talk))
}

/// One try of a turn: what was heard, and how it ended.
async fn chat(channel: Channel, ask: pb::ChatRequest) -> Result<(String, Done), Status> {
    let mut request = Request::new(ask);
    request.set_timeout(DEADLINE);
    let mut events = ChatServiceClient::new(channel).chat(request).await?.into_inner();
    let mut heard = String::new();
    while let Some(event) = events.message().await? {
        match event.event {
            Some(Event::TextDelta(text)) => heard.push_str(&text),
            Some(Event::Attempt(_)) => heard.clear(),
            Some(Event::Done(done)) => return Ok((heard, done)),
            _ => {}
        }
    }
    Err(Status::unknown("the turn broke off"))
}
