//! The error of a call, shared by all layers. `grpc/status.rs` converts a failure to a gRPC status,
//! and `http/problem.rs` to an HTTP problem. `reason.rs` lists the stable reasons.

use std::{fmt, time::Duration};

use anneal_core::{caller::Verb, context::BudgetTooSmall, limits::RESPONSE_BYTES, tokens::Tokens};
use anneal_llm::provider::{AdmissionRefusal, CallFailure};
use anneal_proto::convert::FieldError;
use anneal_store::{Entity, StoreError};

use crate::{reason::Reason, truncated_text::TruncatedText};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A field of the request cannot be accepted.
    #[error("{field}: {description}")]
    Invalid {
        field: TruncatedText,
        description: TruncatedText,
    },
    /// A field is larger than its limit.
    #[error("{field}: {description}")]
    Limit {
        field: TruncatedText,
        description: TruncatedText,
    },
    /// The request is not a valid protobuf message of its type, or its body comes in too many
    /// pieces.
    #[error("the request cannot be decoded: {0}")]
    Malformed(TruncatedText),
    /// The caller could not be authenticated.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The caller's credential does not allow the call.
    #[error("the credential does not allow this: it lacks the verb {}", .0.name())]
    VerbMissing(Verb),
    /// The call concerns more than the user, agent or conversation that the credential is bound to.
    #[error(
        "the credential is bound to a user, an agent or a conversation, and the call concerns more"
    )]
    CredentialBound,
    /// The store refused the operation or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A message that a field of the request names does not exist, or is in a state in which it
    /// cannot be changed.
    #[error("{field}: {error}")]
    NamedMessage { field: String, error: StoreError },
    /// The context cannot be reduced to its budget.
    #[error(transparent)]
    Budget(#[from] BudgetTooSmall),
    /// The configuration has no model of this name, or the model has no provider. `model` is empty
    /// if neither the call, the conversation nor the settings name one.
    #[error("{}", if .model.as_str().is_empty() { "no model is configured for this call".to_owned() } else { format!("the model {} cannot be called: it is not in the server's configuration, or names no provider", .model) })]
    ModelNotConfigured { model: TruncatedText },
    /// The call names no model, the settings have none for such calls, and the conversation's model
    /// is not configured.
    #[error("chat.model is not set, and the conversation's model {model} is not configured")]
    NoDefaultModel { model: TruncatedText },
    /// The message refers to a media address that may not be sent to the model's provider.
    #[error(
        "{field}: this address may not be sent to the provider of {model}; send the bytes in a data: URI"
    )]
    MediaNotAllowed { field: String, model: String },
    /// The model's provider failed or refused the call.
    #[error("{failure}")]
    Model { model: String, failure: CallFailure },
    /// The model was not called, because of a breaker, a concurrency limit, the tenant's budget or
    /// another turn under way.
    #[error("{refusal}")]
    NotAdmitted {
        model: String,
        refusal: AdmissionRefusal,
    },
    /// The context did not fit the model's window, even after compaction.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// The answer exceeds the size limit of one answer.
    #[error(
        "the answer would have {bytes} bytes, and may have {}; ask for less, a range or a stream",
        RESPONSE_BYTES
    )]
    AnswerTooLarge { bytes: usize },
    /// The turn's lease ended before its answer was stored, and another turn may have begun: this
    /// process was suspended, or was cut off from the database.
    #[error("the turn was interrupted")]
    TurnLost,
    /// This process stops, and the time that its running turns get to finish is over.
    #[error("the server is stopping")]
    Stopping,
    /// The provider closed its stream while the answer waited for a slow reader.
    #[error("the answer was cut off while its caller did not read")]
    SlowReader,
    /// A repeated turn without a stored answer, in a conversation that has newer messages.
    #[error("the conversation has gone on since the question was stored")]
    TurnOvertaken,
    /// The conversation keeps no tool messages, and the rest of the prompt does not end with a
    /// message of the user.
    #[error("the conversation keeps no tool messages")]
    ToolsNotKept,
    /// The context has no message: none is stored behind the boundary, and the call has no input.
    #[error(
        "the context would have no message: none is stored behind its head, and none was given"
    )]
    ContextEmpty,
    /// The prompt consists of tool results, and none of them answers a call of the conversation.
    #[error("the tool results answer no call of the conversation, so contexts leave them out")]
    ToolCallMissing,
    /// The reader of a watch took no event for too long. `position` is where it can resume.
    #[error("the reader of this watch has taken no event for too long")]
    WatcherTooSlow { position: String },
    /// This process stops: it refuses a new HTTP request, or ends a watch or a turn that has waited
    /// for another one. Another server can go on with them.
    #[error("the server is stopping; use another one, where a watch can be resumed")]
    ServerStopping,
    /// A concurrency or memory limit of this process is reached.
    #[error("too many calls are under way")]
    Overloaded,
    /// The tenant exceeds its rate of calls or of bytes.
    #[error("the tenant is above limits.{limit}")]
    RateExceeded { limit: &'static str, wait: Duration },
    /// The append or the edit would exceed a storage quota of its tenant.
    #[error("the tenant would store more than limits.{limit} allows: {most}")]
    StorageQuota { limit: &'static str, most: u64 },
    /// Too many unknown keys have come from this address, so this key was not looked up.
    #[error(
        "this address has sent too many unknown keys; a key that this server has not seen lately has to wait"
    )]
    TooManyUnknownKeys { wait: Duration },
    /// The request's body did not arrive completely in time.
    #[error("the request did not arrive completely in time")]
    RequestIncomplete,
    /// The call's work panicked: a bug.
    #[error("the call panicked")]
    Panicked,
    /// The call exceeded its deadline.
    #[error("the call took longer than its deadline")]
    Deadline,
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Invalid { field, description } => Self::invalid(field, description),
            FieldError::Limit { field, most, unit } => Self::limit(field, most, unit),
        }
    }
}

/// Why a caller is not authenticated. The text says what is wrong with the credential. It does not
/// reveal whether the credential exists for another tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AuthError {
    #[error("no credential: send `authorization: Bearer …`")]
    NoCredential,
    #[error("the authorization header is not `Bearer` and one credential")]
    NotBearer,
    #[error("the credential is not known here, has expired, or was revoked")]
    Unknown,
    #[error("the token is refused: {0}")]
    Token(&'static str),
    #[error("the client certificate names no configured client")]
    Certificate,
    #[error("the client certificate has expired")]
    CertificateExpired,
}

impl AuthError {
    /// The label in metrics and in the audit log.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::NotBearer => "malformed",
            Self::Unknown => "unknown",
            Self::Token(_) => "token",
            Self::Certificate => "certificate",
            Self::CertificateExpired => "certificate_expired",
        }
    }
}

/// The sizes of a context that did not fit its model, in the model's tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Overflow {
    pub(crate) model: String,
    /// The model's window: the smaller of the configured one and the one that its provider named.
    pub(crate) window: Tokens,
    /// The context of the last attempt.
    pub(crate) context: Tokens,
    /// Tokens reserved for the answer.
    pub(crate) output: Tokens,
    /// Tokens of the last context that the provider has read by its own count, if it has cut that
    /// context without an error.
    pub(crate) read: Option<Tokens>,
    /// Number of model calls made.
    pub(crate) attempts: u32,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            window,
            context,
            output,
            read,
            ..
        } = self;
        match read {
            Some(read) => write!(
                f,
                "the model's provider has cut the context without an error: by its own count it has read only {read} of \
                 {context} tokens, although the model's window is configured as {window}"
            ),
            None => write!(
                f,
                "a context of {context} tokens and {output} for the answer do not fit the model's window of {window}"
            ),
        }
    }
}

impl Failure {
    /// The failure for a field that cannot be accepted. `description` says why.
    pub(crate) fn invalid(
        field: impl AsRef<str> + Into<String>,
        description: impl AsRef<str> + Into<String>,
    ) -> Self {
        Self::Invalid {
            field: TruncatedText::new(field),
            description: TruncatedText::new(description),
        }
    }

    /// The failure for a request that cannot be decoded. `description` says why.
    pub(crate) fn malformed(description: impl AsRef<str> + Into<String>) -> Self {
        Self::Malformed(TruncatedText::new(description))
    }

    /// The failure for a model that cannot be called.
    pub(crate) fn model_not_configured(model: impl AsRef<str> + Into<String>) -> Self {
        Self::ModelNotConfigured {
            model: TruncatedText::new(model),
        }
    }

    /// The failure for a field that exceeds its limit.
    pub(crate) fn limit(field: impl AsRef<str> + Into<String>, most: usize, unit: &str) -> Self {
        Self::Limit {
            field: TruncatedText::new(field),
            description: TruncatedText::new(format!("at most {most} {unit}")),
        }
    }

    /// Prefixes the field's path with the path of the outer field.
    pub(crate) fn within(self, outer: &str) -> Self {
        let within = |field: TruncatedText| TruncatedText::new(format!("{outer}.{field}"));
        match self {
            Self::Invalid { field, description } => Self::Invalid {
                field: within(field),
                description,
            },
            Self::Limit { field, description } => Self::Limit {
                field: within(field),
                description,
            },
            other => other,
        }
    }

    /// The failure of a lookup that several calls waited for. `StoreError` cannot be cloned, so
    /// every error but [`StoreError::Busy`] becomes [`StoreError::Unresponsive`], which is
    /// retryable.
    pub(crate) fn of_shared(error: &StoreError) -> Self {
        Self::Store(match error {
            StoreError::Busy => StoreError::Busy,
            _ => StoreError::Unresponsive,
        })
    }

    /// The stable reason of this failure (docs/errors.md).
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Invalid { .. } => Reason::InvalidField,
            Self::Limit { .. } => Reason::LimitExceeded,
            Self::Malformed(_) => Reason::MalformedRequest,
            Self::Auth(_) => Reason::Unauthenticated,
            Self::VerbMissing(_) => Reason::VerbMissing,
            Self::CredentialBound => Reason::CredentialBound,
            Self::Budget(_) => Reason::BudgetTooSmall,
            Self::ModelNotConfigured { .. } | Self::NoDefaultModel { .. } => {
                Reason::ModelNotConfigured
            }
            Self::MediaNotAllowed { .. } => Reason::MediaNotAllowed,
            Self::Model { failure, .. } => match failure {
                CallFailure::Overflow { .. } => Reason::ContextOverflow,
                CallFailure::Refused { .. } => Reason::ModelRefused,
                CallFailure::Limited { .. }
                | CallFailure::Unavailable { .. }
                | CallFailure::Broken(_) => Reason::ModelUnavailable,
            },
            Self::NotAdmitted { refusal, .. } => match refusal {
                AdmissionRefusal::Breaker { .. } => Reason::ModelUnavailable,
                AdmissionRefusal::Busy | AdmissionRefusal::Share => Reason::ModelBusy,
                AdmissionRefusal::Budget { .. } => Reason::TenantBudgetSpent,
                AdmissionRefusal::Turn => Reason::TurnInProgress,
            },
            Self::Overflow(_) => Reason::ContextOverflow,
            Self::AnswerTooLarge { .. } => Reason::AnswerTooLarge,
            Self::TurnLost | Self::Stopping | Self::SlowReader => Reason::ModelUnavailable,
            Self::TurnOvertaken => Reason::TurnOvertaken,
            Self::ToolsNotKept => Reason::ToolsNotKept,
            Self::ToolCallMissing => Reason::ToolCallMissing,
            Self::ContextEmpty => Reason::ContextEmpty,
            Self::WatcherTooSlow { .. } => Reason::WatcherTooSlow,
            Self::ServerStopping => Reason::ServerStopping,
            Self::Overloaded => Reason::Overloaded,
            Self::RateExceeded { .. } => Reason::TenantRateExceeded,
            Self::StorageQuota { .. } => Reason::StorageQuotaExceeded,
            Self::TooManyUnknownKeys { .. } => Reason::UnknownKeysExceeded,
            Self::Deadline | Self::RequestIncomplete => Reason::DeadlineExceeded,
            Self::Panicked => Reason::Internal,
            Self::Store(error) | Self::NamedMessage { error, .. } => store_reason(error),
        }
    }
}

const fn store_reason(error: &StoreError) -> Reason {
    match error {
        StoreError::NotFound(Entity::Conversation) => Reason::ConversationNotFound,
        StoreError::NotFound(Entity::Message | Entity::Alternative)
        | StoreError::UnknownMessage(_) => Reason::MessageNotFound,
        StoreError::NotFound(Entity::Version) => Reason::VersionNotFound,
        StoreError::NotFound(Entity::Separator) => Reason::SeparatorNotFound,
        StoreError::NotFound(Entity::Job) => Reason::JobNotFound,
        StoreError::NotFound(Entity::Erasure) => Reason::ErasureNotFound,
        StoreError::NotFound(Entity::Response) => Reason::ResponseNotFound,
        StoreError::RequestIdReused | StoreError::RequestIdCreated(_) => Reason::RequestIdReused,
        StoreError::NotTheNewest { .. } => Reason::LastMessageMismatch,
        StoreError::EtagMismatch => Reason::EtagMismatch,
        StoreError::MessageWithdrawn(_) => Reason::MessageWithdrawn,
        StoreError::MessageErased(_) => Reason::MessageErased,
        StoreError::VersionMismatch { .. } => Reason::VersionMismatch,
        StoreError::OtherRole | StoreError::OtherToolCalls | StoreError::BeforeSeparator(_) => {
            Reason::InvalidField
        }
        StoreError::ToolCallMissing(_) => Reason::ToolCallMissing,
        StoreError::TooManyMessages => Reason::LimitExceeded,
        StoreError::Conflict(_)
        | StoreError::SessionMoved
        | StoreError::LeaseLost
        | StoreError::CountMissing => Reason::TransactionConflict,
        StoreError::ShareInUse | StoreError::TooManyCompactions => Reason::Overloaded,
        StoreError::ToolCallOpen => Reason::ToolCallOpen,
        StoreError::Busy | StoreError::Unresponsive | StoreError::Unavailable(_) => {
            Reason::DatabaseUnavailable
        }
        StoreError::StatementTimeout(_) => Reason::DeadlineExceeded,
        StoreError::InvalidCheckpoint(_) => Reason::CheckpointUnsound,
        StoreError::Database(_)
        | StoreError::Unreadable(_)
        | StoreError::BadUrl(_)
        | StoreError::Unprotected { .. } => Reason::Internal,
    }
}
