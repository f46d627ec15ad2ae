//! Failures become gRPC statuses here, and only here. Every status has a stable reason (docs/errors.md); none carries SQL
//! or content.

use std::{collections::HashMap, time::Duration};

use anneal_core::{adoption::Unsound, caller::Verb, context::BudgetTooSmall, limits::RESPONSE_BYTES, tokens::Tokens};
use anneal_llm::provider::{CallFailure, Closed};
use anneal_store::{Entity, StoreError};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};
use tracing::error;

use crate::{auth::Stranger, brief::Brief, reason::Reason};

/// Who says the reasons.
const DOMAIN: &str = "anneal.v1";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A field of the request cannot be accepted.
    #[error("{field}: {description}")]
    Invalid { field: Brief, description: Brief },
    /// A field is larger than its limit.
    #[error("{field}: {description}")]
    Limit { field: Brief, description: Brief },
    /// The request is no message of its type.
    #[error("the request cannot be decoded: {0}")]
    Malformed(Brief),
    /// Nobody knows who calls.
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// The caller's credential does not allow the call.
    #[error("the credential does not allow this: it lacks the verb {}", .0.name())]
    VerbMissing(Verb),
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The context cannot be made small enough.
    #[error(transparent)]
    Budget(#[from] BudgetTooSmall),
    /// No model of this name can be called from here.
    #[error("{}", if .model.as_str().is_empty() { "no model is configured for this call".to_owned() } else { format!("the model {} cannot be called: it is not in the server's configuration, or names no provider", .model) })]
    ModelNotConfigured { model: Brief },
    /// The model's provider may not be told the address of a medium.
    #[error("{field}: the provider of {model} may not be told this address; send the bytes in a data: URI")]
    MediaNotAllowed { field: String, model: String },
    /// A model gave no answer.
    #[error("{failure}")]
    Model { model: String, failure: CallFailure },
    /// A model is not even called.
    #[error("{closed}")]
    NotAdmitted { model: String, closed: Closed },
    /// Whatever was left out, the context did not fit the model.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// The answer is above what one answer may have.
    #[error("the answer would have {bytes} bytes, and may have {}; ask for less, a range or a stream", RESPONSE_BYTES)]
    AnswerTooLarge { bytes: usize },
    /// The turn's lease ended: this process was stopped, or cut off from the database.
    #[error("the turn was interrupted")]
    TurnLost,
    /// This process stops, and the turn would not end in time.
    #[error("the server is stopping")]
    Stopping,
    /// The provider gave up an answer that waited for its reader.
    #[error("the answer was cut off while its caller did not read")]
    SlowReader,
    /// A repeated turn that was never answered, in a conversation that has gone on without it.
    #[error("the conversation has gone on since the question was stored")]
    TurnOvertaken,
    /// The reader of a watch, which stands at `position`, has taken no event for too long.
    #[error("the watch's reader has taken no event for too long")]
    WatcherTooSlow { position: String },
    /// This process stops, and what it was watching goes on elsewhere.
    #[error("the server stops; watch on with another one")]
    ServerStopping,
    /// Too many calls under way, or too much that waits.
    #[error("too many calls are under way")]
    Overloaded,
    /// The caller's tenant calls too often, or has sent and read too much.
    #[error("the tenant is above limits.{limit}")]
    TooFast { limit: &'static str, wait: Duration },
    /// The append would take its tenant above what it may store.
    #[error("the tenant would store more than limits.{limit} allows: {most}")]
    StorageQuota { limit: &'static str, most: u64 },
    /// The caller's address has shown too many keys that nobody has, and its key was not looked up.
    #[error(
        "too many keys have come from this address that nobody has; a key that this server has not met yet has to wait"
    )]
    TooManyUnknownKeys { wait: Duration },
    /// The request's body has not come whole in its time.
    #[error("the request did not come in time")]
    NotWhole,
    /// A bug: the call's work panicked.
    #[error("the call panicked")]
    Panicked,
    /// The caller's time is up.
    #[error("the call took longer than its deadline")]
    Deadline,
}

/// The sizes of a context that did not fit its model in the end; all in the model's tokens.
#[derive(Debug, thiserror::Error)]
#[error("a context of {context} tokens and {output} for the answer do not fit the model's window of {window}")]
pub(crate) struct Overflow {
    pub(crate) model: String,
    /// The model's window, as far as known.
    pub(crate) window: Tokens,
    /// The last context.
    pub(crate) context: Tokens,
    /// Room for the answer.
    pub(crate) output: Tokens,
    /// Calls of the model.
    pub(crate) attempts: u32,
}

impl Failure {
    /// A field that cannot be accepted, and why.
    pub(crate) fn invalid(field: impl AsRef<str> + Into<String>, description: impl AsRef<str> + Into<String>) -> Self {
        Self::Invalid { field: Brief::new(field), description: Brief::new(description) }
    }

    /// A request that is no message of its type, and why.
    pub(crate) fn malformed(description: impl AsRef<str> + Into<String>) -> Self {
        Self::Malformed(Brief::new(description))
    }

    /// A model that cannot be called.
    pub(crate) fn model_not_configured(model: impl AsRef<str> + Into<String>) -> Self {
        Self::ModelNotConfigured { model: Brief::new(model) }
    }

    /// A field above its limit.
    pub(crate) fn limit(field: impl AsRef<str> + Into<String>, most: usize, unit: &str) -> Self {
        Self::Limit { field: Brief::new(field), description: Brief::new(format!("at most {most} {unit}")) }
    }

    /// The same of a request that lies in a field of another.
    pub(crate) fn within(self, outer: &str) -> Self {
        let within = |field: Brief| Brief::new(format!("{outer}.{field}"));
        match self {
            Self::Invalid { field, description } => Self::Invalid { field: within(field), description },
            Self::Limit { field, description } => Self::Limit { field: within(field), description },
            other => other,
        }
    }

    /// The failure of a lookup that several calls waited for: the database did not answer, and may do so later.
    pub(crate) fn of_shared(error: &StoreError) -> Self {
        Self::Store(match error {
            StoreError::Busy => StoreError::Busy,
            _ => StoreError::Silent,
        })
    }

    /// Its stable reason.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Invalid { .. } => Reason::InvalidField,
            Self::Limit { .. } => Reason::LimitExceeded,
            Self::Malformed(_) => Reason::MalformedRequest,
            Self::Stranger(_) => Reason::Unauthenticated,
            Self::VerbMissing(_) => Reason::VerbMissing,
            Self::Budget(_) => Reason::BudgetTooSmall,
            Self::ModelNotConfigured { .. } => Reason::ModelNotConfigured,
            Self::MediaNotAllowed { .. } => Reason::MediaNotAllowed,
            Self::Model { failure, .. } => match failure {
                CallFailure::Overflow { .. } => Reason::ContextOverflow,
                CallFailure::Refused { .. } => Reason::ModelRefused,
                CallFailure::Limited { .. } | CallFailure::Unavailable { .. } | CallFailure::Broken(_) => {
                    Reason::ModelUnavailable
                }
            },
            Self::NotAdmitted { closed, .. } => match closed {
                Closed::Breaker { .. } => Reason::ModelUnavailable,
                Closed::Busy | Closed::Share => Reason::ModelBusy,
                Closed::Budget { .. } => Reason::TenantBudgetSpent,
                Closed::Turn => Reason::TurnInProgress,
            },
            Self::Overflow(_) => Reason::ContextOverflow,
            Self::AnswerTooLarge { .. } => Reason::AnswerTooLarge,
            Self::TurnLost | Self::Stopping | Self::SlowReader => Reason::ModelUnavailable,
            Self::TurnOvertaken => Reason::TurnOvertaken,
            Self::WatcherTooSlow { .. } => Reason::WatcherTooSlow,
            Self::ServerStopping => Reason::ServerStopping,
            Self::Overloaded => Reason::Overloaded,
            Self::TooFast { .. } => Reason::TenantRateExceeded,
            Self::StorageQuota { .. } => Reason::StorageQuotaExceeded,
            Self::TooManyUnknownKeys { .. } => Reason::UnknownKeysExceeded,
            Self::Deadline | Self::NotWhole => Reason::DeadlineExceeded,
            Self::Panicked => Reason::Internal,
            Self::Store(error) => match error {
                StoreError::NotFound(Entity::Conversation) => Reason::ConversationNotFound,
                StoreError::NotFound(Entity::Message) => Reason::MessageNotFound,
                StoreError::NotFound(Entity::Separator) => Reason::SeparatorNotFound,
                StoreError::NotFound(Entity::Job) => Reason::JobNotFound,
                StoreError::RequestIdReused => Reason::RequestIdReused,
                StoreError::NotTheNewest { .. } => Reason::LastMessageMismatch,
                StoreError::EtagMismatch => Reason::EtagMismatch,
                StoreError::Conflict(_) | StoreError::SessionMoved | StoreError::LeaseLost => {
                    Reason::TransactionConflict
                }
                StoreError::ShareInUse => Reason::Overloaded,
                StoreError::Busy | StoreError::Silent | StoreError::Unavailable(_) => Reason::DatabaseUnavailable,
                StoreError::Slow(_) => Reason::DeadlineExceeded,
                StoreError::ToolsNotKept => Reason::ToolsNotKept,
                StoreError::Unsound(_) => Reason::CheckpointUnsound,
                StoreError::Database(_)
                | StoreError::Unreadable(_)
                | StoreError::BadUrl(_)
                | StoreError::Unprotected { .. } => Reason::Internal,
            },
        }
    }

    fn details(&self, reason: Reason) -> ErrorDetails {
        let mut facts = HashMap::new();
        let mut details = ErrorDetails::new();
        match self {
            Self::Invalid { field, description } | Self::Limit { field, description } => {
                facts.insert("field".to_owned(), field.to_string());
                details.add_bad_request_violation(field.to_string(), description.to_string());
            }
            Self::Store(StoreError::NotTheNewest { actual, expected }) => {
                facts.insert("last_message_id".to_owned(), actual.to_string());
                facts.insert("expected_last_message_id".to_owned(), expected.to_string());
            }
            Self::VerbMissing(verb) => {
                facts.insert("verb".to_owned(), verb.name().to_owned());
            }
            Self::Store(StoreError::Unsound(why)) => facts.extend(unsound(*why)),
            Self::Budget(sizes) => {
                facts.insert("budget_tokens".to_owned(), sizes.budget.to_string());
                facts.insert("system_prompt_tokens".to_owned(), sizes.system_prompt.to_string());
                facts.insert("newest_message_tokens".to_owned(), sizes.newest.to_string());
            }
            Self::ModelNotConfigured { model } => {
                facts.insert("model".to_owned(), model.to_string());
            }
            Self::NotAdmitted { model, .. } => {
                facts.insert("model".to_owned(), model.clone());
            }
            Self::MediaNotAllowed { field, model } => {
                facts.insert("field".to_owned(), field.clone());
                facts.insert("model".to_owned(), model.clone());
                details.add_bad_request_violation(field, "this address may not go to the provider");
            }
            Self::Model { model, failure } => {
                facts.insert("model".to_owned(), model.clone());
                if let CallFailure::Limited { status, .. } | CallFailure::Refused { status } = failure {
                    facts.insert("provider_status".to_owned(), status.to_string());
                }
            }
            Self::Overflow(sizes) => {
                facts.insert("model".to_owned(), sizes.model.clone());
                facts.insert("window_tokens".to_owned(), sizes.window.to_string());
                facts.insert("context_tokens".to_owned(), sizes.context.to_string());
                facts.insert("output_tokens".to_owned(), sizes.output.to_string());
                facts.insert("attempts".to_owned(), sizes.attempts.to_string());
            }
            Self::TooFast { limit, .. } => {
                facts.insert("limit".to_owned(), (*limit).to_owned());
            }
            Self::StorageQuota { limit, most } => {
                facts.insert("limit".to_owned(), (*limit).to_owned());
                facts.insert("most".to_owned(), most.to_string());
            }
            Self::WatcherTooSlow { position } => {
                facts.insert("position".to_owned(), position.clone());
            }
            _ => {}
        }
        details.set_error_info(reason.name(), DOMAIN, facts);
        if let Some(wait) = self.retry_after(reason) {
            details.set_retry_info(Some(wait));
        }
        details
    }

    /// How long a caller should wait: what the failure itself says, or else what its reason does.
    fn retry_after(&self, reason: Reason) -> Option<Duration> {
        let said = match self {
            Self::Model { failure, .. } => failure.retry_after(),
            Self::NotAdmitted { closed: Closed::Breaker { opens_in, .. } | Closed::Budget { opens_in }, .. } => {
                Some(*opens_in)
            }
            Self::TooFast { wait, .. } | Self::TooManyUnknownKeys { wait } => Some(*wait),
            _ => None,
        };
        said.or_else(|| reason.retry_after())
    }
}

/// What is wrong with a summary from elsewhere: which rule it breaks, and its figures.
fn unsound(why: Unsound) -> Vec<(String, String)> {
    let (rule, figures) = match why {
        Unsound::BeyondNewest { newest, .. } => ("beyond_newest", vec![("newest_message_id", newest.to_string())]),
        Unsound::NotNewer { boundary, .. } => ("not_newer", vec![("boundary_message_id", boundary.to_string())]),
        Unsound::PartsToolCall { .. } => ("parts_tool_call", Vec::new()),
        Unsound::NotShorter { summary, replaced } => {
            let figures = [("summary_tokens", summary.to_string()), ("replaced_tokens", replaced.to_string())];
            ("not_shorter", figures.into())
        }
    };
    let facts = std::iter::once(("rule", rule.to_owned())).chain(figures);
    facts.map(|(key, value)| (key.to_owned(), value)).collect()
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
