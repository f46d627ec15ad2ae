//! Limits of time and bytes for every call.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{CallFailure, failure};

/// Limits of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Time until the answer begins, and between two chunks of it.
    pub(super) silence: Duration,
    /// Time of the whole call.
    pub(super) total: Duration,
    /// Bytes of an answer.
    pub(super) bytes: usize,
}

/// The time limits of a call that has started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    silence: Duration,
    end: Instant,
}

impl Deadlines {
    pub(super) fn start(limits: Limits) -> Self {
        Self {
            silence: limits.silence,
            end: Instant::now() + limits.total,
        }
    }

    /// Awaits the future. If it takes too long, returns a failure. Its text is `timeout_text`, or
    /// says that the whole call took too long.
    pub(super) async fn apply<T>(
        &self,
        future: impl Future<Output = T>,
        timeout_text: &str,
    ) -> Result<T, CallFailure> {
        let until = (Instant::now() + self.silence).min(self.end);
        timeout_at(until, future).await.map_err(|_| {
            let text = if until == self.end {
                "the whole call took too long"
            } else {
                timeout_text
            };
            failure::unavailable(text)
        })
    }
}
