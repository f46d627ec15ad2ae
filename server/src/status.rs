//! Failures become gRPC statuses here, and only here. Every status has a stable reason (docs/errors.md); none carries SQL
//! or content.

use std::{collections::HashMap, time::Duration};

use anneal_core::context::BudgetTooSmall;
use anneal_store::{Entity, StoreError};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tracing::error;

/// Who says the reasons.
const DOMAIN: &str = "anneal.v1";

/// The closed list of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    InvalidField,
    LimitExceeded,
    MalformedRequest,
    ConversationNotFound,
    MessageNotFound,
    SeparatorNotFound,
    JobNotFound,
    RequestIdReused,
    LastMessageMismatch,
    EtagMismatch,
    TransactionConflict,
    BudgetTooSmall,
    Overloaded,
    DatabaseUnavailable,
    DeadlineExceeded,
    Internal,
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::InvalidField => "INVALID_FIELD",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::MalformedRequest => "MALFORMED_REQUEST",
            Self::ConversationNotFound => "CONVERSATION_NOT_FOUND",
            Self::MessageNotFound => "MESSAGE_NOT_FOUND",
            Self::SeparatorNotFound => "SEPARATOR_NOT_FOUND",
            Self::JobNotFound => "JOB_NOT_FOUND",
            Self::RequestIdReused => "REQUEST_ID_REUSED",
            Self::LastMessageMismatch => "LAST_MESSAGE_MISMATCH",
            Self::EtagMismatch => "ETAG_MISMATCH",
            Self::TransactionConflict => "TRANSACTION_CONFLICT",
            Self::BudgetTooSmall => "BUDGET_TOO_SMALL",
            Self::Overloaded => "OVERLOADED",
            Self::DatabaseUnavailable => "DATABASE_UNAVAILABLE",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Internal => "INTERNAL",
        }
    }

    const fn code(self) -> Code {
        match self {
            Self::InvalidField | Self::LimitExceeded | Self::MalformedRequest => Code::InvalidArgument,
            Self::ConversationNotFound | Self::MessageNotFound | Self::SeparatorNotFound | Self::JobNotFound => {
                Code::NotFound
            }
            Self::RequestIdReused => Code::AlreadyExists,
            Self::LastMessageMismatch | Self::EtagMismatch | Self::TransactionConflict => Code::Aborted,
            Self::BudgetTooSmall | Self::Overloaded => Code::ResourceExhausted,
            Self::DatabaseUnavailable => Code::Unavailable,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Internal => Code::Internal,
        }
    }

    /// How long a caller should wait before it tries again; None where trying again changes nothing.
    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::TransactionConflict => Some(Duration::from_millis(20)),
            Self::Overloaded => Some(Duration::from_millis(200)),
            Self::DatabaseUnavailable => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A field of the request cannot be accepted.
    #[error("{field}: {description}")]
    Invalid { field: String, description: String },
    /// A field is larger than its limit.
    #[error("{field}: {description}")]
    Limit { field: String, description: String },
    /// The request is no message of its type.
    #[error("the request cannot be decoded: {0}")]
    Malformed(String),
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The context cannot be made small enough.
    #[error(transparent)]
    Budget(#[from] BudgetTooSmall),
    /// Too many calls under way.
    #[error("too many calls are under way")]
    Overloaded,
    /// A bug: the call's work panicked.
    #[error("the call panicked")]
    Panicked,
    /// The caller's time is up.
    #[error("the call took longer than its deadline")]
    Deadline,
}

impl Failure {
    /// A field that cannot be accepted, and why.
    pub(crate) fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), description: description.into() }
    }

    /// A field above its limit.
    pub(crate) fn limit(field: impl Into<String>, most: usize, unit: &str) -> Self {
        Self::Limit { field: field.into(), description: format!("at most {most} {unit}") }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Invalid { .. } => Reason::InvalidField,
            Self::Limit { .. } => Reason::LimitExceeded,
            Self::Malformed(_) => Reason::MalformedRequest,
            Self::Budget(_) => Reason::BudgetTooSmall,
            Self::Overloaded => Reason::Overloaded,
            Self::Deadline => Reason::DeadlineExceeded,
            Self::Panicked => Reason::Internal,
            Self::Store(error) => match error {
                StoreError::NotFound(Entity::Conversation) => Reason::ConversationNotFound,
                StoreError::NotFound(Entity::Message) => Reason::MessageNotFound,
                StoreError::NotFound(Entity::Separator) => Reason::SeparatorNotFound,
                StoreError::NotFound(Entity::Job) => Reason::JobNotFound,
                StoreError::RequestIdReused => Reason::RequestIdReused,
                StoreError::NotTheNewest { .. } => Reason::LastMessageMismatch,
                StoreError::EtagMismatch => Reason::EtagMismatch,
                StoreError::Conflict(_) | StoreError::LeaseLost => Reason::TransactionConflict,
                StoreError::Busy | StoreError::Unavailable(_) => Reason::DatabaseUnavailable,
                StoreError::Slow(_) => Reason::DeadlineExceeded,
                StoreError::Database(_)
                | StoreError::Unreadable(_)
                | StoreError::BadUrl(_)
                | StoreError::ToolsNotKept => Reason::Internal,
            },
        }
    }

    fn details(&self, reason: Reason) -> ErrorDetails {
        let mut facts = HashMap::new();
        let mut details = ErrorDetails::new();
        match self {
            Self::Invalid { field, description } | Self::Limit { field, description } => {
                facts.insert("field".to_owned(), field.clone());
                details.add_bad_request_violation(field, description);
            }
            Self::Store(StoreError::NotTheNewest { actual, expected }) => {
                facts.insert("last_message_id".to_owned(), actual.to_string());
                facts.insert("expected_last_message_id".to_owned(), expected.to_string());
            }
            Self::Budget(sizes) => {
                facts.insert("budget_tokens".to_owned(), sizes.budget.to_string());
                facts.insert("system_prompt_tokens".to_owned(), sizes.system_prompt.to_string());
                facts.insert("newest_message_tokens".to_owned(), sizes.newest.to_string());
            }
            _ => {}
        }
        details.set_error_info(reason.name(), DOMAIN, facts);
        if let Some(wait) = reason.retry_after() {
            details.set_retry_info(Some(wait));
        }
        details
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let reason = failure.reason();
        let text = match reason {
            Reason::Internal => {
                error!(error = ?failure, "a call failed inside: {failure}");
                "internal error; the server's log says more".to_owned()
            }
            _ => failure.to_string(),
        };
        Self::with_error_details(reason.code(), text, failure.details(reason))
    }
}
