//! The cost of a call in tokens, with or without an answer.

use anneal_core::{message::Part, tokens::Tokens};

use super::{CallFailure, CallUsage, Piece};

/// Bytes per token of the estimates. Most texts have more, so the estimates are rather too high.
const MIN_BYTES_PER_TOKEN: usize = 3;

/// The cost of one call so far. It outlives the future that makes the call, because the provider
/// bills an abandoned call as well.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallCost {
    /// Tokens of the request by our count; zero until it is sent.
    sent: Tokens,
    /// Bytes that the model has written; 0 once the provider's final counts are known.
    written_bytes: usize,
    /// The provider's counts; zeros where it has reported none.
    usage: CallUsage,
}

impl CallCost {
    /// Input tokens: the provider's count, or ours where it has reported none.
    pub fn input(&self) -> Tokens {
        if self.usage.input > Tokens::ZERO {
            self.usage.input
        } else {
            self.sent
        }
    }

    /// Output tokens: an estimate, or the provider's count where that is more. After an end with
    /// the provider's counts, its count alone.
    pub fn output(&self) -> Tokens {
        self.usage.output.max(Tokens::new(
            (self.written_bytes / MIN_BYTES_PER_TOKEN) as u64,
        ))
    }

    /// The provider's counts so far; None: it has reported none.
    pub fn reported(&self) -> Option<CallUsage> {
        (self.usage.input > Tokens::ZERO).then_some(self.usage)
    }

    /// Records that the request is sent.
    pub(super) const fn record_request(&mut self, sent: Tokens) {
        self.sent = sent;
    }

    /// Records a piece of the answer, and the provider's counts until then.
    pub(super) fn record_piece(&mut self, piece: &Piece, usage: CallUsage) {
        self.written_bytes += match piece {
            Piece::Text(text) | Piece::Thought(text) => text.len(),
            Piece::ToolUse { name, input, .. } => name.len() + input.len(),
            // The text of readable thoughts was recorded before, as `Piece::Thought`. Of hidden
            // thoughts only the ciphertext is known.
            Piece::Reasoning(Part::Reasoning {
                redacted: true,
                signature,
                ..
            }) => signature.len(),
            Piece::Reasoning(_) => 0,
            Piece::End(end) => return self.record_end(end.usage),
        };
        self.usage = usage;
    }

    /// Records the end of the answer. The provider's counts, if there are any, replace the
    /// estimate.
    const fn record_end(&mut self, usage: CallUsage) {
        self.usage = usage;
        if usage.input.get() > 0 {
            self.written_bytes = 0;
        }
    }

    /// Records a failure before the answer began. A request that the provider refused by its
    /// status, or never received, costs nothing.
    pub(super) fn record_early_failure(&mut self, failure: &CallFailure) {
        if !failure.may_be_billed() {
            *self = Self::default();
        }
    }

    /// Records a failure within the answer, and the provider's counts until then. The provider has
    /// read the request, so its input is billed.
    pub(super) const fn record_failure(&mut self, usage: CallUsage) {
        self.usage = usage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_costs_nothing_and_a_failure_within_the_answer_costs_the_input() {
        let (mut refused, mut uncounted) = (CallCost::default(), CallCost::default());
        refused.record_request(Tokens::new(7));
        refused.record_early_failure(&CallFailure::Limited {
            status: 529,
            retry_after: None,
        });
        assert_eq!(refused.input(), Tokens::ZERO);
        assert_eq!(refused.output(), Tokens::ZERO);
        uncounted.record_request(Tokens::new(7));
        let mut counted = uncounted;
        uncounted.record_failure(CallUsage::default());
        assert_eq!(uncounted.input(), Tokens::new(7));
        counted.record_failure(CallUsage {
            input: Tokens::new(9),
            ..CallUsage::default()
        });
        assert_eq!(counted.input(), Tokens::new(9));
    }
}
