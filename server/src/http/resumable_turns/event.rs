//! The events of a turn, as HTTP readers get them.

use anneal_proto::v1 as pb;
use pb::chat_response::{Attempt, Done};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::{json, message::ToolUse, problem::Problem};

/// One event of a turn: the `data` of a server-sent event. The first is `started`, the last `done`
/// or `error`.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::http) enum TurnEvent {
    /// The user's message is stored.
    Started(TurnStarted),
    /// More text of the answer.
    Text(Delta),
    /// More readable reasoning of the model.
    Reasoning(Delta),
    /// A complete tool call.
    ToolCall(ToolUse),
    /// A signed reasoning part as it is stored, after its text. Only readers that ask for it get it
    /// (`TurnReader::with_reasoning_parts`), and those send no `TurnEvent`.
    #[serde(skip)]
    ReasoningEnd(pb::ReasoningPart),
    /// Text, reasoning and tool calls so far are void: another answer follows.
    Attempt(AttemptBegun),
    /// The turn has succeeded. The answer is stored, unless `answerMessageId` is 0.
    Done(TurnDone),
    /// The turn has failed. The user's message stays stored. The same request may be tried again.
    Error(TurnFailed),
}

/// The user's message is stored.
#[derive(Debug, Default, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct TurnStarted {
    pub(in crate::http) session_id: String,
    /// Ids of the stored messages.
    pub(in crate::http) message_ids: Vec<i64>,
    /// The id of the request, or one that the server generated. A request with this id repeats the
    /// turn.
    pub(in crate::http) request_id: String,
    /// Number of withdrawn answers to the same question. Absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) alternatives: Option<i32>,
}

/// A piece of text.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct Delta {
    pub(in crate::http) text: String,
}

/// Another answer begins.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct AttemptBegun {
    /// The attempt that answers now: 0 for the first, 1 for the second, and so on. An attempt whose
    /// context is known to be too long makes no model call.
    pub(super) number: i32,
    /// Why: overflow (the provider refused the context as too long), over_learnt_window (the
    /// context exceeds the window that the provider named before), retry_smaller (the context was
    /// cut once more) or answered_anew (the turn was run again while its reader was away).
    pub(super) reason: String,
}

/// The turn has succeeded. The answer is stored, unless `answerMessageId` is 0.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct TurnDone {
    pub(in crate::http) session_id: String,
    /// Tokens of all messages of the session: exact for counted ones, estimated for the rest.
    token_estimate: u64,
    /// Ids of the user's message and of the answer.
    message_ids: Vec<i64>,
    /// The answer's id; 0: nothing of the answer is stored.
    pub(in crate::http) answer_message_id: i64,
    /// Tokens of the model call. Absent in a replay if no figures of the call were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) usage: Option<Usage>,
    /// done, tool_use, output_limit, filtered or stopped. Absent in a replay if no figures of the
    /// call were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) stop_reason: Option<String>,
    /// The model that answered. Empty in a replay if no figures of the call were recorded.
    pub(in crate::http) model: String,
    /// Whether a stored answer was sent again.
    pub(super) replayed: bool,
    /// Whether the turn was stopped before the answer's end. Absent: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::http) stopped: bool,
    /// The models that did not answer, in the order in which they were tried. Absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fallbacks: Vec<Fallback>,
    /// How the model call used the provider's cache. Absent: the provider has reported no usage, or
    /// it is a replay and no figures of the call were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheUse>,
}

/// A model that did not answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct Fallback {
    model: String,
    /// The reason, as that of a problem.
    reason: String,
}

/// How a model call used the provider's cache, beside `usage`.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct CacheUse {
    /// Tokens that were expected in the cache, as the server counts them.
    expected_tokens: u64,
    /// Input tokens that were neither read from the cache nor written to it.
    fresh_tokens: u64,
    /// Part of `writtenTokens`: written to a cache of an hour.
    long_written_tokens: u64,
    /// nothing_expected, warm, cold (by the provider) or cold_by_us.
    state: String,
    /// Why less than the last call's context was expected. Absent: nothing broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    break_reason: Option<String>,
}

/// Tokens of the model call.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "these are the names on the wire")]
pub(in crate::http) struct Usage {
    /// All input tokens, the cached and the written ones included.
    pub(in crate::http) input_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    pub(in crate::http) cached_tokens: u64,
    /// Input tokens that were written to the provider's cache.
    pub(in crate::http) written_tokens: u64,
    pub(in crate::http) output_tokens: u64,
    /// Output tokens that are thoughts, as far as the provider counts them apart.
    pub(in crate::http) reasoning_tokens: u64,
}

/// Why the turn has failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct TurnFailed {
    pub(in crate::http) problem: Problem,
}

impl AttemptBegun {
    /// The attempt of a turn that was run again while its reader was away.
    pub(super) fn answered_anew(number: i32) -> Self {
        Self {
            number,
            reason: "answered_anew".to_owned(),
        }
    }
}

impl From<Attempt> for AttemptBegun {
    fn from(attempt: Attempt) -> Self {
        let reason = json::enum_name(attempt.reason().as_str_name(), "ATTEMPT_REASON_");
        Self {
            number: attempt.number,
            reason,
        }
    }
}

impl From<Done> for TurnDone {
    fn from(done: Done) -> Self {
        let stop_reason = match done.stop_reason() {
            pb::StopReason::Unspecified => None,
            known => Some(json::enum_name(known.as_str_name(), "STOP_REASON_")),
        };
        Self {
            session_id: done.conversation_id,
            token_estimate: done.token_estimate,
            message_ids: done.message_ids,
            answer_message_id: done.answer_message_id,
            usage: done.usage.map(|usage| Usage {
                input_tokens: usage.input_tokens,
                cached_tokens: usage.cached_tokens,
                written_tokens: usage.written_tokens,
                output_tokens: usage.output_tokens,
                reasoning_tokens: usage.reasoning_tokens,
            }),
            stop_reason,
            model: done.model,
            replayed: done.replayed,
            stopped: done.stopped,
            fallbacks: done.fallbacks.into_iter().map(Fallback::from).collect(),
            cache: done.cache.map(CacheUse::from),
        }
    }
}

impl From<pb::Fallback> for Fallback {
    fn from(fallback: pb::Fallback) -> Self {
        Self {
            model: fallback.model,
            reason: fallback.reason,
        }
    }
}

impl From<pb::CacheUse> for CacheUse {
    fn from(cache: pb::CacheUse) -> Self {
        let break_reason = match cache.break_reason() {
            pb::BreakReason::Unspecified => None,
            known => Some(json::enum_name(known.as_str_name(), "BREAK_REASON_")),
        };
        Self {
            state: json::enum_name(cache.state().as_str_name(), "CACHE_STATE_"),
            expected_tokens: cache.expected_tokens,
            fresh_tokens: cache.fresh_tokens,
            long_written_tokens: cache.long_written_tokens,
            break_reason,
        }
    }
}
