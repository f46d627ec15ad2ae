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
    history::{Said, Talk},
    scene::Scene,
};
use crate::{assistant, call, pb, result, user};

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
    pub(super) scene: Arc<Scene>,
    pub(super) number: usize,
    pub(super) random: fastrand::Rng,
    pub(super) said: usize,
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
                21..23 => self.append_in_pieces(&talk).await,
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
        let said = Said::new(self.request(), messages);
        let place = talk.begin(&said);
        match self.send(&talk, &said).await {
            Some(Ok(done)) => self.told(&talk, place, &said, &done),
            Some(Err(status)) => self.refused(&talk, "AppendMessages", &status),
            None => talk.ended(),
        }
        Some(talk)
    }

    /// The server that it asks first.
    pub(super) fn first(&mut self) -> usize {
        self.random.usize(0..64)
    }

    /// Checkpoints are due often, and summaries of what is not very large.
    pub(super) fn policy() -> pb::Policy {
        pb::Policy {
            max_message_count: Some(MESSAGES),
            keep_recent_turns: Some(2),
            large_message_threshold: Some(300),
            hot_zone_radius: Some(1),
            ..Default::default()
        }
    }

    async fn create(&mut self) -> Option<Arc<Talk>> {
        self.said += 1;
        let ask = pb::CreateConversationRequest {
            policy: Some(Self::policy()),
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
    pub(super) fn messages(&mut self) -> Vec<pb::NewMessage> {
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

    pub(super) fn request(&self) -> String {
        format!("append-{}-{}", self.number, self.said)
    }

    /// A call that was refused for good: right only where its conversation is being deleted.
    pub(super) fn wrong(&self, talk: &Talk, what: &'static str, status: &Status) {
        let promise = match (status.code() == Code::NotFound, talk.is_there()) {
            (true, false) => return,
            (true, true) => "durability",
            (false, _) => "right codes",
        };
        self.scene.findings.add(promise, format!("{what} of {}: {status:?}", talk.id));
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
        let mut marks = talk.marks.lock().await;
        match self.scene.answered("InsertSeparator", first, put).await {
            Some(Ok(put)) => {
                self.scene.tally.one("separators");
                marks.after.insert(put.after_message_id);
            }
            Some(Err(status)) => self.wrong(talk, "InsertSeparator", &status),
            None => marks.unsure = true,
        }
    }

    async fn join(&mut self, talk: &Talk) {
        self.said += 1;
        let mut marks = talk.marks.lock().await;
        let Some(after_message_id) = marks.after.pop_last() else { return };
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
        match self.scene.answered("DeleteSeparator", first, delete).await {
            Some(Ok(_)) => {}
            Some(Err(status)) => self.wrong(talk, "DeleteSeparator", &status),
            None => marks.unsure = true,
        }
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
        if let Some(Err(status)) = self.scene.answered("Compact", first, compact).await {
            self.wrong(talk, "Compact", &status);
        }
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
