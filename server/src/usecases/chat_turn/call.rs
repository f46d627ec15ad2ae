//! One model call of a turn. Its pieces are sent to the caller as they arrive.

use std::time::{Duration, Instant};

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{Call, CallCost, CallFailure, CallMetrics, Model};

use super::{
    TurnError, TurnRun,
    answer::{Answer, Draft, DraftStep},
};
use crate::failure::Failure;

/// Tokens of a turn's model calls so far, including a call that did not complete.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TurnCost {
    pub(super) calls: u32,
    /// Tokens read and written by all calls but the last.
    before: (Tokens, Tokens),
    last: CallCost,
}

impl TurnCost {
    /// Tokens read by all calls.
    pub(super) fn input(&self) -> Tokens {
        self.before.0 + self.last.input()
    }

    /// Tokens written by all calls.
    pub(super) fn output(&self) -> Tokens {
        self.before.1 + self.last.output()
    }

    /// Starts the accounting of another call.
    fn add_call(&mut self) -> &mut CallCost {
        *self = Self {
            calls: self.calls + 1,
            before: (self.input(), self.output()),
            last: CallCost::default(),
        };
        &mut self.last
    }
}

/// If the caller has stalled the stream for this long, the provider is not blamed for closing it.
const READER_STALL: Duration = Duration::from_secs(1);

impl TurnRun {
    /// Calls the model once and records the call's metrics.
    pub(super) async fn call_model(
        &self,
        model: &Model,
        call: &Call<'_>,
        cost: &mut TurnCost,
    ) -> Result<Answer, TurnError> {
        let mut call_metrics = CallMetrics::start(model.name());
        let answered = self.stream_answer(model, call, cost.add_call()).await;
        call_metrics.set_outcome(outcome(&answered));
        answered
    }

    async fn stream_answer(
        &self,
        model: &Model,
        call: &Call<'_>,
        cost: &mut CallCost,
    ) -> Result<Answer, TurnError> {
        let failed = |failure| Failure::Model {
            model: model.name().to_owned(),
            failure,
        };
        let mut draft = Draft::default();
        let mut stalled = Duration::ZERO;
        let mut pieces = model
            .stream_and_record_cost(call, cost)
            .await
            .map_err(failed)?;
        while let Some(piece) = pieces.next().await {
            let piece = match piece {
                // The provider's timeout runs while the caller reads slowly.
                Err(CallFailure::Unavailable { .. }) if stalled >= READER_STALL => {
                    return Err(Failure::SlowReader.into());
                }
                piece => piece.map_err(failed)?,
            };
            match draft.take(piece).map_err(failed)? {
                DraftStep::StoredOnly => {}
                DraftStep::Shown(event) => {
                    let begun = Instant::now();
                    self.events.send(event).await?;
                    stalled += begun.elapsed();
                }
                DraftStep::Finished(mut answer) => {
                    if !answer.has_reported_usage {
                        let cost = pieces.cost();
                        (answer.end.usage.input, answer.end.usage.output) =
                            (cost.input(), cost.output());
                    }
                    return Ok(answer);
                }
            }
        }
        Err(failed(CallFailure::Broken("the answer has no end")).into())
    }
}

const fn outcome(answered: &Result<Answer, TurnError>) -> &'static str {
    match answered {
        Ok(_) => "answered",
        Err(TurnError::Failed(Failure::Model { failure, .. })) => failure.name(),
        Err(_) => "cancelled",
    }
}
