//! What a job can come to.

use anneal_llm::SummaryFailure;
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

impl JobError {
    /// Whether somebody else has the job, or nobody needs it any more: nothing is to be recorded.
    pub(crate) const fn is_moot(&self) -> bool {
        matches!(self, Self::Store(StoreError::LeaseLost | StoreError::NotFound(_)))
    }
}

/// What came of a job that did its work.
pub(crate) type Outcome = Result<Committed, JobError>;
