//! The metrics of a call: its outcome and its duration.

use std::time::Instant;

/// Records a call's metrics when it is dropped, also when the call is abandoned.
pub struct CallMetrics<'a> {
    model: &'a str,
    started: Instant,
    outcome: &'static str,
}

impl<'a> CallMetrics<'a> {
    /// Starts the time of a call of this model. Without [`Self::set_outcome`] the call counts as
    /// cancelled.
    pub fn start(model: &'a str) -> Self {
        Self {
            model,
            started: Instant::now(),
            outcome: "cancelled",
        }
    }

    /// Sets the outcome: `answered`, or a failure's name.
    pub const fn set_outcome(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for CallMetrics<'_> {
    fn drop(&mut self) {
        let model = self.model.to_owned();
        metrics::counter!("model_calls_total", "model" => model.clone(), "outcome" => self.outcome)
            .increment(1);
        metrics::histogram!("model_call_duration_seconds", "model" => model)
            .record(self.started.elapsed().as_secs_f64());
    }
}
