//! The metrics of a call of a provider: its outcome and its duration.

use std::time::Instant;

use crate::call_end::CallEnd;

/// A guard that records a call's metrics when the guard is dropped, also if the call is abandoned.
pub(crate) struct CallMetrics<'a> {
    model: &'a str,
    started: Instant,
    outcome: &'static str,
}

impl<'a> CallMetrics<'a> {
    /// Starts to measure a call of this model. Without [`Self::set_end`] the call counts as
    /// abandoned.
    pub(crate) fn start(model: &'a str) -> Self {
        Self {
            model,
            started: Instant::now(),
            outcome: CallEnd::Abandoned.name(),
        }
    }

    pub(crate) const fn set_end(&mut self, end: CallEnd<'_>) {
        self.outcome = end.name();
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
