//! Clients that read. Each continues after the last message that it saw, and sometimes reads all
//! messages again. No new message may appear before a message that the reader has seen, no
//! acknowledged message may be missing, nothing may be visible whose withdrawal, edit or erasure was
//! acknowledged before, and no other tenant's data may be visible.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use pb::{
    context_service_client::ContextServiceClient,
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tokio::time::{MissedTickBehavior, interval};
use tonic::{Code, Status, transport::Channel};

use super::{
    campaign_state::CampaignState,
    final_checks::check_marks,
    history::RecordedConversation,
    message_states::{Comparison, Moment},
    recount::check_count,
};
use crate::{pb, status_details, user};

/// One reader.
pub(super) struct Reader {
    state: Arc<CampaignState>,
    random: fastrand::Rng,
    /// By conversation: the content of each message when it was last seen.
    seen: HashMap<String, BTreeMap<i64, String>>,
    /// Conversation, id and version of each message whose count was checked.
    recounted: HashSet<(String, i64, i32)>,
}

impl Reader {
    pub(super) fn new(state: Arc<CampaignState>, number: usize, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64));
        Self {
            state,
            random,
            seen: HashMap::new(),
            recounted: HashSet::new(),
        }
    }

    /// A random index of the server that a call tries first. The call takes it modulo the number of
    /// servers, so any range that is much larger than this number will do.
    fn first_server(&mut self) -> usize {
        self.random.usize(0..64)
    }

    /// Runs until the campaign is over.
    pub(super) async fn run(mut self) {
        let mut pace = interval(self.state.pace * 2);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.state.is_over() {
            pace.tick().await;
            let Some(conversation) = self.state.history.random_alive(&mut self.random) else {
                continue;
            };
            match self.random.u32(0..20) {
                0 => self.read(&conversation, true).await,
                1..4 => self.check_context(&conversation).await,
                4 => self.check_other_tenant().await,
                _ => self.read(&conversation, false).await,
            }
        }
    }

    /// Reads all messages (`from_start`) or those that this reader has not seen, and checks them.
    async fn read(&mut self, conversation: &RecordedConversation, from_start: bool) {
        let first_server = self.first_server();
        let since = conversation.states.now();
        let newest = conversation.newest();
        let seen = self.seen.get(&conversation.id);
        let last_seen = seen.and_then(|seen| seen.keys().next_back().copied());
        let mut after = last_seen.filter(|_| !from_start).unwrap_or_default();
        loop {
            let ask = pb::ListMessagesRequest {
                conversation_id: conversation.id.clone(),
                page_size: 500,
                after_message_id: after,
                ..Default::default()
            };
            let list = |channel: Channel| {
                let ask = ask.clone();
                async move {
                    MessageServiceClient::new(channel)
                        .list_messages(ask)
                        .await
                        .map(tonic::Response::into_inner)
                }
            };
            let Some(page) = self
                .state
                .call_with_retries("ListMessages", first_server, list)
                .await
            else {
                return;
            };
            let page = match page {
                Ok(page) => page.messages,
                Err(status) => return self.report_refusal(conversation, "ListMessages", &status),
            };
            self.state.tally.add("messages read", page.len() as u64);
            if page.is_empty() {
                break;
            }
            for message in &page {
                let id = message.message_id;
                let is_missing = |id: &i64| !conversation.states.may_be_absent(*id, &since);
                let missing = (after + 1..id).find(is_missing);
                self.state
                    .findings
                    .demand(id > after && missing.is_none(), "order", || {
                        format!(
                            "{}: message {id} was returned after {after}, without {missing:?}",
                            conversation.id
                        )
                    });
                self.check_message(conversation, message, &since);
                after = after.max(id);
            }
        }
        let is_missing = |id: &i64| !conversation.states.may_be_absent(*id, &since);
        let missing = (after + 1..=newest).find(is_missing);
        self.state.findings.demand(
            missing.is_none() || !conversation.exists(),
            "durability",
            || {
                format!(
                    "{} ends at {after} without {missing:?}, but {newest} was acknowledged",
                    conversation.id
                )
            },
        );
    }

    /// Checks that a message of a list that began at this moment has content that stood since, an
    /// exact count if it is counted, and, if its append was not acknowledged yet, the content that
    /// this reader saw before.
    fn check_message(
        &mut self,
        conversation: &RecordedConversation,
        message: &pb::Message,
        since: &Moment,
    ) {
        let id = message.message_id;
        let comparison = conversation.states.compare(message, since);
        let findings = &self.state.findings;
        findings.demand(comparison != Comparison::Differs, "content", || {
            format!("{}: message {id} is not what was sent", conversation.id)
        });
        findings.demand(comparison != Comparison::StoodBefore, "withdrawn", || {
            format!(
                "{}: message {id} was returned as it no longer stood when it was asked for",
                conversation.id
            )
        });
        let is_counted = message.tokens.is_some_and(|count| !count.estimated);
        // Of a message whose content may be wrong, the count says nothing.
        if comparison == Comparison::Stands
            && is_counted
            && self
                .recounted
                .insert((conversation.id.clone(), id, message.version))
        {
            check_count(&self.state, message.tokens, &message.parts, || {
                format!("{}: message {id}", conversation.id)
            });
        }
        let content = format!("{} {:?}", message.role, message.parts);
        let seen = self.seen.entry(conversation.id.clone()).or_default();
        let before = seen.insert(id, content.clone());
        // A message that clients know may have been edited since.
        let is_as_seen = before.is_none_or(|before| before == content);
        findings.demand(
            is_as_seen || comparison != Comparison::Unknown,
            "prefix",
            || {
                format!(
                    "{}: message {id} differs from what was read before",
                    conversation.id
                )
            },
        );
    }

    /// Builds a context and checks that its manifest covers every message once, and that it
    /// contains nothing that no longer stood when it was asked for.
    async fn check_context(&mut self, conversation: &RecordedConversation) {
        let first_server = self.first_server();
        let since = conversation.states.now();
        let newest = conversation.newest();
        let ask = pb::BuildContextRequest {
            conversation_id: conversation.id.clone(),
            ..Default::default()
        };
        let build = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ContextServiceClient::new(channel)
                    .build_context(ask)
                    .await
                    .map(tonic::Response::into_inner)
            }
        };
        match self
            .state
            .call_with_retries("BuildContext", first_server, build)
            .await
        {
            Some(Ok(context)) => {
                self.state.tally.increment("contexts");
                check_marks(conversation, &since, &context, &self.state);
                let mut next = 1;
                let mut is_complete = true;
                for entry in &context.manifest {
                    is_complete &= entry.first_message_id == next && entry.last_message_id >= next;
                    next = entry.last_message_id + 1;
                }
                is_complete &= next == context.last_message_id + 1;
                self.state.findings.demand(is_complete, "coverage", || {
                    format!(
                        "the manifest of a context of {} has gaps: {:?}",
                        conversation.id, context.manifest
                    )
                });
                self.state
                    .findings
                    .demand(context.last_message_id >= newest, "durability", || {
                        format!(
                            "a context of {} ends at {}, but {newest} was acknowledged",
                            conversation.id, context.last_message_id
                        )
                    });
            }
            // No message that stands is behind the newest separator.
            Some(Err(status)) if status_details(&status).reason == "CONTEXT_EMPTY" => {
                self.state.tally.increment("empty contexts");
            }
            Some(Err(status)) => self.report_refusal(conversation, "BuildContext", &status),
            None => {}
        }
    }

    /// Reports a final refusal as a finding, except for NOT_FOUND if a deletion of the
    /// conversation has begun.
    fn report_refusal(
        &self,
        conversation: &RecordedConversation,
        what: &'static str,
        status: &Status,
    ) {
        let is_deletion = status.code() == Code::NotFound && !conversation.exists();
        self.state.findings.demand(is_deletion, "right codes", || {
            format!("{what} of {}: {status:?}", conversation.id)
        });
    }

    /// Checks that another tenant's conversation is not found: neither read nor appended to.
    async fn check_other_tenant(&mut self) {
        let first_server = self.first_server();
        let foreign = &self.state.foreign;
        let get = |channel: Channel| {
            let ask = pb::GetConversationRequest {
                conversation_id: foreign.clone(),
            };
            async move {
                ConversationServiceClient::new(channel)
                    .get_conversation(ask)
                    .await
                    .map(|_| ())
            }
        };
        let list = |channel: Channel| {
            let ask = pb::ListMessagesRequest {
                conversation_id: foreign.clone(),
                ..Default::default()
            };
            async move {
                MessageServiceClient::new(channel)
                    .list_messages(ask)
                    .await
                    .map(|_| ())
            }
        };
        let build = |channel: Channel| {
            let ask = pb::BuildContextRequest {
                conversation_id: foreign.clone(),
                ..Default::default()
            };
            async move {
                ContextServiceClient::new(channel)
                    .build_context(ask)
                    .await
                    .map(|_| ())
            }
        };
        let append = |channel: Channel| {
            let (conversation_id, messages) = (foreign.clone(), vec![user("from abroad")]);
            let ask = pb::AppendMessagesRequest {
                conversation_id,
                messages,
                ..Default::default()
            };
            async move {
                MessageServiceClient::new(channel)
                    .append_messages(ask)
                    .await
                    .map(|_| ())
            }
        };
        for outcome in [
            self.state
                .call_with_retries("GetConversation", first_server, get)
                .await,
            self.state
                .call_with_retries("ListMessages", first_server, list)
                .await,
            self.state
                .call_with_retries("BuildContext", first_server, build)
                .await,
            self.state
                .call_with_retries("AppendMessages", first_server, append)
                .await,
        ] {
            let hidden = outcome
                .is_none_or(|outcome| outcome.is_err_and(|status| status.code() == Code::NotFound));
            self.state.findings.demand(hidden, "tenants", || {
                format!("{foreign} belongs to another tenant, but was not NOT_FOUND")
            });
        }
    }
}
