//! Stores the answer of a turn, whole or as it was when it was stopped, and reports its usage.

use std::{collections::BTreeMap, time::Duration};

use anneal_core::{
    cache::BreakReason,
    digest,
    job::LEASE_SECONDS,
    message::{Message, Part, Role},
    tokens::Tokens,
    usage::Usage,
};
use anneal_gateway::CallLease;
use anneal_llm::provider::{CallUsage, Model, StopReason};
use anneal_proto::{
    convert::{context::break_reason, usage::cache_state},
    v1 as pb,
};
use anneal_store::{Append, Backoff, ReportedCall, Store, StoreError, UsageReport};
use pb::chat_response::Done;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{QuestionSource, TurnRun, answer::Answer, stored_question::Question};
use crate::{
    failure::Failure,
    usecases::{
        append::{self, AppendRequest},
        usage_report,
    },
};

/// Deadline of each database step at the end of a turn: storing the answer, reporting its usage,
/// settling the call. The turn's own deadline does not apply there, so that an answer that the
/// model has given is not lost.
pub(crate) const DB_DEADLINE: Duration = Duration::from_secs(5);

/// The figures of what a call has sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentFigures {
    /// Tokens sent, counted here.
    pub(super) own_tokens: Tokens,
    /// Tokens that the provider's cache should have held.
    pub(super) expected_cached: Tokens,
    /// Why less than the last call's context was expected in the cache; None: nothing broke.
    pub(super) break_reason: Option<BreakReason>,
}

/// A turn that has ended: its answer is stored, or it was stopped.
pub(super) struct CompletedTurn {
    pub(super) model: String,
    pub(super) message_ids: Vec<i64>,
    /// The id of the answer's message. 0: the conversation keeps nothing of the answer.
    pub(super) answer_message_id: i64,
    pub(super) stop: pb::StopReason,
    /// The tokens that the answer's call used; None: no model was called.
    pub(super) usage: Option<Usage>,
    /// The part of its output that is thoughts, as far as the provider says. It is not stored.
    pub(super) reasoning: Tokens,
    /// Whether the provider has reported that usage. Otherwise it is estimated.
    pub(super) has_reported_usage: bool,
}

/// How an answer has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEnd {
    /// The model has ended it.
    Complete,
    /// It was stopped before.
    Stopped,
}

impl CompletedTurn {
    /// A turn with this answer, of which nothing is stored.
    pub(super) fn unstored(model: &Model, answer: &Answer, sent: SentFigures) -> Self {
        let sent = if answer.has_reported_usage {
            sent
        } else {
            // There are no counts of the provider to compare these figures with.
            SentFigures::default()
        };
        Self {
            model: model.name().to_owned(),
            message_ids: Vec::new(),
            answer_message_id: 0,
            stop: stop_reason(answer.end.stop),
            usage: Some(usage(&answer.end.usage, &sent)),
            reasoning: answer.end.usage.reasoning,
            has_reported_usage: answer.has_reported_usage,
        }
    }

    /// Whether the turn was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop == pb::StopReason::Stopped
    }
}

impl TurnRun {
    /// Stores the answer. Fails if the turn no longer holds its lease, because another turn may
    /// have begun, or because messages of the conversation were changed.
    pub(super) async fn store_answer(
        &self,
        lease: CallLease<'_>,
        model: &Model,
        question: &Question,
        (answer, sent): (Answer, SentFigures),
    ) -> Result<CompletedTurn, Failure> {
        let completed = CompletedTurn::unstored(model, &answer, sent);
        let id = self
            .store_with_retries(lease, question, (answer.parts, AnswerEnd::Complete))
            .await?;
        Ok(CompletedTurn {
            message_ids: question.ids().into_iter().chain(id).collect(),
            answer_message_id: id.unwrap_or(0),
            ..completed
        })
    }

    /// Stores the answer; None if the conversation keeps nothing of it.
    pub(super) async fn store_with_retries(
        &self,
        lease: CallLease<'_>,
        question: &Question,
        (parts, end): (Vec<Part>, AnswerEnd),
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
        let append = (!is_empty).then_some(&append);
        let stored = retry_transient(|| self.store_once(lease, append, end)).await;
        match stored {
            // Another call with this request id has stored another answer to the same question.
            Err(Failure::Store(StoreError::RequestIdReused)) if question.is_replayed => {
                Err(Failure::TurnLost)
            }
            stored => stored,
        }
    }

    /// Stores the answer under the lease, which it renews. None: the conversation keeps nothing of
    /// the answer, or the answer is empty, which `append` says with None. Fails if another answer
    /// is stored under its request id.
    async fn store_once(
        &self,
        lease: CallLease<'_>,
        append: Option<&Append>,
        end: AnswerEnd,
    ) -> Result<Option<i64>, Failure> {
        let Some(append) = append else {
            return if lease.renew().await? {
                Ok(None)
            } else {
                Err(Failure::TurnLost)
            };
        };
        let (state, lease) = (&self.state, lease.model_lease());
        let stopped = end == AnswerEnd::Stopped;
        let stored = append::store_answer_and_notify(state, self.caller, append, lease, stopped);
        let stored = stored.await?.ok_or(Failure::TurnLost)?;
        Ok(stored.messages.first().map(|message| message.id.0))
    }

    /// Records under the lease, which it renews, that the turn was stopped and nothing of its
    /// answer is kept.
    pub(super) async fn record_stop(&self, lease: CallLease<'_>) -> Result<(), Failure> {
        let (store, caller) = (&self.state.store, self.caller);
        let request_id = self.turn.answer_request_id();
        let (lease, request_id) = (lease.model_lease(), request_id.as_str());
        let is_recorded = retry_transient(|| async move {
            let recorded = store.record_stop(caller, lease, request_id).await;
            recorded.map_err(Failure::from)
        });
        if is_recorded.await? {
            Ok(())
        } else {
            Err(Failure::TurnLost)
        }
    }

    /// The store with the deadline of queries at the end of a turn.
    pub(super) fn end_of_turn_store(&self) -> Store {
        self.state.store.clone().with_deadline(DB_DEADLINE)
    }

    /// The last event of a turn that has made so many calls.
    pub(super) async fn build_done_event(
        &self,
        source: QuestionSource<'_>,
        completed: CompletedTurn,
        fallbacks: Vec<pb::Fallback>,
        calls: i32,
    ) -> Done {
        let (conversation_id, token_estimate) = match source {
            QuestionSource::Conversation(_) => {
                (self.turn.id.to_string(), self.read_token_total().await)
            }
            QuestionSource::Request(_) => (String::new(), 0),
        };
        let usage = completed.usage.as_ref();
        let reported = usage.filter(|_| completed.has_reported_usage);
        Done {
            conversation_id,
            answer_message_id: completed.answer_message_id,
            token_estimate,
            usage: usage.map(|usage| model_usage(usage, completed.reasoning)),
            cache: reported.map(cache_use),
            stop_reason: completed.stop.into(),
            stopped: completed.is_stopped(),
            message_ids: completed.message_ids,
            model: completed.model,
            attempts: calls,
            fallbacks,
            replayed: false,
        }
    }

    /// Reports the usage of the answer's call, as ReportUsage does; of a stopped answer only if the
    /// provider has reported it. A failure is only logged.
    pub(super) async fn report(&self, completed: &CompletedTurn) {
        let call = if completed.is_stopped() {
            ReportedCall::StoppedAnswer
        } else {
            ReportedCall::Answer
        };
        let Some(usage) = completed
            .usage
            .filter(|_| completed.has_reported_usage || call == ReportedCall::Answer)
        else {
            return;
        };
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
            usage,
            stop_reason: Some(completed.stop as i16),
            call,
        };
        let store = self.end_of_turn_store();
        let reported = usage_report::store_and_count(&store, self.caller, self.turn.id, &report);
        if let Err(error) = reported.await {
            self.state.store.log_failure(&error, || {
                warn!("could not record what a model call cost: {error}");
            });
        }
    }

    /// Tokens of all messages of the conversation; 0 if they cannot be read.
    pub(super) async fn read_token_total(&self) -> u64 {
        let total = self
            .end_of_turn_store()
            .read_token_total(self.caller, self.turn.id)
            .await;
        total.ok().flatten().map_or(0, Tokens::get)
    }
}

/// Tries until it succeeds, or fails otherwise than for a transient error of the database, for one
/// lease period ([`LEASE_SECONDS`]).
async fn retry_transient<T, F>(mut try_once: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let retry_until = Instant::now() + Duration::from_secs(u64::from(LEASE_SECONDS));
    let mut backoff = Backoff::default();
    loop {
        let pause = backoff.next_pause();
        let outcome = timeout(DB_DEADLINE, Box::pin(try_once())).await;
        match outcome.unwrap_or(Err(StoreError::Unresponsive.into())) {
            Err(Failure::Store(error))
                if error.is_transient() && Instant::now() + pause < retry_until =>
            {
                tokio::time::sleep(pause).await;
            }
            outcome => return outcome,
        }
    }
}

/// The usage of a call, with the figures of what was sent for it.
pub(super) const fn usage(counted: &CallUsage, sent: &SentFigures) -> Usage {
    Usage {
        input: counted.input,
        cached: counted.cached,
        written: counted.written,
        long_written: counted.long_written,
        output: counted.output,
        context: sent.own_tokens,
        expected_cached: sent.expected_cached,
        break_reason: sent.break_reason,
    }
}

const fn model_usage(usage: &Usage, reasoning: Tokens) -> pb::ModelUsage {
    pb::ModelUsage {
        input_tokens: usage.input.get(),
        cached_tokens: usage.cached.get(),
        written_tokens: usage.written.get(),
        output_tokens: usage.output.get(),
        reasoning_tokens: reasoning.get(),
    }
}

fn cache_use(usage: &Usage) -> pb::CacheUse {
    pb::CacheUse {
        expected_tokens: usage.expected_cached.get(),
        fresh_tokens: usage.input.less(usage.cached).less(usage.written).get(),
        state: cache_state(usage.cache_state()).into(),
        break_reason: usage
            .break_reason
            .map_or(0, |reason| break_reason(reason).into()),
        long_written_tokens: usage.long_written.get(),
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
