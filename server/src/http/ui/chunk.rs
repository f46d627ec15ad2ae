//! The chunks of a UI message stream, of those that versions 5, 6 and 7 of the AI SDK know. A key
//! without a value is left out: null ends the stream in the client.

use serde::Serialize;
use serde_json::value::RawValue;

/// One chunk: the data of a server-sent event.
#[derive(Debug, Clone, Serialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Chunk {
    /// The first one. The id is that of the message which the client shows.
    Start {
        message_id: String,
        message_metadata: ConversationMetadata,
    },
    StartStep,
    TextStart {
        id: String,
    },
    TextDelta {
        id: String,
        delta: String,
    },
    TextEnd {
        id: String,
    },
    ReasoningStart {
        id: String,
    },
    ReasoningDelta {
        id: String,
        delta: String,
    },
    ReasoningEnd {
        id: String,
    },
    ToolInputStart {
        tool_call_id: String,
        tool_name: String,
    },
    ToolInputDelta {
        tool_call_id: String,
        input_text_delta: String,
    },
    ToolInputAvailable {
        tool_call_id: String,
        tool_name: String,
        input: Box<RawValue>,
    },
    /// The input is no JSON.
    ToolInputError {
        tool_call_id: String,
        tool_name: String,
        input: String,
        error_text: String,
    },
    FinishStep,
    Finish {
        #[serde(skip_serializing_if = "Option::is_none")]
        finish_reason: Option<&'static str>,
        message_metadata: AnswerMetadata,
    },
    /// The turn was stopped.
    Abort,
    /// The turn has failed.
    Error {
        error_text: String,
    },
}

/// What is known of an answer from its beginning. A client needs it to stop the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversationMetadata {
    /// The conversation, by the id that the other interfaces use.
    pub(super) conversation_id: String,
}

/// What is known of a whole answer: the metadata of the client's message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnswerMetadata {
    /// The conversation, by the id that the other interfaces use.
    pub(super) conversation_id: String,
    /// The last message of the answer there. Absent: nothing of it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<i64>,
    /// The model that answered. Absent in a replay if it was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// Tokens of the model call. Absent in a replay if they were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<TokenUsage>,
}

/// Tokens of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "these are the names on the wire")]
pub(super) struct TokenUsage {
    /// All input tokens, the cached ones included.
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) total_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    pub(super) cached_input_tokens: u64,
}
