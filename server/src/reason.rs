//! The stable reasons of refusals: their names, their gRPC codes, and how long to wait before a
//! retry. docs/errors.md explains each.

use std::time::Duration;

use tonic::Code;

/// The reason of a refusal. The list is closed: clients program against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    InvalidField,
    LimitExceeded,
    MalformedRequest,
    Unauthenticated,
    VerbMissing,
    CredentialBound,
    ConversationNotFound,
    MessageNotFound,
    SeparatorNotFound,
    JobNotFound,
    ErasureNotFound,
    ResponseNotFound,
    RequestIdReused,
    LastMessageMismatch,
    EtagMismatch,
    TransactionConflict,
    TurnInProgress,
    TurnOvertaken,
    ToolsNotKept,
    ToolCallMissing,
    ToolCallOpen,
    ContextEmpty,
    CheckpointUnsound,
    MessageWithdrawn,
    MessageErased,
    VersionNotFound,
    VersionMismatch,
    BudgetTooSmall,
    ContextOverflow,
    AnswerTooLarge,
    MediaNotAllowed,
    ModelNotConfigured,
    ModelRefused,
    ModelUnavailable,
    ModelBusy,
    TenantBudgetSpent,
    TenantRateExceeded,
    StorageQuotaExceeded,
    UnknownKeysExceeded,
    WatcherTooSlow,
    Overloaded,
    ServerStopping,
    DatabaseUnavailable,
    DeadlineExceeded,
    Internal,
}

impl Reason {
    /// The name in the `ErrorInfo` of a gRPC status.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InvalidField => "INVALID_FIELD",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::MalformedRequest => "MALFORMED_REQUEST",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::VerbMissing => "VERB_MISSING",
            Self::CredentialBound => "CREDENTIAL_BOUND",
            Self::ConversationNotFound => "CONVERSATION_NOT_FOUND",
            Self::MessageNotFound => "MESSAGE_NOT_FOUND",
            Self::SeparatorNotFound => "SEPARATOR_NOT_FOUND",
            Self::JobNotFound => "JOB_NOT_FOUND",
            Self::ErasureNotFound => "ERASURE_NOT_FOUND",
            Self::ResponseNotFound => "RESPONSE_NOT_FOUND",
            Self::RequestIdReused => "REQUEST_ID_REUSED",
            Self::LastMessageMismatch => "LAST_MESSAGE_MISMATCH",
            Self::EtagMismatch => "ETAG_MISMATCH",
            Self::TransactionConflict => "TRANSACTION_CONFLICT",
            Self::TurnInProgress => "TURN_IN_PROGRESS",
            Self::TurnOvertaken => "TURN_OVERTAKEN",
            Self::ToolsNotKept => "TOOLS_NOT_KEPT",
            Self::ToolCallMissing => "TOOL_CALL_MISSING",
            Self::ToolCallOpen => "TOOL_CALL_OPEN",
            Self::ContextEmpty => "CONTEXT_EMPTY",
            Self::CheckpointUnsound => "CHECKPOINT_UNSOUND",
            Self::MessageWithdrawn => "MESSAGE_WITHDRAWN",
            Self::MessageErased => "MESSAGE_ERASED",
            Self::VersionNotFound => "VERSION_NOT_FOUND",
            Self::VersionMismatch => "VERSION_MISMATCH",
            Self::BudgetTooSmall => "BUDGET_TOO_SMALL",
            Self::ContextOverflow => "CONTEXT_OVERFLOW",
            Self::AnswerTooLarge => "ANSWER_TOO_LARGE",
            Self::MediaNotAllowed => "MEDIA_NOT_ALLOWED",
            Self::ModelNotConfigured => "MODEL_NOT_CONFIGURED",
            Self::ModelRefused => "MODEL_REFUSED",
            Self::ModelUnavailable => "MODEL_UNAVAILABLE",
            Self::ModelBusy => "MODEL_BUSY",
            Self::TenantBudgetSpent => "TENANT_BUDGET_SPENT",
            Self::TenantRateExceeded => "TENANT_RATE_EXCEEDED",
            Self::StorageQuotaExceeded => "STORAGE_QUOTA_EXCEEDED",
            Self::UnknownKeysExceeded => "UNKNOWN_KEYS_EXCEEDED",
            Self::WatcherTooSlow => "WATCHER_TOO_SLOW",
            Self::Overloaded => "OVERLOADED",
            Self::ServerStopping => "SERVER_STOPPING",
            Self::DatabaseUnavailable => "DATABASE_UNAVAILABLE",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Internal => "INTERNAL",
        }
    }

    pub(crate) const fn code(self) -> Code {
        match self {
            Self::InvalidField
            | Self::LimitExceeded
            | Self::MalformedRequest
            | Self::MediaNotAllowed => Code::InvalidArgument,
            Self::ConversationNotFound
            | Self::MessageNotFound
            | Self::VersionNotFound
            | Self::SeparatorNotFound
            | Self::JobNotFound
            | Self::ErasureNotFound
            | Self::ResponseNotFound => Code::NotFound,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::VerbMissing | Self::CredentialBound => Code::PermissionDenied,
            Self::RequestIdReused => Code::AlreadyExists,
            Self::LastMessageMismatch
            | Self::EtagMismatch
            | Self::VersionMismatch
            | Self::TransactionConflict
            | Self::TurnInProgress
            | Self::TurnOvertaken => Code::Aborted,
            Self::ToolsNotKept
            | Self::ToolCallMissing
            | Self::ToolCallOpen
            | Self::ContextEmpty
            | Self::CheckpointUnsound
            | Self::MessageWithdrawn
            | Self::MessageErased
            | Self::ContextOverflow
            | Self::ModelNotConfigured
            | Self::ModelRefused => Code::FailedPrecondition,
            Self::BudgetTooSmall
            | Self::ModelBusy
            | Self::TenantBudgetSpent
            | Self::TenantRateExceeded
            | Self::StorageQuotaExceeded
            | Self::UnknownKeysExceeded
            | Self::WatcherTooSlow
            | Self::Overloaded => Code::ResourceExhausted,
            Self::ModelUnavailable | Self::ServerStopping | Self::DatabaseUnavailable => {
                Code::Unavailable
            }
            Self::AnswerTooLarge => Code::OutOfRange,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Internal => Code::Internal,
        }
    }

    /// How long a caller should wait before it retries. None, in three cases:
    /// - a retry would not help;
    /// - the wait depends on the failure (`grpc/status.rs`), as with `TenantRateExceeded`;
    /// - the server cannot know: after `DeadlineExceeded` a retry may help or not.
    pub(crate) const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::TransactionConflict => Some(Duration::from_millis(20)),
            Self::Overloaded | Self::ServerStopping => Some(Duration::from_millis(200)),
            Self::DatabaseUnavailable
            | Self::ModelUnavailable
            | Self::ModelBusy
            | Self::TurnInProgress => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}
