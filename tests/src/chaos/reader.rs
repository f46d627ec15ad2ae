//! Clients that read: each goes on from what it saw last, and now and then reads everything again. Whoever has seen a message
//! never sees a new one before it, never misses one that somebody was told of, and never learns of another tenant's.

use std::{collections::HashMap, sync::Arc};

use pb::{
    context_service_client::ContextServiceClient, conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Code, Status, transport::Channel};

use super::{
    history::{Talk, is_as_said},
    scene::Scene,
};
use crate::{pb, user};

/// One reader.
pub(super) struct Reader {
    scene: Arc<Scene>,
    random: fastrand::Rng,
    /// Conversations by id: what each message said when it was first seen.
    seen: HashMap<String, Vec<String>>,
}

impl Reader {
    pub(super) fn new(scene: Arc<Scene>, number: usize, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64));
        Self { scene, random, seen: HashMap::new() }
    }

    /// Goes on until it is enough.
    pub(super) async fn run(mut self) {
        let mut pace = interval(self.scene.pace * 2);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.scene.is_over() {
            pace.tick().await;
            let Some(talk) = self.scene.ledger.alive(&mut self.random) else { continue };
            match self.random.u32(0..20) {
                0 => self.read(&talk, true).await,
                1..4 => self.build(&talk).await,
                4 => self.look_abroad().await,
                _ => self.read(&talk, false).await,
            }
        }
    }

    /// Reads what is new, or everything again.
    async fn read(&mut self, talk: &Talk, again: bool) {
        let first = self.random.usize(0..64);
        let told = talk.newest();
        let seen = self.seen.get(&talk.id).map_or(0, Vec::len);
        let mut after = if again { 0 } else { seen as i64 };
        loop {
            let ask = pb::ListMessagesRequest {
                conversation_id: talk.id.clone(),
                page_size: 500,
                after_message_id: after,
                ..Default::default()
            };
            let list = |channel: Channel| {
                let ask = ask.clone();
                async move { MessageServiceClient::new(channel).list_messages(ask).await.map(tonic::Response::into_inner) }
            };
            let Some(page) = self.scene.answered("ListMessages", first, list).await else { return };
            let page = match page {
                Ok(page) => page.messages,
                Err(status) => return self.refused(talk, "ListMessages", &status),
            };
            self.scene.tally.add("messages read", page.len() as u64);
            if page.is_empty() {
                break;
            }
            for message in &page {
                after += 1;
                self.take(talk, message, after);
            }
            after = page.last().map_or(after, |last| last.message_id);
        }
        self.scene.findings.demand(after >= told || !talk.is_there(), "durability", || {
            format!("{} ends at {after}, and somebody was told of {told}", talk.id)
        });
    }

    /// One message, which is to be the one with this id, and what it was before if it was seen before.
    fn take(&mut self, talk: &Talk, message: &pb::Message, expected: i64) {
        let id = message.message_id;
        self.scene
            .findings
            .demand(id == expected, "order", || format!("{}: message {id} came where {expected} was to be", talk.id));
        let said = format!("{} {:?} {:?}", message.role, message.parts, message.turn);
        let as_said = talk.told(id).is_none_or(|said| is_as_said(message, &said));
        self.scene.findings.demand(as_said, "content", || format!("{}: message {id} is not what was said", talk.id));
        let seen = self.seen.entry(talk.id.clone()).or_default();
        match seen.get((id - 1).max(0) as usize) {
            Some(before) => self
                .scene
                .findings
                .demand(*before == said, "prefix", || format!("{}: message {id} is another one than before", talk.id)),
            None => seen.push(said),
        }
    }

    /// A context stands for every message, once each.
    async fn build(&mut self, talk: &Talk) {
        let first = self.random.usize(0..64);
        let told = talk.newest();
        let ask = pb::BuildContextRequest { conversation_id: talk.id.clone(), ..Default::default() };
        let build = |channel: Channel| {
            let ask = ask.clone();
            async move { ContextServiceClient::new(channel).build_context(ask).await.map(tonic::Response::into_inner) }
        };
        match self.scene.answered("BuildContext", first, build).await {
            Some(Ok(context)) => {
                self.scene.tally.one("contexts");
                let mut next = 1;
                let mut whole = true;
                for entry in &context.manifest {
                    whole &= entry.first_message_id == next && entry.last_message_id >= next;
                    next = entry.last_message_id + 1;
                }
                whole &= next == context.last_message_id + 1;
                self.scene.findings.demand(whole, "coverage", || format!("{}: {:?}", talk.id, context.manifest));
                self.scene.findings.demand(context.last_message_id >= told, "durability", || {
                    format!("a context of {} ends at {}, and {told} was told", talk.id, context.last_message_id)
                });
            }
            Some(Err(status)) => self.refused(talk, "BuildContext", &status),
            None => {}
        }
    }

    fn refused(&self, talk: &Talk, what: &'static str, status: &Status) {
        let deleted = status.code() == Code::NotFound && !talk.is_there();
        self.scene.findings.demand(deleted, "right codes", || format!("{what} of {}: {status:?}", talk.id));
    }

    /// Another tenant's conversation is not there.
    async fn look_abroad(&mut self) {
        let first = self.random.usize(0..64);
        let foreign = &self.scene.foreign;
        let get = |channel: Channel| {
            let ask = pb::GetConversationRequest { conversation_id: foreign.clone() };
            async move { ConversationServiceClient::new(channel).get_conversation(ask).await.map(|_| ()) }
        };
        let list = |channel: Channel| {
            let ask = pb::ListMessagesRequest { conversation_id: foreign.clone(), ..Default::default() };
            async move { MessageServiceClient::new(channel).list_messages(ask).await.map(|_| ()) }
        };
        let build = |channel: Channel| {
            let ask = pb::BuildContextRequest { conversation_id: foreign.clone(), ..Default::default() };
            async move { ContextServiceClient::new(channel).build_context(ask).await.map(|_| ()) }
        };
        let append = |channel: Channel| {
            let (conversation_id, messages) = (foreign.clone(), vec![user("from abroad")]);
            let ask = pb::AppendMessagesRequest { conversation_id, messages, ..Default::default() };
            async move { MessageServiceClient::new(channel).append_messages(ask).await.map(|_| ()) }
        };
        for outcome in [
            self.scene.answered("GetConversation", first, get).await,
            self.scene.answered("ListMessages", first, list).await,
            self.scene.answered("BuildContext", first, build).await,
            self.scene.answered("AppendMessages", first, append).await,
        ] {
            let hidden = outcome.is_none_or(|outcome| outcome.is_err_and(|status| status.code() == Code::NotFound));
            self.scene.findings.demand(hidden, "tenants", || format!("{foreign} is another tenant's, and was shown"));
        }
    }
}
