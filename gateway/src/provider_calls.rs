//! The calls of the provider under one lease. Each call is counted in the metrics. Its cost is
//! recorded even if it is abandoned.

use anneal_core::tokens::Tokens;
use anneal_llm::provider::{Answer, BilledAnswerStream, Call, CallCost, CallFailure, Model, Piece};
use anneal_store::ModelSpend;
use tracing::Instrument as _;

use crate::{call_end::CallEnd, call_metrics::CallMetrics};

/// Makes the calls of a model's provider, and adds up their cost.
pub struct ProviderCalls<'a> {
    model: &'a Model,
    calls: i32,
    /// Calls that have failed, including those that hung.
    failed: i32,
    /// Input tokens of all calls but the last.
    input_before: Tokens,
    /// Output tokens of all calls but the last.
    output_before: Tokens,
    last: CallCost,
    /// Whether the last call hung: nothing had arrived within [`Model::hang_after`].
    has_hung: bool,
}

impl<'a> ProviderCalls<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        Self {
            model,
            calls: 0,
            failed: 0,
            input_before: Tokens::ZERO,
            output_before: Tokens::ZERO,
            last: CallCost::default(),
            has_hung: false,
        }
    }

    /// The model that is called.
    pub const fn model(&self) -> &'a Model {
        self.model
    }

    /// The cost of all calls, including that of a call that did not complete.
    pub fn spent(&self) -> ModelSpend {
        ModelSpend {
            calls: self.calls,
            input: self.input_before + self.last.input(),
            output: self.output_before + self.last.output(),
        }
    }

    /// The cost of the last call so far. If the provider has reported no counts, they are ours.
    pub const fn last_cost(&self) -> &CallCost {
        &self.last
    }

    /// Number of calls that have failed.
    pub(crate) const fn failed(&self) -> i32 {
        self.failed
    }

    /// Calls the model once and returns its whole answer, without tool calls and reasoning.
    pub async fn answer(&mut self, call: &Call<'_>) -> Result<Answer, CallFailure> {
        let mut stream = self.stream(call).await?;
        let result = stream.pieces.read_whole().await;
        stream.end(CallEnd::of(&result));
        result
    }

    /// Calls the model once and returns its answer as a stream. Dropping the future or the stream
    /// ends the call.
    pub async fn stream(&mut self, call: &Call<'_>) -> Result<CallStream<'_>, CallFailure> {
        let model = self.model;
        let (cost, mut metrics) = self.start_call();
        let span = metrics.span().clone();
        let stream = model.stream_and_record_cost(call, cost);
        match stream.instrument(span).await {
            Ok(pieces) => Ok(CallStream { pieces, metrics }),
            Err(failure) => {
                metrics.set_end(CallEnd::Failed(&failure));
                Err(failure)
            }
        }
    }

    /// Whether the last call was ended before it had an end of its own, after it had received
    /// nothing for at least [`Model::hang_after`].
    pub(crate) const fn has_hung(&self) -> bool {
        self.has_hung
    }

    /// Starts the accounting of another call.
    fn start_call(&mut self) -> (&mut CallCost, CallMetrics<'_>) {
        let ModelSpend {
            calls,
            input,
            output,
        } = self.spent();
        self.calls = calls + 1;
        self.input_before = input;
        self.output_before = output;
        self.last = CallCost::default();
        self.has_hung = false;
        let metrics = CallMetrics::start(self.model, &mut self.has_hung, &mut self.failed);
        (&mut self.last, metrics)
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

    /// Ends the call. The reader of the stream says how, because pieces that it cannot use are a
    /// failure, too. A stream that is dropped without this counts as abandoned.
    pub fn end(mut self, end: CallEnd<'_>) {
        self.metrics.set_end(end);
    }
}

impl Drop for CallStream<'_> {
    fn drop(&mut self) {
        self.metrics
            .set_begun(self.pieces.has_begun(), self.pieces.first_piece());
        self.metrics.record_tokens(self.pieces.cost());
    }
}
