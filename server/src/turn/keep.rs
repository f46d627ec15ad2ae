//! What is kept of a turn that was answered: the answer, and what the call cost.

use std::{collections::BTreeMap, time::Duration};

use anneal_core::{
    digest,
    job::LEASE_SECONDS,
    message::{Message, Part, Role},
    tokens::Tokens,
    usage::Usage,
};
use anneal_llm::provider::{CallUsage, Model, StopReason};
use anneal_proto::v1 as pb;
use anneal_store::{Append, ModelLease, Pauses, StoreError, UsageReport, within};
use pb::chat_response::Done;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{Run, attempts::Answered, call::Bill};
use crate::{
    rpc::append_messages::{self, Asked},
    status::Failure,
};

/// How long one question to the database may take at the end of a turn, whose own time does not count there any more: what the
/// model has said is not given up for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// An answer that is stored.
pub(super) struct Kept {
    model: String,
    message_ids: Vec<i64>,
    /// 0: the conversation keeps nothing of it.
    answer: i64,
    stop: StopReason,
    usage: CallUsage,
    own: Tokens,
    expected_cached: Tokens,
}

impl Run {
    /// Stores an answer, if the turn is still ours: another one may have begun since the lease was lost.
    pub(super) async fn kept(
        &self,
        lease: &ModelLease,
        model: &Model,
        mut message_ids: Vec<i64>,
        answered: Answered,
    ) -> Result<Kept, Failure> {
        let Answered { answer, own, expected_cached } = answered;
        let (end, id) = (answer.end, self.stored(lease, answer.parts).await?);
        message_ids.extend(id);
        Ok(Kept {
            model: model.name().to_owned(),
            message_ids,
            answer: id.unwrap_or(0),
            stop: end.stop,
            usage: end.usage,
            own,
            expected_cached,
        })
    }

    /// Stores what the model said; None: the conversation keeps nothing of it. While the database cannot take it, it is
    /// offered again for as long as the turn could have lasted without being renewed.
    async fn stored(&self, lease: &ModelLease, parts: Vec<Part>) -> Result<Option<i64>, Failure> {
        let says_nothing = parts.is_empty();
        let messages = [Message { role: Role::Assistant, parts, metadata: BTreeMap::new() }].into();
        let request_id = Some(self.turn.answer_id());
        let asked = Asked { id: self.turn.id, request_id, expected: None, messages, held: None };
        let append = append_messages::prepare(&self.house, self.caller, asked).await?.of_turn();
        let until = Instant::now() + Duration::from_secs(u64::from(LEASE_SECONDS));
        let mut pauses = Pauses::default();
        loop {
            let pause = pauses.take();
            let stored = timeout(PATIENCE, Box::pin(self.stored_once(lease, &append, says_nothing))).await;
            match stored.unwrap_or(Err(StoreError::Silent.into())) {
                Err(Failure::Store(error)) if error.may_pass() && Instant::now() + pause < until => {
                    tokio::time::sleep(pause).await;
                }
                stored => return stored,
            }
        }
    }

    async fn stored_once(
        &self,
        lease: &ModelLease,
        append: &Append,
        says_nothing: bool,
    ) -> Result<Option<i64>, Failure> {
        if !self.house.store.renew_call(lease).await? {
            return Err(Failure::TurnLost);
        }
        if says_nothing {
            return Ok(None);
        }
        let stored = match append_messages::store_what_is_kept(&self.house, self.caller, append).await {
            // Somebody else has answered the same request.
            Err(Failure::Store(StoreError::RequestIdReused)) => return Err(Failure::TurnLost),
            stored => stored?,
        };
        Ok(stored.and_then(|stored| stored.messages.first().map(|message| message.id.0)))
    }

    /// The last event of a turn that was answered.
    pub(super) async fn finished(&self, kept: Kept, bill: &Bill) -> Done {
        let usage = &kept.usage;
        Done {
            conversation_id: self.turn.id.to_string(),
            message_ids: kept.message_ids,
            answer_message_id: kept.answer,
            token_estimate: self.token_estimate().await,
            usage: Some(pb::ModelUsage {
                input_tokens: usage.input.get(),
                cached_tokens: usage.cached.get(),
                written_tokens: usage.written.get(),
                output_tokens: usage.output.get(),
            }),
            stop_reason: stop_reason(kept.stop).into(),
            model: kept.model,
            attempts: i32::try_from(bill.calls).unwrap_or(i32::MAX),
            replayed: false,
        }
    }

    /// Reports what the call cost, as ReportUsage does. A report that fails costs figures, not the answer.
    pub(super) async fn report(&self, kept: &Kept) {
        let usage = &kept.usage;
        // A repeated call finds the answer's figures under its id. Without an answer it is a call of its own.
        let request_id = if kept.answer > 0 { self.turn.answer_id() } else { uuid::Uuid::new_v4().to_string() };
        let report = UsageReport {
            request_id,
            digest: digest::of_fields([kept.answer.to_be_bytes().as_slice()]),
            model: kept.model.clone(),
            usage: Usage {
                input: usage.input,
                cached: usage.cached,
                written: usage.written,
                output: usage.output,
                context: kept.own,
                expected_cached: kept.expected_cached,
            },
            stop_reason: Some(stop_reason(kept.stop) as i16),
        };
        let reported = within(PATIENCE, self.house.store.report_usage(self.caller, self.turn.id, &report)).await;
        if let Err(error) = reported {
            warn!("could not record what a model call cost: {error}");
        }
    }

    /// Tokens of all messages; 0 when they cannot be read, for the turn has done its work.
    pub(super) async fn token_estimate(&self) -> u64 {
        let conversation = within(PATIENCE, self.house.store.conversation(self.caller, self.turn.id)).await;
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
