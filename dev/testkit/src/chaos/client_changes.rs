//! The changes of messages by clients: they withdraw answers, rewind, restore, edit, erase and
//! fork. One client at a time changes the messages of a conversation, while others append to it, so
//! the state of each message follows from the answers.

use std::sync::Arc;

use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use tonic::{Response, Status, transport::Channel};

use super::{
    client::Client,
    history::{RecordedAppend, RecordedConversation},
    message_lists::list_messages,
    message_states::{Change, ChangeKind, Comparison, MessageState},
};
use crate::{pb, status_details, text};

/// A rewind withdraws at most so many of the newest acknowledged appends.
const REWOUND_APPENDS: usize = 4;

/// A change to be made, and the expected answer.
struct PlannedChange {
    change: Change,
    /// The messages that it changes.
    changed: Vec<i64>,
    /// The reason of the expected refusal. None: it is made.
    refusal: Option<&'static str>,
}

impl Client {
    /// Changes messages of a conversation. Returns whether any was changed.
    pub(super) async fn change(
        &mut self,
        conversation: &RecordedConversation,
        kind: ChangeKind,
    ) -> bool {
        if kind == ChangeKind::Fork {
            return self.fork(conversation).await;
        }
        // Does not wait for another client.
        let Ok(mut changes) = conversation.changes.try_lock() else {
            return false;
        };
        if changes.is_unknown {
            return false;
        }
        self.sent += 1;
        let Some(planned) = self.plan(conversation, kind) else {
            return false;
        };
        conversation.states.begin(&planned.change);
        match self.send_change(conversation, &planned.change).await {
            Some(Ok(done)) => self.record_change(conversation, &planned, &done, kind),
            Some(Err(status)) => {
                conversation.states.cancel();
                let reason = status_details(&status).reason;
                if planned.refusal == Some(reason.as_str()) {
                    self.state.tally.increment("changes refused");
                } else {
                    self.report_refusal(conversation, kind.name(), &status);
                }
                false
            }
            None => {
                changes.is_unknown = true;
                false
            }
        }
    }

    /// Chooses what to change. None: no message of the conversation can be changed so.
    fn plan(
        &mut self,
        conversation: &RecordedConversation,
        kind: ChangeKind,
    ) -> Option<PlannedChange> {
        let states = &conversation.states;
        let appends = conversation.appends();
        let acknowledged: Vec<&RecordedAppend> = appends
            .iter()
            .filter(|append| !append.ids.is_empty())
            .collect();
        let is_in = |id: i64, state: MessageState| states.confirmed(id) == Some(state);
        let stands = |id: &i64| matches!(states.confirmed(*id), Some(MessageState::Stands(_)));
        match kind {
            ChangeKind::Withdraw => {
                let newest = acknowledged.iter().rev();
                let mut standing = newest.filter(|append| append.ids.iter().all(stands));
                let changed = last_answer(standing.next()?);
                Some(PlannedChange {
                    change: Change::Withdraw(changed.clone()),
                    changed,
                    refusal: None,
                })
            }
            ChangeKind::Rewind => {
                let newest = &acknowledged[acknowledged.len().saturating_sub(REWOUND_APPENDS)..];
                let after = *self.random.choice(newest)?.ids.last()?;
                Some(PlannedChange {
                    change: Change::Rewind(after),
                    changed: states.standing_after(after),
                    refusal: None,
                })
            }
            ChangeKind::Restore => {
                let fallen: Vec<&&RecordedAppend> = acknowledged
                    .iter()
                    .filter(|append| !append.ids.iter().all(stands))
                    .collect();
                let append = self.random.choice(fallen)?;
                let is_erased = |id: &i64| is_in(*id, MessageState::Erased);
                let has_erased = append.ids.iter().any(is_erased);
                let is_withdrawn = |id: &&i64| is_in(**id, MessageState::Withdrawn);
                Some(PlannedChange {
                    change: Change::Restore(append.ids.clone()),
                    changed: append.ids.iter().filter(is_withdrawn).copied().collect(),
                    refusal: has_erased.then_some("MESSAGE_ERASED"),
                })
            }
            ChangeKind::Edit => {
                let append = self.random.choice(&acknowledged)?;
                let written: Vec<(&i64, &pb::NewMessage)> = append
                    .ids
                    .iter()
                    .zip(&append.messages)
                    .filter(|(_, message)| is_text(message))
                    .collect();
                let (id, old) = *self.random.choice(&written)?;
                let new = self.new_version(old.role());
                Some(PlannedChange {
                    change: Change::Edit(*id, Box::new(new)),
                    changed: vec![*id],
                    refusal: (!stands(id)).then_some("MESSAGE_WITHDRAWN"),
                })
            }
            ChangeKind::Erase => {
                let append = self.random.choice(&acknowledged)?;
                let is_kept = |id: &&i64| !is_in(**id, MessageState::Erased);
                Some(PlannedChange {
                    change: Change::Erase(append.ids.clone()),
                    changed: append.ids.iter().filter(is_kept).copied().collect(),
                    refusal: None,
                })
            }
            ChangeKind::Fork => None,
        }
    }

    /// New content of a message with this role. One in four is large.
    fn new_version(&mut self, role: pb::Role) -> pb::NewMessage {
        let more = if self.random.u32(0..4) == 0 {
            "The river fell again. ".repeat(120)
        } else {
            String::new()
        };
        text(
            role,
            &format!("It is known now, see {}. {more}", self.mark(0)),
        )
    }

    /// Sends a change until there is a final answer. None if there was none in time.
    async fn send_change(
        &mut self,
        conversation: &RecordedConversation,
        change: &Change,
    ) -> Option<Result<pb::MessageChange, Status>> {
        let conversation_id = conversation.id.clone();
        let request_id = format!("change-{}-{}", self.number, self.sent);
        let first_server = self.first_server();
        // Sends one request until there is a final answer.
        macro_rules! send {
            ($what:literal, $method:ident, $request:ident { $($field:ident: $value:expr),* }) => {{
                let ask = pb::$request {
                    conversation_id,
                    request_id,
                    $($field: $value,)*
                    ..Default::default()
                };
                let send = |channel: Channel| {
                    let ask = ask.clone();
                    async move {
                        MessageServiceClient::new(channel)
                            .$method(ask)
                            .await
                            .map(Response::into_inner)
                    }
                };
                self.state.call_with_retries($what, first_server, send).await
            }};
        }
        match change {
            Change::Withdraw(ids) => send!(
                "WithdrawMessages",
                withdraw_messages,
                WithdrawMessagesRequest {
                    message_ids: ids.clone()
                }
            ),
            Change::Rewind(after) => {
                send!(
                    "Rewind",
                    rewind,
                    RewindRequest {
                        after_message_id: *after
                    }
                )
            }
            Change::Restore(ids) => send!(
                "RestoreMessages",
                restore_messages,
                RestoreMessagesRequest {
                    message_ids: ids.clone()
                }
            ),
            Change::Edit(id, new) => send!(
                "EditMessage",
                edit_message,
                EditMessageRequest {
                    message_id: *id,
                    message: Some((**new).clone())
                }
            ),
            Change::Erase(ids) => send!(
                "EraseMessages",
                erase_messages,
                EraseMessagesRequest {
                    message_ids: ids.clone()
                }
            ),
        }
    }

    /// Records an acknowledged change, and checks that it has changed what was asked for. Returns
    /// whether it has changed anything.
    fn record_change(
        &self,
        conversation: &RecordedConversation,
        planned: &PlannedChange,
        done: &pb::MessageChange,
        kind: ChangeKind,
    ) -> bool {
        let findings = &self.state.findings;
        if let Some(reason) = planned.refusal {
            findings.add(
                "withdrawn",
                format!(
                    "{}: {:?} was not refused with {reason}",
                    conversation.id, planned.change
                ),
            );
        }
        let changed: Vec<i64> = done
            .changed
            .iter()
            .flat_map(|run| run.first_message_id..=run.last_message_id)
            .collect();
        // A rewind also withdraws messages that no client knows yet.
        let unexpected = changed.iter().filter(|id| {
            let is_rewound = matches!(planned.change, Change::Rewind(after) if **id > after);
            !planned.changed.contains(id) && !is_rewound
        });
        let is_as_planned =
            planned.changed.iter().all(|id| changed.contains(id)) && unexpected.count() == 0;
        findings.demand(is_as_planned, "one effect", || {
            format!(
                "{}: {:?} has changed {changed:?} instead of {:?}",
                conversation.id, planned.change, planned.changed
            )
        });
        if let Change::Edit(id, _) = &planned.change {
            let expected = conversation.states.version_count(*id) as i32;
            findings.demand(done.version == expected, "one effect", || {
                format!(
                    "{}: an edit has made version {} of message {id} instead of {expected}",
                    conversation.id, done.version
                )
            });
        }
        conversation.states.confirm(&planned.change, &changed);
        if changed.is_empty() {
            return false;
        }
        self.state.tally.increment(kind.name());
        true
    }

    /// Forks the conversation at a random message, and checks that the fork begins with the
    /// messages that stand in it. Returns whether there is a fork.
    async fn fork(&mut self, conversation: &RecordedConversation) -> bool {
        let newest = conversation.newest();
        if newest == 0 {
            return false;
        }
        self.sent += 1;
        let ask = pb::ForkConversationRequest {
            conversation_id: conversation.id.clone(),
            request_id: format!("fork-{}-{}", self.number, self.sent),
            message_id: self.random.i64(1..=newest),
            ..Default::default()
        };
        let before = conversation.states.now();
        let first_server = self.first_server();
        let fork = |channel: Channel| {
            let ask = ask.clone();
            async move {
                ConversationServiceClient::new(channel)
                    .fork_conversation(ask)
                    .await
                    .map(Response::into_inner)
            }
        };
        let forked = self
            .state
            .call_with_retries("ForkConversation", first_server, fork)
            .await;
        let forked = match forked {
            Some(Ok(forked)) => forked,
            Some(Err(status)) => {
                self.report_refusal(conversation, "ForkConversation", &status);
                return false;
            }
            None => return false,
        };
        let fork = Arc::new(RecordedConversation::new(forked.conversation_id));
        fork.close();
        // Those of the source are copied.
        fork.separators.lock().await.is_unknown = true;
        let last = ask.message_id;
        let listed = list_messages(&self.state, &fork, pb::ListMessagesRequest::default()).await;
        let Some(listed) = listed else {
            self.state.history.add(fork);
            return false;
        };
        for message in &listed {
            let promise = match conversation.states.compare(message, &before) {
                Comparison::Stands | Comparison::Unknown => continue,
                Comparison::StoodBefore => "withdrawn",
                Comparison::Differs => "content",
            };
            let (id, fork) = (message.message_id, &fork.id);
            let observation = format!("{fork}: message {id} is not that of {}", conversation.id);
            self.state.findings.add(promise, observation);
        }
        let ids: Vec<i64> = listed.iter().map(|message| message.message_id).collect();
        for id in (1..=last).filter(|id| !ids.contains(id)) {
            let is_withdrawn = conversation.states.may_be_absent(id, &before);
            self.state.findings.demand(is_withdrawn, "durability", || {
                format!(
                    "{}: message {id} of {} is missing",
                    fork.id, conversation.id
                )
            });
            fork.states.add_erased(id);
        }
        let copied = listed.into_iter().map(|message| pb::NewMessage {
            role: message.role,
            parts: message.parts,
            metadata: message.metadata,
        });
        fork.add_stored(ids, copied.collect());
        self.state.history.add(fork);
        self.state.tally.increment(ChangeKind::Fork.name());
        true
    }
}

/// The messages of an append from the first one on that is no user's; all if there is none.
fn last_answer(append: &RecordedAppend) -> Vec<i64> {
    let is_answer = |message: &pb::NewMessage| message.role() != pb::Role::User;
    let first = append.messages.iter().position(is_answer);
    append.ids[first.unwrap_or_default()..].to_vec()
}

/// Whether a message has only text.
fn is_text(message: &pb::NewMessage) -> bool {
    let is_text = |part: &pb::Part| matches!(part.part, Some(pb::part::Part::Text(_)));
    message.parts.iter().all(is_text)
}
