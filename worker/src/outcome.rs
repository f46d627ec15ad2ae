//! What a job can come to.

use std::time::Duration;

use anneal_core::job::MAX_ATTEMPTS;
use anneal_llm::{SummaryFailure, provider::Closed};
use anneal_store::{Committed, StoreError};

/// Why a job did not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The summariser failed.
    #[error(transparent)]
    Summary(#[from] SummaryFailure),
    /// The job panicked; the others go on.
    #[error("the job panicked")]
    Panicked,
    /// The lease ended, or the worker stops: nothing was written.
    #[error("the job was cancelled")]
    Cancelled,
}

/// What is done about a failed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It waits, and its start does not count: nobody was asked.
    Defer {
        /// How long.
        delay: Duration,
    },
    /// It is tried again, with backoff.
    Retry {
        /// Not before this time has passed, because the provider says so.
        not_before: Duration,
        /// Starts after which it is given up.
        starts: i16,
    },
}

/// Starts of a job whose model writes what cannot be used: another try costs as much as the first.
const STARTS_OF_BAD_WRITING: i16 = 3;
/// The longest that a job waits for a breaker or a budget before it looks again.
const DEFERRED_MOST: Duration = Duration::from_mins(10);
/// How long a job waits for room among a model's calls, or for a connection, after it has waited for it in vain.
const BUSY: Duration = Duration::from_secs(1);

impl JobError {
    /// What is done about it.
    pub(crate) fn what_now(&self) -> What {
        let retry =
            |not_before: Option<Duration>, starts| What::Retry { not_before: not_before.unwrap_or_default(), starts };
        match self {
            Self::Summary(SummaryFailure::Closed(Closed::Breaker { opens_in, .. } | Closed::Budget { opens_in })) => {
                What::Defer { delay: (*opens_in).min(DEFERRED_MOST) }
            }
            // A worker whose own connections are in use says nothing of the job, and must not have it given up.
            Self::Store(StoreError::Busy)
            | Self::Summary(
                SummaryFailure::Closed(Closed::Busy | Closed::Share | Closed::Turn) | SummaryFailure::Interrupted(_),
            ) => What::Defer { delay: BUSY },
            Self::Summary(SummaryFailure::Call(failure)) if failure.is_retryable() => {
                retry(failure.retry_after(), MAX_ATTEMPTS)
            }
            Self::Summary(failure) if failure.is_bad_writing() => retry(None, STARTS_OF_BAD_WRITING),
            // The same request would be refused again.
            Self::Summary(_) => retry(None, 1),
            Self::Store(_) | Self::Panicked | Self::Cancelled => retry(None, MAX_ATTEMPTS),
        }
    }

    /// How long nobody calls the model, whichever job asks; None: others may.
    pub(crate) fn closes_the_model(&self) -> Option<Duration> {
        match self {
            Self::Summary(SummaryFailure::Closed(Closed::Breaker { scope: "model", opens_in })) => {
                Some((*opens_in).min(DEFERRED_MOST))
            }
            _ => None,
        }
    }

    /// How long the job's tenant does not call the model, whichever of its jobs asks; None: others may.
    pub(crate) fn closes_the_model_to_its_tenant(&self) -> Option<Duration> {
        match self {
            Self::Summary(SummaryFailure::Closed(Closed::Breaker { scope: "tenant", opens_in })) => {
                Some((*opens_in).min(DEFERRED_MOST))
            }
            Self::Summary(SummaryFailure::Closed(Closed::Share)) => Some(BUSY),
            _ => None,
        }
    }

    /// Whether the model is not to be had now, whatever is asked of it.
    pub(crate) const fn is_about_the_model(&self) -> bool {
        match self {
            Self::Summary(SummaryFailure::Call(failure)) => failure.is_the_models_own(),
            Self::Summary(SummaryFailure::Closed(_) | SummaryFailure::Interrupted(_)) | Self::Cancelled => true,
            _ => false,
        }
    }

    /// Whether somebody else has the job, or nobody needs it any more: nothing is to be recorded.
    pub(crate) const fn is_moot(&self) -> bool {
        matches!(self, Self::Store(StoreError::LeaseLost | StoreError::NotFound(_)))
    }
}

/// What came of a job that did its work.
pub(crate) type Outcome = Result<Committed, JobError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_free_connection_does_not_count_a_start() {
        assert_eq!(JobError::Store(StoreError::Busy).what_now(), What::Defer { delay: BUSY });
        let panicked = JobError::Panicked.what_now();
        assert_eq!(panicked, What::Retry { not_before: Duration::ZERO, starts: MAX_ATTEMPTS });
    }
}
