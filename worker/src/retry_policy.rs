//! Whether a failed job is deferred, is tried again, or is given up. The other half of this rule is
//! `store/sql/fail_job.sql`: it moves a job with too many starts to the dead jobs. The number of
//! starts and the backoff between them are in `core/src/job.rs`; `worker.rs` applies the decision.
//! After a checkpoint that was given up for bad output, triggers wait (`core/src/trigger.rs`).

use std::time::Duration;

use anneal_core::job::MAX_ATTEMPTS;
use anneal_llm::{SummaryFailure, provider::AdmissionRefusal};
use anneal_store::{JobCommit, StoreError};

/// Why a job did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The summarizer failed.
    #[error(transparent)]
    Summary(#[from] SummaryFailure),
    /// The job panicked. Other jobs are not affected.
    #[error("the job panicked")]
    Panicked,
    /// The lease was lost, or the worker stops. Nothing was written.
    #[error("the job was cancelled")]
    Cancelled,
}

/// The worker's decision about a failed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// The job waits, and this start does not count: the job itself did not fail.
    Defer {
        /// How long the job waits.
        delay: Duration,
    },
    /// The job is tried again, with backoff.
    Retry {
        /// The least delay: what the provider asks for, else zero.
        min_delay: Duration,
        /// The number of starts after which the job is given up.
        max_starts: i16,
    },
}

/// Starts after which a job is given up if the model's answers cannot be used: each try costs as
/// much as the first.
const MAX_STARTS_BAD_OUTPUT: i16 = 3;
/// The longest that a job waits for a breaker or a budget before it is started again.
const MAX_DEFERRAL: Duration = Duration::from_mins(10);
/// Delay of a job that got no free model call or no connection in time, or whose call was
/// interrupted.
const BUSY_DELAY: Duration = Duration::from_secs(1);

impl JobError {
    /// Whether the job is deferred or is tried again, and after how many starts it is given up.
    /// After one start means: it is given up at once.
    pub(crate) fn decision(&self) -> RetryDecision {
        let retry = |min_delay: Option<Duration>, max_starts| RetryDecision::Retry {
            min_delay: min_delay.unwrap_or_default(),
            max_starts,
        };
        match self {
            Self::Summary(SummaryFailure::NotAdmitted(
                AdmissionRefusal::Breaker { retry_after, .. }
                | AdmissionRefusal::Budget { retry_after },
            )) => RetryDecision::Defer {
                delay: (*retry_after).min(MAX_DEFERRAL),
            },
            // These errors say nothing about the job itself, so it must not be given up for them.
            Self::Store(StoreError::Busy)
            | Self::Summary(
                SummaryFailure::NotAdmitted(
                    AdmissionRefusal::Busy | AdmissionRefusal::Share | AdmissionRefusal::Turn,
                )
                | SummaryFailure::Interrupted(_),
            ) => RetryDecision::Defer { delay: BUSY_DELAY },
            Self::Summary(SummaryFailure::Call(failure)) if failure.is_retryable() => {
                retry(failure.retry_after(), MAX_ATTEMPTS)
            }
            Self::Summary(_) if self.is_bad_output() => retry(None, MAX_STARTS_BAD_OUTPUT),
            // The same request would fail again.
            Self::Summary(_) => retry(None, 1),
            Self::Store(_) | Self::Panicked | Self::Cancelled => retry(None, MAX_ATTEMPTS),
        }
    }

    /// Whether the model has answered, and its answer cannot be used.
    pub(crate) const fn is_bad_output(&self) -> bool {
        matches!(self, Self::Summary(failure) if failure.is_bad_output())
    }

    /// How long the model is not called for any job; None: it is called for other jobs.
    pub(crate) fn model_pause(&self) -> Option<Duration> {
        match self {
            Self::Summary(SummaryFailure::NotAdmitted(AdmissionRefusal::Breaker {
                scope: "model",
                retry_after,
                ..
            })) => Some((*retry_after).min(MAX_DEFERRAL)),
            _ => None,
        }
    }

    /// How long the model is not called for any job of this job's tenant; None: it is called for
    /// the tenant's other jobs.
    pub(crate) fn tenant_pause(&self) -> Option<Duration> {
        match self {
            Self::Summary(SummaryFailure::NotAdmitted(AdmissionRefusal::Breaker {
                scope: "tenant",
                retry_after,
                ..
            })) => Some((*retry_after).min(MAX_DEFERRAL)),
            Self::Summary(SummaryFailure::NotAdmitted(AdmissionRefusal::Share)) => Some(BUSY_DELAY),
            _ => None,
        }
    }

    /// Whether the job should make no other call of the model now: the call would fail as well, or
    /// the job must not make it, because its lease is lost or the call would not be admitted.
    pub(crate) const fn rules_out_other_calls(&self) -> bool {
        match self {
            Self::Summary(SummaryFailure::Call(failure)) => failure.is_model_wide(),
            Self::Summary(SummaryFailure::NotAdmitted(_) | SummaryFailure::Interrupted(_))
            | Self::Cancelled => true,
            _ => false,
        }
    }

    /// Whether the job's lease is lost or its conversation is deleted. Then nothing is recorded.
    pub(crate) const fn is_obsolete(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::LeaseLost | StoreError::NotFound(_))
        )
    }
}

/// The result of a job.
pub(crate) type Outcome = Result<JobCommit, JobError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_free_connection_does_not_count_a_start() {
        assert_eq!(
            JobError::Store(StoreError::Busy).decision(),
            RetryDecision::Defer { delay: BUSY_DELAY }
        );
        // For comparison: a start counts if the job panicked.
        let panicked = JobError::Panicked.decision();
        assert_eq!(
            panicked,
            RetryDecision::Retry {
                min_delay: Duration::ZERO,
                max_starts: MAX_ATTEMPTS
            }
        );
    }
}
