//! The calls of the provider under one lease. Each is counted in the metrics, and its cost is
//! recorded also where it is abandoned.

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{Answer, BilledAnswerStream, Call, CallCost, CallFailure, Model, Piece};
use anneal_store::ModelSpend;

use crate::{call_end::CallEnd, call_metrics::CallMetrics};

/// The calls of a model's provider so far.
pub struct ProviderCalls<'a> {
    model: &'a Model,
    calls: i32,
    /// Tokens read and written by all calls but the last.
    before: (Tokens, Tokens),
    last: CallCost,
}

impl<'a> ProviderCalls<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        Self {
            model,
            calls: 0,
            before: (Tokens::ZERO, Tokens::ZERO),
            last: CallCost::default(),
        }
    }

    /// The model that is called.
    pub const fn model(&self) -> &'a Model {
        self.model
    }

    /// The cost of all calls, with that of a call that did not complete.
    pub fn spent(&self) -> ModelSpend {
        ModelSpend {
            calls: self.calls,
            input: self.before.0 + self.last.input(),
            output: self.before.1 + self.last.output(),
        }
    }

    /// Calls the model once and returns its whole answer, without tool calls and thoughts.
    pub async fn answer(&mut self, call: &Call<'_>) -> Result<Answer, CallFailure> {
        let mut metrics = CallMetrics::start(self.model.name());
        let answered = self.model.answer(call, self.add_call()).await;
        metrics.set_end(CallEnd::of(&answered));
        answered
    }

    /// Calls the model once and returns its answer as a stream. Dropping the future or the stream
    /// ends the call.
    pub async fn stream(&mut self, call: &Call<'_>) -> Result<CallStream<'_>, CallFailure> {
        let model = self.model;
        let mut metrics = CallMetrics::start(model.name());
        match model.stream_and_record_cost(call, self.add_call()).await {
            Ok(pieces) => Ok(CallStream { pieces, metrics }),
            Err(failure) => {
                metrics.set_end(CallEnd::Failed(&failure));
                Err(failure)
            }
        }
    }

    /// Starts the accounting of another call.
    fn add_call(&mut self) -> &mut CallCost {
        let ModelSpend {
            calls,
            input,
            output,
        } = self.spent();
        self.calls = calls + 1;
        self.before = (input, output);
        self.last = CallCost::default();
        &mut self.last
    }
}

/// The answer of a call that is being received.
pub struct CallStream<'a> {
    pieces: BilledAnswerStream<'a>,
    metrics: CallMetrics<'a>,
}

impl CallStream<'_> {
    /// Receives the next piece; None after [`Piece::End`] or a failure.
    pub async fn next(&mut self) -> Option<Result<Piece, CallFailure>> {
        self.pieces.next().await
    }

    /// The cost of the call so far.
    pub const fn cost(&self) -> &CallCost {
        self.pieces.cost()
    }

    /// Ends the call. Its reader says how: pieces that cannot be used are a failure, too. A call
    /// without this counts as abandoned.
    pub fn end(mut self, end: CallEnd<'_>) {
        self.metrics.set_end(end);
    }
}
