//! The end of a turn that is interrupted after its question was stored: what has come of the answer
//! is kept as an answer, or dropped, and a stop is recorded.

use anneal_core::tokens::Tokens;
use anneal_gateway::{CallLease, ProviderCalls};
use anneal_llm::provider::CallUsage;
use anneal_proto::v1 as pb;
use anneal_store::StopMode;

use super::{
    TurnError, TurnRun,
    attempts::PartialTurn,
    request::OnDisconnect,
    store_answer::{self, AnswerEnd, CompletedTurn},
    stored_question::Question,
};
use crate::{failure::Failure, turn_stops::StopWatch};

/// Awaits the work, unless the turn is told to stop first. If both are ready, the work counts.
pub(super) async fn run_until_stop<T>(
    stop: &StopWatch,
    work: impl Future<Output = T>,
) -> Result<T, StopMode> {
    tokio::select! {
        biased;
        ended = work => Ok(ended),
        mode = stop.wait_for_stop() => Err(mode),
    }
}

/// A turn that was stopped before its question was stored: nothing is stored.
pub(super) const fn stopped_before_question(model: String) -> CompletedTurn {
    CompletedTurn {
        model,
        message_ids: Vec::new(),
        answer_message_id: 0,
        stop: pb::StopReason::Stopped,
        usage: None,
        reasoning: Tokens::ZERO,
        has_reported_usage: false,
    }
}

impl TurnRun {
    /// Whether a turn that ends so keeps what has come of its answer: its caller has gone, or its
    /// deadline has ended, and the caller wanted that.
    pub(super) fn keeps_after(&self, error: &TurnError) -> bool {
        self.turn.on_disconnect == OnDisconnect::StopAndKeep
            && matches!(
                error,
                TurnError::CallerGone | TurnError::Failed(Failure::Deadline)
            )
    }

    /// Ends a turn that was told to stop. If nothing of the answer is kept, that is recorded, so
    /// that a repetition does not call the model.
    pub(super) async fn end_by_stop(
        &self,
        lease: CallLease<'_>,
        calls: &ProviderCalls<'_>,
        (question, partial): (&Question, &mut PartialTurn),
        mode: StopMode,
    ) -> Result<CompletedTurn, Failure> {
        if mode == StopMode::Keep {
            let kept = self.keep_partial(lease, calls, (question, &mut *partial));
            if let Some(completed) = kept.await? {
                return Ok(completed);
            }
        }
        self.record_stop(lease).await?;
        let completed = stopped_turn(calls, question, 0, partial);
        self.report(&completed).await;
        Ok(completed)
    }

    /// Stores what has come of the answer, and reports its usage before the lease ends. None:
    /// nothing of it is kept.
    pub(super) async fn keep_partial(
        &self,
        lease: CallLease<'_>,
        calls: &ProviderCalls<'_>,
        (question, partial): (&Question, &mut PartialTurn),
    ) -> Result<Option<CompletedTurn>, Failure> {
        let Some(parts) = partial.draft.take_kept() else {
            return Ok(None);
        };
        let stored = self.store_with_retries(lease, question, (parts, AnswerEnd::Stopped));
        let Some(id) = stored.await? else {
            return Ok(None);
        };
        let completed = stopped_turn(calls, question, id, partial);
        self.report(&completed).await;
        Ok(Some(completed))
    }
}

/// The turn whose answer was stopped. `answer_id`: its stored message; 0: none is stored.
fn stopped_turn(
    calls: &ProviderCalls<'_>,
    question: &Question,
    answer_id: i64,
    partial: &PartialTurn,
) -> CompletedTurn {
    let cost = calls.last_cost();
    let reported = cost.reported();
    // Until the provider has counted the output, ours is the better figure.
    let counted = CallUsage {
        input: cost.input(),
        output: cost.output(),
        ..reported.unwrap_or_default()
    };
    let was_called = calls.spent().calls > 0;
    let mut message_ids = question.ids();
    message_ids.extend((answer_id > 0).then_some(answer_id));
    CompletedTurn {
        model: calls.model().name().to_owned(),
        message_ids,
        answer_message_id: answer_id,
        stop: pb::StopReason::Stopped,
        usage: was_called.then(|| store_answer::usage(&counted, &partial.sent)),
        reasoning: counted.reasoning,
        has_reported_usage: reported.is_some(),
    }
}
