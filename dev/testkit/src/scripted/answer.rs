//! Calls a model and reads its answer to the end.

use std::sync::LazyLock;

use anneal_core::{message::Part, tokens::Tokens};
use anneal_llm::provider::{AnswerStream, Call, CallFailure, ChatOptions, End, Model, Piece};

/// The options of [`plain_call`].
static NO_OPTIONS: LazyLock<ChatOptions> = LazyLock::new(ChatOptions::default);

/// The content of one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelAnswer {
    /// The concatenated text.
    pub text: String,
    /// The concatenated readable reasoning.
    pub thoughts: String,
    /// Complete reasoning parts and tool calls, in order.
    pub parts: Vec<Part>,
    /// How the answer ended.
    pub end: End,
}

/// A call with this context, no tools and 64 output tokens.
pub fn plain_call(context: &str) -> Call<'_> {
    Call {
        context,
        options: &NO_OPTIONS,
        output: Tokens::new(64),
        mark_tools: None,
        cache_key: None,
        long_retention: false,
        input: Tokens::ZERO,
        least_sent_tokens: None,
        window: None,
    }
}

/// Calls the model and reads its answer to the end.
pub async fn read_answer(model: &Model, call: &Call<'_>) -> Result<ModelAnswer, CallFailure> {
    read_rest(model.stream(call).await?).await
}

/// Reads the rest of an answer.
pub async fn read_rest(mut pieces: AnswerStream) -> Result<ModelAnswer, CallFailure> {
    let (mut text, mut thoughts, mut parts) = (String::new(), String::new(), Vec::new());
    let mut end = None;
    while let Some(piece) = pieces.next().await {
        assert_eq!(end, None, "a piece follows the end");
        match piece? {
            Piece::Text(more) => text.push_str(&more),
            Piece::Thought(more) => thoughts.push_str(&more),
            Piece::Reasoning(part) => parts.push(part),
            Piece::ToolUse { id, name, input } => parts.push(Part::ToolUse { id, name, input }),
            Piece::End(last) => end = Some(last),
        }
    }
    Ok(ModelAnswer {
        text,
        thoughts,
        parts,
        end: end.expect("an answer without failure has an end"),
    })
}
