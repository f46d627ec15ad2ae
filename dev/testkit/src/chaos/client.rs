//! Clients that write. They retry each append until it is acknowledged, use request ids repeatedly,
//! concurrently and wrongly, change messages, insert and delete separators, request compactions,
//! and delete conversations.

use std::sync::Arc;

use pb::{
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Code, Status, transport::Channel};

use super::{
    campaign_state::CampaignState,
    history::{RecordedAppend, RecordedConversation},
    message_states::ChangeKind,
};
use crate::{assistant, call, pb, result, user};

/// Number of conversations that the writing clients together use at the same time.
const CONVERSATIONS: usize = 3;
/// The number of messages of the tail at which a checkpoint is due.
const CHECKPOINT_MESSAGES: u32 = 25;
/// Number of appends after which the clients stop using a conversation. A third of these
/// conversations are deleted then.
const APPENDS: usize = 120;
/// The number of a client's operations before its first change of messages.
const FIRST_CHANGE: usize = 8;
/// A tool input that a JSON parser would not reproduce byte for byte.
const ODD_INPUT: &str =
    r#"{"z": 1e2, "a":123456789012345678901234567890, "n":1.0,  "b": {"y":0.10,"x":[]}}"#;

/// One client.
pub(super) struct Client {
    pub(super) state: Arc<CampaignState>,
    pub(super) number: usize,
    pub(super) random: fastrand::Rng,
    /// Number of request ids that this client has chosen so far. It makes request ids and texts
    /// unique.
    pub(super) sent: usize,
}

impl Client {
    pub(super) fn new(state: Arc<CampaignState>, number: usize, seed: u64) -> Self {
        Self {
            state,
            number,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            sent: 0,
        }
    }

    /// Runs until the campaign is over.
    pub(super) async fn run(mut self) {
        let mut pace = interval(self.state.pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Each client first makes a change of another kind, so that also a short campaign has all.
        let mut first_change = Some(ChangeKind::ALL[self.number % ChangeKind::ALL.len()]);
        let mut operations = 0;
        while !self.state.is_over() {
            pace.tick().await;
            let conversation = match self.state.history.random_alive(&mut self.random) {
                Some(conversation) if self.state.history.alive_count() >= CONVERSATIONS => {
                    conversation
                }
                _ => match self.create().await {
                    Some(conversation) => conversation,
                    None => continue,
                },
            };
            if conversation.append_count() >= APPENDS {
                self.close_or_delete(&conversation).await;
                continue;
            }
            operations += 1;
            if let Some(kind) = first_change.filter(|_| operations > FIRST_CHANGE)
                && self.state.has_changes()
            {
                if self.change(&conversation, kind).await {
                    first_change = None;
                } else {
                    // There may be nothing yet to restore.
                    self.change(&conversation, ChangeKind::Withdraw).await;
                    self.append(&conversation).await;
                }
                continue;
            }
            match self.random.u32(0..100) {
                0..4 => self.append_twice_at_once(&conversation).await,
                4..9 => self.repeat_append(&conversation).await,
                9..11 => self.reuse_request_id(&conversation).await,
                11..14 => self.insert_separator(&conversation).await,
                14..16 => self.delete_separator(&conversation).await,
                16..19 => self.compact(&conversation).await,
                19..21 => self.create_and_delete().await,
                21..23 => self.append_in_pieces(&conversation).await,
                number => match change_of(number).filter(|_| self.state.has_changes()) {
                    Some(kind) => {
                        self.change(&conversation, kind).await;
                    }
                    None => self.append(&conversation).await,
                },
            }
        }
    }

    /// Creates a conversation with enough messages for a checkpoint and a summary. No other client
    /// uses it.
    pub(super) async fn create_due_conversation(&mut self) -> Option<Arc<RecordedConversation>> {
        let conversation = self.create().await?;
        conversation.close();
        // More than a checkpoint needs. Ten calls of `next_messages` make 16 messages, and one of
        // these is large.
        let mut messages = Vec::new();
        while messages.len() <= CHECKPOINT_MESSAGES as usize + 10 {
            messages.extend(self.next_messages());
        }
        let recorded = RecordedAppend::new(self.request_id(), messages);
        let place = conversation.begin_append(&recorded);
        match self.send(&conversation, &recorded).await {
            Some(Ok(done)) => self.record_acknowledged(&conversation, place, &recorded, &done),
            Some(Err(status)) => self.report_refusal(&conversation, "AppendMessages", &status),
            None => {}
        }
        Some(conversation)
    }

    /// A random index of the server that a call tries first. The call takes it modulo the number of
    /// servers, so any range that is much larger than this number will do.
    pub(super) fn first_server(&mut self) -> usize {
        self.random.usize(0..64)
    }

    /// A policy under which checkpoints and summaries are due often.
    pub(super) fn policy() -> pb::Policy {
        pb::Policy {
            max_message_count: Some(CHECKPOINT_MESSAGES),
            keep_recent_turns: Some(2),
            large_message_threshold: Some(300),
            hot_zone_radius: Some(1),
            ..Default::default()
        }
    }

    async fn create(&mut self) -> Option<Arc<RecordedConversation>> {
        self.sent += 1;
        let ask = pb::CreateConversationRequest {
            policy: Some(Self::policy()),
            request_id: format!("make-{}-{}", self.number, self.sent),
            ..Default::default()
        };
        let first_server = self.first_server();
        let make = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel)
                    .create_conversation(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match self
            .state
            .call_with_retries("CreateConversation", first_server, make)
            .await?
        {
            Ok(created) => {
                let conversation = Arc::new(RecordedConversation::new(created.conversation_id));
                self.state.history.add(Arc::clone(&conversation));
                Some(conversation)
            }
            Err(status) => {
                self.state
                    .findings
                    .add("right codes", format!("CreateConversation: {status:?}"));
                None
            }
        }
    }

    /// The next messages: a text, a turn, a tool call with its result, or a large text.
    pub(super) fn next_messages(&mut self) -> Vec<pb::NewMessage> {
        self.sent += 1;
        let sentence = |place: usize| {
            format!(
                "Somebody has asked about the weather in town, note {}.",
                self.mark(place)
            )
        };
        match self.sent % 10 {
            9 => vec![
                user(&sentence(0)),
                assistant(&format!(
                    "{} {}",
                    sentence(1),
                    "The river rose again. ".repeat(120)
                )),
            ],
            4 => {
                let id = self.mark(0);
                vec![call(&id, ODD_INPUT), result(&id, &sentence(1))]
            }
            2 | 7 => vec![
                user(&sentence(0)),
                assistant(&sentence(1)),
                assistant(&sentence(2)),
            ],
            _ => vec![user(&sentence(0))],
        }
    }

    /// A word that occurs in no other append of the campaign. An append has several, one per
    /// `place`.
    pub(super) fn mark(&self, place: usize) -> String {
        format!("mk{}x{}x{place}", self.number, self.sent)
    }

    /// The request id of the append whose messages were made last.
    pub(super) fn request_id(&self) -> String {
        format!("append-{}-{}", self.number, self.sent)
    }

    /// Reports a final refusal as a finding, except for NOT_FOUND if the conversation is being
    /// deleted or has been deleted.
    pub(super) fn report_refusal(
        &self,
        conversation: &RecordedConversation,
        what: &'static str,
        status: &Status,
    ) {
        let promise = match (status.code() == Code::NotFound, conversation.exists()) {
            (true, false) => return,
            (true, true) => "durability",
            (false, _) => "right codes",
        };
        self.state.findings.add(
            promise,
            format!("{what} of {}: {status:?}", conversation.id),
        );
    }

    async fn insert_separator(&mut self, conversation: &RecordedConversation) {
        self.sent += 1;
        let ask = pb::InsertSeparatorRequest {
            conversation_id: conversation.id.clone(),
            request_id: format!("separate-{}-{}", self.number, self.sent),
            ..Default::default()
        };
        let first_server = self.first_server();
        let insert = |channel: Channel| {
            let ask = ask.clone();
            async move {
                MessageServiceClient::new(channel)
                    .insert_separator(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        let mut separators = conversation.separators.lock().await;
        match self
            .state
            .call_with_retries("InsertSeparator", first_server, insert)
            .await
        {
            Some(Ok(inserted)) => {
                self.state.tally.increment("separators");
                separators.after.insert(inserted.after_message_id);
            }
            Some(Err(status)) => self.report_refusal(conversation, "InsertSeparator", &status),
            None => separators.is_unknown = true,
        }
    }

    async fn delete_separator(&mut self, conversation: &RecordedConversation) {
        self.sent += 1;
        let mut separators = conversation.separators.lock().await;
        let Some(after_message_id) = separators.after.pop_last() else {
            return;
        };
        let ask = pb::DeleteSeparatorRequest {
            conversation_id: conversation.id.clone(),
            after_message_id,
            request_id: format!("join-{}-{}", self.number, self.sent),
        };
        let first_server = self.first_server();
        let delete = |channel: Channel| {
            let ask = ask.clone();
            async move {
                MessageServiceClient::new(channel)
                    .delete_separator(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match self
            .state
            .call_with_retries("DeleteSeparator", first_server, delete)
            .await
        {
            Some(Ok(_)) => {}
            Some(Err(status)) => self.report_refusal(conversation, "DeleteSeparator", &status),
            None => separators.is_unknown = true,
        }
    }

    async fn compact(&mut self, conversation: &RecordedConversation) {
        self.sent += 1;
        let ask = pb::CompactRequest {
            conversation_id: conversation.id.clone(),
            request_id: format!("compact-{}-{}", self.number, self.sent),
            ..Default::default()
        };
        let first_server = self.first_server();
        let compact = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ContextServiceClient::new(channel)
                    .compact(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        if let Some(Err(status)) = self
            .state
            .call_with_retries("Compact", first_server, compact)
            .await
        {
            self.report_refusal(conversation, "Compact", &status);
        }
        // In half of the cases, inserts a separator while the summary is made.
        if self.random.bool() {
            let mut pace = interval(self.state.pace);
            for _ in 0..self.random.u32(3..12) {
                pace.tick().await;
            }
            self.insert_separator(conversation).await;
        }
    }

    /// Stops using a conversation. In a third of the cases also deletes it, while its jobs may run.
    async fn close_or_delete(&mut self, conversation: &RecordedConversation) {
        if self.random.u32(0..3) > 0 {
            conversation.close();
        } else {
            self.delete(conversation).await;
        }
    }

    /// Creates a conversation, appends once and deletes it.
    async fn create_and_delete(&mut self) {
        let Some(conversation) = self.create().await else {
            return;
        };
        conversation.close();
        self.append(&conversation).await;
        self.delete(&conversation).await;
    }

    async fn delete(&mut self, conversation: &RecordedConversation) {
        conversation.begin_deletion();
        let ask = pb::DeleteConversationRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        let first_server = self.first_server();
        let delete = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel)
                    .delete_conversation(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match self
            .state
            .call_with_retries("DeleteConversation", first_server, delete)
            .await
        {
            Some(Ok(_)) => {}
            // The answer to an earlier try was lost.
            Some(Err(status)) if status.code() == Code::NotFound => {}
            Some(Err(status)) => self
                .state
                .findings
                .add("right codes", format!("DeleteConversation: {status:?}")),
            None => return,
        }
        self.state.tally.increment("deleted");
        conversation.confirm_deletion();
    }
}

/// The change that a client makes for this random number below 100. None: it appends.
const fn change_of(number: u32) -> Option<ChangeKind> {
    Some(match number {
        23..26 => ChangeKind::Withdraw,
        26..28 => ChangeKind::Rewind,
        28 => ChangeKind::Restore,
        29..31 => ChangeKind::Edit,
        31 => ChangeKind::Erase,
        32 => ChangeKind::Fork,
        _ => return None,
    })
}
