//! One call of a model within a turn: its pieces go to the caller as they come.

use std::time::{Duration, Instant};

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{Call, CallFailure, CallFigures, Model, written};

use super::{
    Ended, Run,
    answer::{Answer, Draft, Taken},
};
use crate::status::Failure;

/// What a turn's calls have cost so far, also of one that never came to its end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bill {
    pub(super) calls: u32,
    pub(super) input: Tokens,
    pub(super) output: Tokens,
}

/// A provider whose answer has waited so long for its reader is not blamed for giving it up.
const STALL: Duration = Duration::from_secs(1);

impl Run {
    /// Calls the model with a context that sends `sent` tokens.
    pub(super) async fn called(
        &self,
        model: &Model,
        call: &Call<'_>,
        sent: Tokens,
        bill: &mut Bill,
    ) -> Result<Answer, Ended> {
        bill.calls += 1;
        let mut figures = CallFigures::begin(model.name());
        let answered = self.streamed(model, call, sent, bill).await;
        figures.ended(outcome(&answered));
        answered
    }

    async fn streamed(&self, model: &Model, call: &Call<'_>, sent: Tokens, bill: &mut Bill) -> Result<Answer, Ended> {
        let failed = |failure| Failure::Model { model: model.name().to_owned(), failure };
        let before = *bill;
        let mut draft = Draft::default();
        let mut stalled = Duration::ZERO;
        let mut pieces = model.stream(call).await.map_err(failed)?;
        while let Some(piece) = pieces.next().await {
            let piece = match piece {
                // The call's clock runs while its reader is slow.
                Err(CallFailure::Unavailable { .. }) if stalled >= STALL => return Err(Failure::SlowReader.into()),
                piece => piece.map_err(failed)?,
            };
            let taken = draft.take(piece).map_err(failed)?;
            let output = written(draft.bytes());
            *bill = Bill { calls: before.calls, input: before.input + sent, output: before.output + output };
            match taken {
                Taken::Kept => {}
                Taken::Shown(event) => {
                    let begun = Instant::now();
                    self.outlet.send(event).await?;
                    stalled += begun.elapsed();
                }
                Taken::Finished(mut answer) => {
                    let usage = &mut answer.end.usage;
                    if !answer.is_counted {
                        (usage.input, usage.output) = (sent, output);
                    }
                    *bill = Bill {
                        calls: before.calls,
                        input: before.input + usage.input,
                        output: before.output + usage.output,
                    };
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
