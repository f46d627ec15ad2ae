//! Makes the gRPC status of a [`Failure`]; no other file builds the status of an error. Every
//! such status has a stable reason (docs/errors.md). No status holds SQL or content.

use std::{collections::HashMap, sync::LazyLock, time::Duration};

use anneal_core::checkpoint_import::InvalidCheckpoint;
use anneal_llm::provider::AdmissionRefusal;
use anneal_store::StoreError;
use http::{HeaderMap, Response};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};
use tracing::error;

use crate::{failure::Failure, reason::Reason};

/// The domain of the reasons in `ErrorInfo`.
const DOMAIN: &str = "anneal.v1";

impl Failure {
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
            Self::Store(StoreError::VersionMismatch { actual, expected }) => {
                facts.insert("version".to_owned(), actual.to_string());
                facts.insert("expected_version".to_owned(), expected.to_string());
            }
            Self::Store(StoreError::RequestIdCreated(conversation)) => {
                facts.insert("conversation_id".to_owned(), conversation.to_string());
            }
            Self::NamedMessage { field, error } => {
                facts.insert("field".to_owned(), field.clone());
                facts.extend(message_fact(error));
                details.add_bad_request_violation(field, error.to_string());
            }
            Self::Store(error @ StoreError::MessageWithdrawn(_)) => {
                facts.extend(message_fact(error));
            }
            Self::VerbMissing(verb) => {
                facts.insert("verb".to_owned(), verb.name().to_owned());
            }
            Self::Store(StoreError::InvalidCheckpoint(why)) => {
                facts.extend(invalid_checkpoint_facts(*why));
            }
            Self::Budget(sizes) => {
                facts.insert("budget_tokens".to_owned(), sizes.budget.to_string());
                facts.insert(
                    "system_prompt_tokens".to_owned(),
                    sizes.system_prompt.to_string(),
                );
                facts.insert("newest_message_tokens".to_owned(), sizes.newest.to_string());
            }
            Self::ModelNotConfigured { model } | Self::NoDefaultModel { model } => {
                facts.insert("model".to_owned(), model.to_string());
            }
            Self::NotAdmitted { model, refusal } => {
                facts.insert("model".to_owned(), model.clone());
                if let AdmissionRefusal::Breaker { scope, cause, .. } = refusal {
                    facts.insert("breaker".to_owned(), (*scope).to_owned());
                    if !cause.last_error.is_empty() {
                        facts.insert("last_failure".to_owned(), cause.last_error.clone());
                    }
                }
            }
            Self::MediaNotAllowed { field, model } => {
                facts.insert("field".to_owned(), field.clone());
                facts.insert("model".to_owned(), model.clone());
                details.add_bad_request_violation(field, "this address may not go to the provider");
            }
            Self::Model { model, failure } => {
                facts.insert("model".to_owned(), model.clone());
                if let Some(status) = failure.status() {
                    facts.insert("provider_status".to_owned(), status.to_string());
                }
            }
            Self::Overflow(sizes) => {
                facts.insert("model".to_owned(), sizes.model.clone());
                facts.insert("window_tokens".to_owned(), sizes.window.to_string());
                facts.insert("context_tokens".to_owned(), sizes.context.to_string());
                facts.insert("output_tokens".to_owned(), sizes.output.to_string());
                facts.insert("attempts".to_owned(), sizes.attempts.to_string());
                if let Some(read) = sizes.read {
                    facts.insert("read_tokens".to_owned(), read.to_string());
                }
            }
            Self::RateExceeded { limit, .. } => {
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

    /// How long a caller should wait before a retry: the failure's own wait, else its reason's.
    /// None: waiting does not help, or the server cannot say for how long.
    fn retry_after(&self, reason: Reason) -> Option<Duration> {
        let own_wait = match self {
            Self::Model { failure, .. } => failure.retry_after(),
            Self::NotAdmitted {
                refusal:
                    AdmissionRefusal::Breaker { retry_after, .. }
                    | AdmissionRefusal::Budget { retry_after },
                ..
            } => Some(*retry_after),
            Self::RateExceeded { wait, .. } | Self::TooManyUnknownKeys { wait } => Some(*wait),
            _ => None,
        };
        own_wait.or_else(|| reason.retry_after())
    }
}

/// The message that an error is about.
fn message_fact(error: &StoreError) -> Option<(String, String)> {
    let (StoreError::UnknownMessage(id)
    | StoreError::MessageWithdrawn(id)
    | StoreError::MessageErased(id)
    | StoreError::ToolCallMissing(id)) = error
    else {
        return None;
    };
    Some(("message_id".to_owned(), id.to_string()))
}

/// The rule that an imported checkpoint violates, and the figures of the violation.
fn invalid_checkpoint_facts(why: InvalidCheckpoint) -> Vec<(String, String)> {
    let (rule, figures) = match why {
        InvalidCheckpoint::BeyondNewest { newest, .. } => (
            "beyond_newest",
            vec![("newest_message_id", newest.to_string())],
        ),
        InvalidCheckpoint::NotNewer { boundary, .. } => (
            "not_newer",
            vec![("boundary_message_id", boundary.to_string())],
        ),
        InvalidCheckpoint::SplitsToolCall { .. } => ("parts_tool_call", Vec::new()),
        InvalidCheckpoint::NotShorter { summary, replaced } => {
            let figures = [
                ("summary_tokens", summary.to_string()),
                ("replaced_tokens", replaced.to_string()),
            ];
            ("not_shorter", figures.into())
        }
        InvalidCheckpoint::NoLongerHolds { .. } => ("no_longer_holds", Vec::new()),
    };
    let facts = std::iter::once(("rule", rule.to_owned())).chain(figures);
    facts.map(|(key, value)| (key.to_owned(), value)).collect()
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let reason = failure.reason();
        let text = match reason {
            Reason::Internal => {
                error!(error = ?failure, "a call failed with an internal error: {failure}");
                "internal error; the server's log says more".to_owned()
            }
            _ => failure.to_string(),
        };
        Self::with_error_details(reason.code(), text, failure.details(reason))
    }
}

/// The answer to a call that is refused with [`Failure::Overloaded`]. Its status is made once:
/// under overload there are more refusals than answers.
pub(super) fn overloaded_answer<B: Default>() -> Response<B> {
    static HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
        Status::from(Failure::Overloaded)
            .into_http::<()>()
            .into_parts()
            .0
            .headers
    });
    let mut answer = Response::new(B::default());
    answer.headers_mut().clone_from(&HEADERS);
    answer
}
