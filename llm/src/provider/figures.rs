//! Books the cost of a call, answered or not, and records its metrics.

use std::time::Instant;

use anneal_core::{message::Part, tokens::Tokens};

use super::{CallFailure, CallUsage, Piece};

/// Bytes that a token has at least, roughly.
const BYTES_PER_TOKEN: usize = 3;

/// What one call has cost so far. It outlives the future that makes the call: whoever gives the call up still owes this.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallCost {
    /// Tokens of the request, by our count; zero until it is on its way.
    sent: Tokens,
    /// Bytes that the model has written.
    written_bytes: usize,
    /// What the provider has counted; zeros where it has not said.
    usage: CallUsage,
}

impl CallCost {
    /// Tokens that the provider has read: by its own count where it says one.
    pub fn input(&self) -> Tokens {
        if self.usage.input > Tokens::ZERO { self.usage.input } else { self.sent }
    }

    /// Tokens that the model has written: an estimate, or the provider's count where that is more.
    pub fn output(&self) -> Tokens {
        self.usage.output.max(Tokens::new((self.written_bytes / BYTES_PER_TOKEN) as u64))
    }

    /// The request goes out.
    pub(super) const fn send(&mut self, sent: Tokens) {
        self.sent = sent;
    }

    /// A piece has come, and the provider has counted so much until then.
    pub(super) fn hear(&mut self, piece: &Piece, usage: CallUsage) {
        self.written_bytes += match piece {
            Piece::Text(text) | Piece::Thought(text) => text.len(),
            Piece::ToolUse { name, input, .. } => name.len() + input.len(),
            // Readable thoughts came as such before; of hidden ones there is nothing but their ciphertext.
            Piece::Reasoning(Part::Reasoning { redacted: true, signature, .. }) => signature.len(),
            Piece::Reasoning(_) => 0,
            Piece::End(end) => return self.end(end.usage),
        };
        self.usage = usage;
    }

    /// The answer is whole: what the provider says of it holds, where it says anything.
    const fn end(&mut self, usage: CallUsage) {
        self.usage = usage;
        if usage.input.get() > 0 {
            self.written_bytes = 0;
        }
    }

    /// The call has failed before its answer began. What the provider has refused by the status, or never got, costs nothing.
    pub(super) fn refuse(&mut self, failure: &CallFailure) {
        if !failure.may_have_cost() {
            *self = Self::default();
        }
    }

    /// The answer has failed after it began, and the provider has counted so much: it has read the request, whatever it says
    /// of the failure.
    pub(super) const fn fail(&mut self, usage: CallUsage) {
        self.usage = usage;
    }
}

/// One call under way: counted and timed when dropped, also where nobody waits for it any more.
pub struct CallFigures<'a> {
    model: &'a str,
    begun: Instant,
    outcome: &'static str,
}

impl<'a> CallFigures<'a> {
    /// A call of this model begins. Unless it [ends](Self::ended) it counts as cancelled.
    pub fn begin(model: &'a str) -> Self {
        Self { model, begun: Instant::now(), outcome: "cancelled" }
    }

    /// It ended so: `answered`, or a failure's name.
    pub const fn ended(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for CallFigures<'_> {
    fn drop(&mut self) {
        let model = self.model.to_owned();
        metrics::counter!("model_calls_total", "model" => model.clone(), "outcome" => self.outcome).increment(1);
        metrics::histogram!("model_call_duration_seconds", "model" => model).record(self.begun.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_costs_nothing_before_the_answer_begins_and_the_input_after_it() {
        let (mut refused, mut uncounted) = (CallCost::default(), CallCost::default());
        refused.send(Tokens::new(7));
        refused.refuse(&CallFailure::Limited { status: 529, retry_after: None });
        assert_eq!(refused.input(), Tokens::ZERO);
        uncounted.send(Tokens::new(7));
        let mut counted = uncounted;
        uncounted.fail(CallUsage::default());
        assert_eq!(uncounted.input(), Tokens::new(7));
        counted.fail(CallUsage { input: Tokens::new(9), ..CallUsage::default() });
        assert_eq!(counted.input(), Tokens::new(9));
    }
}
