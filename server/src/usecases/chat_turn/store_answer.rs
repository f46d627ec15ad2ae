//! Stores the answer of a turn and reports its usage.

use std::{collections::BTreeMap, time::Duration};

use anneal_core::{
    digest,
    job::LEASE_SECONDS,
    message::{Message, Part, Role},
    tokens::Tokens,
    usage::Usage,
};
use anneal_gateway::CallLease;
use anneal_llm::provider::{CallUsage, Model, StopReason};
use anneal_proto::v1 as pb;
use anneal_store::{Append, Backoff, Store, StoreError, UsageReport};
use pb::chat_response::Done;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{TurnRun, attempts::ModelAnswer};
use crate::{
    failure::Failure,
    usecases::append::{self, AppendRequest},
};

/// Deadline of each database step at the end of a turn: storing the answer, reporting its usage,
/// settling the call. The turn's own deadline does not apply there, so that an answer that the
/// model has given is not lost.
pub(super) const DB_DEADLINE: Duration = Duration::from_secs(5);

/// A turn whose answer is stored.
pub(super) struct CompletedTurn {
    model: String,
    message_ids: Vec<i64>,
    /// The id of the answer's message. 0: the conversation keeps nothing of the answer.
    answer_message_id: i64,
    stop: StopReason,
    usage: CallUsage,
    own_tokens: Tokens,
    expected_cached: Tokens,
}

impl TurnRun {
    /// Stores the answer. Fails if the turn no longer holds its lease, because another turn may
    /// have begun, or because messages of the conversation were changed.
    pub(super) async fn store_answer(
        &self,
        lease: CallLease<'_>,
        model: &Model,
        mut message_ids: Vec<i64>,
        answered: ModelAnswer,
    ) -> Result<CompletedTurn, Failure> {
        let ModelAnswer {
            answer,
            own_tokens,
            expected_cached,
        } = answered;
        let (end, id) = (
            answer.end,
            self.store_with_retries(lease, answer.parts).await?,
        );
        message_ids.extend(id);
        Ok(CompletedTurn {
            model: model.name().to_owned(),
            message_ids,
            answer_message_id: id.unwrap_or(0),
            stop: end.stop,
            usage: end.usage,
            own_tokens,
            expected_cached,
        })
    }

    /// Stores the answer; None if the conversation keeps nothing of it. Retries transient database
    /// errors for one lease period ([`LEASE_SECONDS`]).
    async fn store_with_retries(
        &self,
        lease: CallLease<'_>,
        parts: Vec<Part>,
    ) -> Result<Option<i64>, Failure> {
        let is_empty = parts.is_empty();
        let messages = [Message {
            role: Role::Assistant,
            parts,
            metadata: BTreeMap::new(),
        }]
        .into();
        let request_id = Some(self.turn.answer_request_id());
        let request = AppendRequest {
            id: self.turn.id,
            request_id,
            expected: None,
            messages,
            reservation: None,
        };
        let append = append::prepare(&self.state, self.caller, request)
            .await?
            .for_chat_turn(Role::Assistant);
        let retry_until = Instant::now() + Duration::from_secs(u64::from(LEASE_SECONDS));
        let mut backoff = Backoff::default();
        loop {
            let pause = backoff.next_pause();
            let stored = timeout(
                DB_DEADLINE,
                Box::pin(self.store_once(lease, &append, is_empty)),
            )
            .await;
            match stored.unwrap_or(Err(StoreError::Unresponsive.into())) {
                Err(Failure::Store(error))
                    if error.is_transient() && Instant::now() + pause < retry_until =>
                {
                    tokio::time::sleep(pause).await;
                }
                stored => return stored,
            }
        }
    }

    /// Stores the answer under the lease, which it renews. None: the conversation keeps nothing of
    /// the answer.
    async fn store_once(
        &self,
        lease: CallLease<'_>,
        append: &Append,
        is_empty: bool,
    ) -> Result<Option<i64>, Failure> {
        if is_empty {
            return if lease.renew().await? {
                Ok(None)
            } else {
                Err(Failure::TurnLost)
            };
        }
        let (state, lease) = (&self.state, lease.model_lease());
        let stopped = false;
        let stored = append::store_answer_and_notify(state, self.caller, append, lease, stopped);
        let stored = match stored.await {
            // Another turn has stored an answer to the same request.
            Err(Failure::Store(StoreError::RequestIdReused)) => return Err(Failure::TurnLost),
            stored => stored?.ok_or(Failure::TurnLost)?,
        };
        Ok(stored.messages.first().map(|message| message.id.0))
    }

    /// The store with the deadline of queries at the end of a turn.
    fn end_of_turn_store(&self) -> Store {
        self.state.store.clone().with_deadline(DB_DEADLINE)
    }

    /// The last event of an answered turn.
    pub(super) async fn build_done_event(&self, completed: CompletedTurn, calls: i32) -> Done {
        let usage = &completed.usage;
        Done {
            conversation_id: self.turn.id.to_string(),
            message_ids: completed.message_ids,
            answer_message_id: completed.answer_message_id,
            token_estimate: self.read_token_total().await,
            usage: Some(pb::ModelUsage {
                input_tokens: usage.input.get(),
                cached_tokens: usage.cached.get(),
                written_tokens: usage.written.get(),
                output_tokens: usage.output.get(),
            }),
            stop_reason: stop_reason(completed.stop).into(),
            model: completed.model,
            attempts: calls,
            ..Done::default()
        }
    }

    /// Reports the usage of the answer's call, as ReportUsage does. A failure is only logged.
    pub(super) async fn report(&self, completed: &CompletedTurn) {
        let usage = &completed.usage;
        // A repeated turn finds the usage under the answer's request id. If no answer is stored,
        // the repeated turn calls the model again, so each report gets a random request id.
        let request_id = if completed.answer_message_id > 0 {
            self.turn.answer_request_id()
        } else {
            uuid::Uuid::new_v4().to_string()
        };
        // The digest of the answer's message id is enough: each answer has one call to report.
        let report = UsageReport {
            request_id,
            digest: digest::of_fields([completed.answer_message_id.to_be_bytes().as_slice()]),
            model: completed.model.clone(),
            usage: Usage {
                input: usage.input,
                cached: usage.cached,
                written: usage.written,
                long_written: usage.long_written,
                output: usage.output,
                context: completed.own_tokens,
                expected_cached: completed.expected_cached,
                ..Usage::default()
            },
            stop_reason: Some(stop_reason(completed.stop) as i16),
        };
        let reported = self
            .end_of_turn_store()
            .report_usage(self.caller, self.turn.id, &report)
            .await;
        if let Err(error) = reported {
            self.state.store.log_failure(&error, || {
                warn!("could not record what a model call cost: {error}");
            });
        }
    }

    /// Tokens of all messages of the conversation; 0 if they cannot be read.
    pub(super) async fn read_token_total(&self) -> u64 {
        let conversation = self
            .end_of_turn_store()
            .get_conversation(self.caller, self.turn.id)
            .await;
        conversation.map_or(0, |conversation| conversation.token_total.get())
    }
}

const fn stop_reason(stop: StopReason) -> pb::StopReason {
    match stop {
        StopReason::Done => pb::StopReason::Done,
        StopReason::ToolUse => pb::StopReason::ToolUse,
        StopReason::OutputLimit => pb::StopReason::OutputLimit,
        StopReason::Filtered => pb::StopReason::Filtered,
    }
}
