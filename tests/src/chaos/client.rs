//! Clients that write: appends with request ids until they are acknowledged, repeated, doubled and misused ones, separators,
//! compactions, deletions.

use std::sync::Arc;

use pb::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Code, Status, transport::Channel};

use super::{
    findings::held,
    history::{Said, Talk},
    scene::Scene,
};
use crate::{assistant, call, pb, refusal, result, user};

/// Conversations that are in use at a time.
const TALKS: usize = 3;
/// Messages of a tail at which a checkpoint is due.
const MESSAGES: u32 = 25;
/// Appends after which a conversation is left alone, and deleted every third time.
const APPENDS: usize = 120;
/// Tool input that a reader of JSON would write otherwise.
const ODD_INPUT: &str = r#"{"z": 1e2, "a":123456789012345678901234567890, "n":1.0,  "b": {"y":0.10,"x":[]}}"#;

/// One client.
pub(super) struct Client {
    scene: Arc<Scene>,
    number: usize,
    random: fastrand::Rng,
    said: usize,
}

impl Client {
    pub(super) fn new(scene: Arc<Scene>, number: usize, seed: u64) -> Self {
        Self { scene, number, random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)), said: 0 }
    }

    /// Goes on until it is enough.
    pub(super) async fn run(mut self) {
        let mut pace = interval(self.scene.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.scene.is_over() {
            pace.tick().await;
            let talk = match self.scene.ledger.alive(&mut self.random) {
                Some(talk) if self.scene.ledger.alive_count() >= TALKS => talk,
                _ => match self.create().await {
                    Some(talk) => talk,
                    None => continue,
                },
            };
            if talk.appends() >= APPENDS {
                self.leave(&talk).await;
                continue;
            }
            match self.random.u32(0..100) {
                0..4 => self.append_twice_at_once(&talk).await,
                4..9 => self.repeat(&talk).await,
                9..11 => self.misuse(&talk).await,
                11..14 => self.separate(&talk).await,
                14..16 => self.join(&talk).await,
                16..19 => self.compact(&talk).await,
                19..21 => self.mention().await,
                _ => self.append(&talk).await,
            }
        }
    }

    /// A conversation that is due for a checkpoint and a summary, and that nobody else has to do with.
    pub(super) async fn bystander(&mut self) -> Option<Arc<Talk>> {
        let talk = self.create().await?;
        talk.close();
        let mut messages = Vec::new();
        while messages.len() <= MESSAGES as usize + 10 {
            messages.extend(self.messages());
        }
        let said = Said { request_id: self.request(), messages, ids: Vec::new() };
        let place = talk.begin(said.request_id.clone(), said.messages.clone());
        match self.send(&talk, &said).await {
            Some(Ok(done)) => self.told(&talk, place, &said, &done),
            Some(Err(status)) => self.refused(&talk, "AppendMessages", &status),
            None => talk.ended(),
        }
        Some(talk)
    }

    /// The server that it asks first.
    fn first(&mut self) -> usize {
        self.random.usize(0..64)
    }

    async fn create(&mut self) -> Option<Arc<Talk>> {
        self.said += 1;
        let policy = pb::Policy {
            max_message_count: Some(MESSAGES),
            keep_recent_turns: Some(2),
            large_message_threshold: Some(300),
            hot_zone_radius: Some(1),
            ..Default::default()
        };
        let ask = pb::CreateConversationRequest {
            policy: Some(policy),
            request_id: format!("make-{}-{}", self.number, self.said),
            ..Default::default()
        };
        let first = self.first();
        let make = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel).create_conversation(ask).await.map(tonic::Response::into_inner)
            }
        };
        match self.scene.answered("CreateConversation", first, make).await? {
            Ok(created) => {
                let talk = Arc::new(Talk::new(created.conversation_id));
                self.scene.ledger.add(Arc::clone(&talk));
                Some(talk)
            }
            Err(status) => {
                self.scene.findings.add("right codes", format!("CreateConversation: {status:?}"));
                None
            }
        }
    }

    /// What is said next: a text, a turn, a call of a tool with its result, something large.
    fn messages(&mut self) -> Vec<pb::NewMessage> {
        self.said += 1;
        let mark = |place: usize| format!("mk{}x{}x{place}", self.number, self.said);
        let sentence = |place: usize| format!("Somebody has asked about the weather in town, note {}.", mark(place));
        match self.said % 10 {
            9 => vec![
                user(&sentence(0)),
                assistant(&format!("{} {}", sentence(1), "The river rose again. ".repeat(120))),
            ],
            4 => {
                let id = mark(0);
                vec![call(&id, ODD_INPUT), result(&id, &sentence(1))]
            }
            2 | 7 => vec![user(&sentence(0)), assistant(&sentence(1)), assistant(&sentence(2))],
            _ => vec![user(&sentence(0))],
        }
    }

    fn request(&self) -> String {
        format!("append-{}-{}", self.number, self.said)
    }

    /// Sends an append until it is acknowledged.
    async fn send(&mut self, talk: &Talk, said: &Said) -> Option<Result<pb::AppendMessagesResponse, Status>> {
        let first = self.first();
        send(&self.scene, first, talk, said).await
    }

    async fn append(&mut self, talk: &Talk) {
        let messages = self.messages();
        let said = Said { request_id: self.request(), messages, ids: Vec::new() };
        let place = talk.begin(said.request_id.clone(), said.messages.clone());
        match self.send(talk, &said).await {
            Some(Ok(done)) => self.told(talk, place, &said, &done),
            Some(Err(status)) => self.refused(talk, "AppendMessages", &status),
            None => talk.ended(),
        }
    }

    /// Two tries of one append under way at once: both are told the same.
    async fn append_twice_at_once(&mut self, talk: &Talk) {
        let messages = self.messages();
        let said = Said { request_id: self.request(), messages, ids: Vec::new() };
        let place = talk.begin(said.request_id.clone(), said.messages.clone());
        let (one, other) = (self.first(), self.first());
        let (one, other) = tokio::join!(send(&self.scene, one, talk, &said), send(&self.scene, other, talk, &said));
        match (one, other) {
            (Some(Ok(one)), Some(Ok(other))) => {
                self.same("two tries at once", &said, &ids(&one), &ids(&other));
                self.told(talk, place, &said, &one);
            }
            (Some(Ok(done)), _) | (_, Some(Ok(done))) => self.told(talk, place, &said, &done),
            (Some(Err(status)), _) | (_, Some(Err(status))) => self.refused(talk, "AppendMessages", &status),
            (None, None) => talk.ended(),
        }
    }

    /// An append was acknowledged with these ids.
    fn told(&self, talk: &Talk, place: usize, said: &Said, done: &pb::AppendMessagesResponse) {
        let ids = ids(done);
        self.scene.tally.one("acknowledged");
        let contiguous = ids.windows(2).all(|pair| pair[1] == pair[0] + 1) && ids.len() == said.messages.len();
        self.scene.findings.demand(contiguous, "order", || {
            format!("{} was told ids {ids:?} for {} messages", said.request_id, said.messages.len())
        });
        talk.acknowledged(place, &ids);
    }

    /// Sends an append that was acknowledged before: nothing is stored, and the same is told.
    async fn repeat(&mut self, talk: &Talk) {
        let Some(said) = talk.earlier(&mut self.random) else { return };
        let Some(Ok(again)) = self.send(talk, &said).await else { return };
        self.scene.tally.one("repeated");
        self.same("a repeated append", &said, &said.ids, &ids(&again));
        self.scene
            .findings
            .demand(again.replayed, "one effect", || format!("{} was repeated and not known again", said.request_id));
    }

    fn same(&self, what: &str, said: &Said, one: &[i64], other: &[i64]) {
        self.scene.findings.demand(one == other, "one effect", || {
            format!("{what}: {} was told {one:?} and {other:?}", said.request_id)
        });
    }

    /// An earlier request id with other messages is refused.
    async fn misuse(&mut self, talk: &Talk) {
        let Some(mut said) = talk.earlier(&mut self.random) else { return };
        said.messages = vec![user("Something else altogether.")];
        let known = match self.send(talk, &said).await {
            Some(Err(status)) => refusal(&status).reason == "REQUEST_ID_REUSED" || !talk.is_there(),
            Some(Ok(_)) => false,
            None => true,
        };
        self.scene.findings.demand(known, "one effect", || format!("{} was taken for other messages", said.request_id));
    }

    /// A call that was refused for good: right only where its conversation is being deleted.
    fn refused(&self, talk: &Talk, what: &'static str, status: &Status) {
        talk.ended();
        let deleted = status.code() == Code::NotFound && !talk.is_there();
        self.scene.findings.demand(deleted, "right codes", || format!("{what} of {}: {status:?}", talk.id));
    }

    async fn separate(&mut self, talk: &Talk) {
        self.said += 1;
        let ask = pb::InsertSeparatorRequest {
            conversation_id: talk.id.clone(),
            request_id: format!("separate-{}-{}", self.number, self.said),
            ..Default::default()
        };
        let first = self.first();
        let put = |channel: Channel| {
            let ask = ask.clone();
            async move { MessageServiceClient::new(channel).insert_separator(ask).await.map(tonic::Response::into_inner) }
        };
        if let Some(Ok(put)) = self.scene.answered("InsertSeparator", first, put).await {
            self.scene.tally.one("separators");
            held(&talk.separators).push(put.after_message_id);
        }
    }

    async fn join(&mut self, talk: &Talk) {
        self.said += 1;
        let Some(after_message_id) = held(&talk.separators).pop() else { return };
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: talk.id.clone(),
            after_message_id,
            request_id: format!("join-{}-{}", self.number, self.said),
        };
        let first = self.first();
        let delete = |channel: Channel| {
            let ask = ask.clone();
            async move { MessageServiceClient::new(channel).delete_separator(ask).await.map(tonic::Response::into_inner) }
        };
        let _ = self.scene.answered("DeleteSeparator", first, delete).await;
    }

    async fn compact(&mut self, talk: &Talk) {
        self.said += 1;
        let ask = pb::CompactRequest {
            conversation_id: talk.id.clone(),
            request_id: format!("compact-{}-{}", self.number, self.said),
            ..Default::default()
        };
        let first = self.first();
        let compact = |channel: Channel| {
            let ask = ask.clone();
            async move { ContextServiceClient::new(channel).compact(ask).await.map(tonic::Response::into_inner) }
        };
        let _ = self.scene.answered("Compact", first, compact).await;
        // Now and then the user marks an end while the summary is made.
        if self.random.bool() {
            let mut pace = interval(self.scene.pace);
            for _ in 0..self.random.u32(3..12) {
                pace.tick().await;
            }
            self.separate(talk).await;
        }
    }

    /// Lets a conversation be, or deletes it with whatever is under way in it.
    async fn leave(&mut self, talk: &Talk) {
        if self.random.u32(0..3) > 0 {
            talk.close();
        } else {
            self.delete(talk).await;
        }
    }

    /// A conversation that is deleted as soon as something was said in it.
    async fn mention(&mut self) {
        let Some(talk) = self.create().await else { return };
        talk.close();
        self.append(&talk).await;
        self.delete(&talk).await;
    }

    async fn delete(&mut self, talk: &Talk) {
        talk.die();
        let ask = pb::DeleteConversationRequest { conversation_id: talk.id.clone(), ..Default::default() };
        let first = self.first();
        let delete = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel).delete_conversation(ask).await.map(tonic::Response::into_inner)
            }
        };
        match self.scene.answered("DeleteConversation", first, delete).await {
            Some(Ok(())) => {}
            // The answer to an earlier try was lost.
            Some(Err(status)) if status.code() == Code::NotFound => {}
            Some(Err(status)) => self.scene.findings.add("right codes", format!("DeleteConversation: {status:?}")),
            None => return,
        }
        self.scene.tally.one("deleted");
        talk.died();
    }
}

async fn send(
    scene: &Scene,
    first: usize,
    talk: &Talk,
    said: &Said,
) -> Option<Result<pb::AppendMessagesResponse, Status>> {
    let ask = pb::AppendMessagesRequest {
        conversation_id: talk.id.clone(),
        request_id: said.request_id.clone(),
        messages: said.messages.clone(),
        ..Default::default()
    };
    let append = |channel: Channel| {
        let ask = ask.clone();
        async move { MessageServiceClient::new(channel).append_messages(ask).await.map(tonic::Response::into_inner) }
    };
    scene.answered("AppendMessages", first, append).await
}

fn ids(done: &pb::AppendMessagesResponse) -> Vec<i64> {
    done.messages.iter().map(|message| message.message_id).collect()
}
