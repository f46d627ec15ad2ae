//! One call of a model within a turn: its pieces go to the caller as they come.

use std::time::{Duration, Instant};

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{Call, CallCost, CallFailure, CallFigures, Model};

use super::{
    Ended, Run,
    answer::{Answer, Draft, Taken},
};
use crate::status::Failure;

/// What a turn's calls have cost so far, also of one that never came to its end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bill {
    pub(super) calls: u32,
    /// Tokens that the calls before the last one have read and written.
    before: (Tokens, Tokens),
    last: CallCost,
}

impl Bill {
    /// Tokens that all calls have read.
    pub(super) fn input(&self) -> Tokens {
        self.before.0 + self.last.input()
    }

    /// Tokens that all calls have written.
    pub(super) fn output(&self) -> Tokens {
        self.before.1 + self.last.output()
    }

    /// One more call.
    fn add_call(&mut self) -> &mut CallCost {
        *self = Self { calls: self.calls + 1, before: (self.input(), self.output()), last: CallCost::default() };
        &mut self.last
    }
}

/// A provider whose answer has waited so long for its reader is not blamed for giving it up.
const STALL: Duration = Duration::from_secs(1);

impl Run {
    /// Calls the model.
    pub(super) async fn called(&self, model: &Model, call: &Call<'_>, bill: &mut Bill) -> Result<Answer, Ended> {
        let mut figures = CallFigures::begin(model.name());
        let answered = self.streamed(model, call, bill.add_call()).await;
        figures.ended(outcome(&answered));
        answered
    }

    async fn streamed(&self, model: &Model, call: &Call<'_>, cost: &mut CallCost) -> Result<Answer, Ended> {
        let failed = |failure| Failure::Model { model: model.name().to_owned(), failure };
        let mut draft = Draft::default();
        let mut stalled = Duration::ZERO;
        let mut pieces = model.stream_billed(call, cost).await.map_err(failed)?;
        while let Some(piece) = pieces.next().await {
            let piece = match piece {
                // The call's clock runs while its reader is slow.
                Err(CallFailure::Unavailable { .. }) if stalled >= STALL => return Err(Failure::SlowReader.into()),
                piece => piece.map_err(failed)?,
            };
            match draft.take(piece).map_err(failed)? {
                Taken::Kept => {}
                Taken::Shown(event) => {
                    let begun = Instant::now();
                    self.outlet.send(event).await?;
                    stalled += begun.elapsed();
                }
                Taken::Finished(mut answer) => {
                    if !answer.is_counted {
                        let cost = pieces.cost();
                        (answer.end.usage.input, answer.end.usage.output) = (cost.input(), cost.output());
                    }
                    return Ok(answer);
                }
            }
        }
        Err(failed(CallFailure::Broken("the answer has no end")).into())
    }
}

const fn outcome(answered: &Result<Answer, Ended>) -> &'static str {
    match answered {
        Ok(_) => "answered",
        Err(Ended::Failed(Failure::Model { failure, .. })) => failure.name(),
        Err(_) => "cancelled",
    }
}
