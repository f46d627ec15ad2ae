//! An answer, heard to its end.

use anneal_core::{message::Part, tokens::Tokens};
use anneal_llm::provider::{Call, CallFailure, End, Model, Piece, Pieces};

/// What a model said in one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// All its text.
    pub text: String,
    /// All its readable thoughts.
    pub thoughts: String,
    /// Thoughts that are complete, and calls of tools, in order.
    pub parts: Vec<Part>,
    /// How it ended.
    pub end: End,
}

/// A call with this context and nothing else: room for 64 tokens.
pub fn plain_call(context: &str) -> Call<'_> {
    Call { context, tools: &[], output: Tokens::new(64), temperature: None, input: Tokens::ZERO, sent_tokens: None }
}

/// Calls the model and hears its answer to the end.
pub async fn hear(model: &Model, call: &Call<'_>) -> Result<Heard, CallFailure> {
    hear_rest(model.stream(call).await?).await
}

/// Hears the rest of an answer.
pub async fn hear_rest(mut pieces: Pieces) -> Result<Heard, CallFailure> {
    let (mut text, mut thoughts, mut parts) = (String::new(), String::new(), Vec::new());
    let mut end = None;
    while let Some(piece) = pieces.next().await {
        assert_eq!(end, None, "the end is the last piece");
        match piece? {
            Piece::Text(more) => text.push_str(&more),
            Piece::Thought(more) => thoughts.push_str(&more),
            Piece::Reasoning(part) => parts.push(part),
            Piece::ToolUse { id, name, input } => parts.push(Part::ToolUse { id, name, input }),
            Piece::End(said) => end = Some(said),
        }
    }
    Ok(Heard { text, thoughts, parts, end: end.expect("an answer without failure has an end") })
}
