//! What the metrics say of a call, and what an answer counts where its provider does not say.

use std::time::Instant;

use anneal_core::tokens::Tokens;

/// Bytes that a token has at least, roughly.
const BYTES_PER_TOKEN: usize = 3;

/// Tokens of so many bytes that a model wrote, estimated.
pub const fn written(bytes: usize) -> Tokens {
    Tokens::new((bytes / BYTES_PER_TOKEN) as u64)
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
