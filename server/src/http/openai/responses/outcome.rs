//! How a response has ended.

use std::time::{SystemTime, UNIX_EPOCH};

use anneal_core::message::MessageId;
use anneal_proto::v1 as pb;
use anneal_store::{RecordedCall, StoredAnswer};
use serde::{Deserialize, Serialize};

use super::tools::CheckedCalls;
use crate::http::{
    openai::errors::ApiError,
    resumable_turns::{TurnDone, TurnUsage},
};

/// The state of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// How a response has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) status: Status,
    /// Seconds since 1970.
    pub(super) ended_at: i64,
    /// Why it has failed.
    pub(super) error: Option<ResponseError>,
    /// Why it is incomplete: `max_output_tokens`, `content_filter` or `stopped`.
    pub(super) incomplete: Option<String>,
    /// None: not known.
    pub(super) usage: Option<Usage>,
    /// The model that answered. None: not known.
    pub(super) model: Option<String>,
    /// The position of the last event. None: not known.
    pub(super) position: Option<u64>,
}

/// Why a response has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResponseError {
    code: String,
    message: String,
}

/// Tokens of the model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http::openai) struct Usage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OutputDetails {
    /// As far as the provider counts them apart. The call of an answer has no figure for them, so
    /// they are 0 if the end of the response was found by what is stored of its turn.
    reasoning_tokens: u64,
}

/// The end of a turn.
#[derive(Debug, Clone, Default)]
pub(super) struct TurnEnd {
    /// The message that stores the answer. None: nothing of it is stored.
    pub(super) answer: Option<MessageId>,
    stop: pb::StopReason,
    model: Option<String>,
    usage: Option<Usage>,
}

/// Whether the answer of a turn is stored, unless its end says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    Stored,
    Unstored,
}

impl Status {
    /// Whether the answer is shown. Of a failed or cancelled response nothing is kept.
    pub(super) const fn has_output(self) -> bool {
        matches!(self, Self::Completed | Self::Incomplete)
    }
}

impl Outcome {
    /// The JSON text that is stored.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("all its keys are strings")
    }

    fn new(status: Status) -> Self {
        Self {
            status,
            ended_at: now(),
            error: None,
            incomplete: None,
            usage: None,
            model: None,
            position: None,
        }
    }

    /// A response that failed with this error.
    pub(super) fn failed(error: &ApiError) -> Self {
        Self {
            error: Some(ResponseError {
                code: error.code().unwrap_or("server_error").to_owned(),
                message: error.message().to_owned(),
            }),
            ..Self::new(Status::Failed)
        }
    }

    /// A response whose server has stopped before the answer's end.
    pub(super) fn server_stopped() -> Self {
        Self::failed_with("The server that ran the response has stopped before its end.")
    }

    /// A response whose caller has cancelled it.
    pub(super) fn cancelled() -> Self {
        Self::new(Status::Cancelled)
    }

    fn failed_with(message: &str) -> Self {
        Self {
            error: Some(ResponseError {
                code: "server_error".to_owned(),
                message: message.to_owned(),
            }),
            ..Self::new(Status::Failed)
        }
    }

    /// The outcome of a turn that has ended with these calls.
    pub(super) fn of_turn(end: &TurnEnd, calls: &CheckedCalls, storage: Storage) -> Self {
        let stopped = end.stop == pb::StopReason::Stopped;
        let missing_call = (!stopped && end.stop != pb::StopReason::OutputLimit)
            .then(|| calls.refusal_at_end())
            .flatten();
        let refusal = calls.refusal().or(missing_call.as_deref());
        let incomplete = |reason: &str| Self {
            incomplete: Some(reason.to_owned()),
            ..Self::new(Status::Incomplete)
        };
        let outcome = match end.stop {
            pb::StopReason::Stopped if storage == Storage::Stored && end.answer.is_none() => {
                Self::cancelled()
            }
            _ if refusal.is_some() => Self::failed_with(refusal.unwrap_or_default()),
            pb::StopReason::Stopped => incomplete("stopped"),
            pb::StopReason::OutputLimit => incomplete("max_output_tokens"),
            pb::StopReason::Filtered => incomplete("content_filter"),
            _ => Self::new(Status::Completed),
        };
        Self {
            usage: end.usage,
            model: end.model.clone(),
            ..outcome
        }
    }
}

impl Usage {
    /// The tokens that were read, those of them that came from the provider's cache and that were
    /// written to it, and the tokens that the model wrote.
    pub(in crate::http::openai) fn new(
        (input, cached, written, output): (u64, u64, u64, u64),
    ) -> Self {
        Self {
            input_tokens: input,
            input_tokens_details: InputDetails {
                cached_tokens: cached,
                cache_write_tokens: written,
            },
            output_tokens: output,
            output_tokens_details: OutputDetails {
                reasoning_tokens: 0,
            },
            total_tokens: input.saturating_add(output),
        }
    }
}

impl From<TurnUsage> for Usage {
    fn from(usage: TurnUsage) -> Self {
        let figures = (
            usage.input_tokens,
            usage.cached_tokens,
            usage.written_tokens,
            usage.output_tokens,
        );
        Self {
            output_tokens_details: OutputDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
            ..Self::new(figures)
        }
    }
}

impl From<&TurnDone> for TurnEnd {
    fn from(done: &TurnDone) -> Self {
        let stop = match done.stop_reason.as_deref() {
            _ if done.stopped => pb::StopReason::Stopped,
            Some("output_limit") => pb::StopReason::OutputLimit,
            Some("filtered") => pb::StopReason::Filtered,
            Some("tool_use") => pb::StopReason::ToolUse,
            _ => pb::StopReason::Done,
        };
        Self {
            answer: (done.answer_message_id > 0).then_some(MessageId(done.answer_message_id)),
            stop,
            model: (!done.model.is_empty()).then(|| done.model.clone()),
            usage: done.usage.map(Usage::from),
        }
    }
}

impl From<&StoredAnswer> for TurnEnd {
    fn from(answer: &StoredAnswer) -> Self {
        let call = answer.call.as_ref();
        let recorded = call.and_then(|call| call.stop_reason).map(i32::from);
        let stop = if answer.message.stopped {
            pb::StopReason::Stopped
        } else {
            recorded
                .and_then(|stop| pb::StopReason::try_from(stop).ok())
                .unwrap_or_default()
        };
        let usage = |call: &RecordedCall| {
            Usage::new((
                call.input.get(),
                call.cached.get(),
                call.written.get(),
                call.output.get(),
            ))
        };
        Self {
            answer: Some(answer.message.id),
            stop,
            model: call.map(|call| call.model.clone()),
            usage: call.map(usage),
        }
    }
}

/// Seconds since 1970.
pub(in crate::http::openai) fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.map_or(0, |since_1970| since_1970.as_secs() as i64)
}
