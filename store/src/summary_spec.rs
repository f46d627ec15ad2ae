//! A summary, of one message or of a checkpoint, and how it was made.

use std::ops::Add;

use anneal_core::tokens::Tokens;

/// How a summary was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryKind {
    /// A language model wrote it.
    Llm,
    /// The built-in summarizer made it of sentences of its source.
    Extractive,
    /// Another system made it.
    Imported,
}

/// A summary to store, with how it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarySpec {
    /// The text of the summary.
    pub text: String,
    /// Tokens of the summary.
    pub tokens: Tokens,
    /// How the summary was made.
    pub kind: SummaryKind,
    /// Name of the model or summarizer.
    pub model: String,
    /// Version of the model's prompt, or of the built-in summarizer's rules.
    pub prompt_version: i32,
    /// The model calls and tokens that making it took.
    pub spent: ModelSpend,
    /// How long making it took, in milliseconds.
    pub duration_ms: i64,
}

/// The model calls and tokens that a summary or a turn took. The tokens are the providers' counts,
/// or ours where a provider has reported none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelSpend {
    /// Number of calls, including failed and repeated ones.
    pub calls: i32,
    /// Tokens that the models read.
    pub input: Tokens,
    /// Tokens that the models wrote.
    pub output: Tokens,
}

impl Add for ModelSpend {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            input: self.input + other.input,
            output: self.output + other.output,
        }
    }
}

pub(crate) const fn kind_code(summary: &SummarySpec) -> i16 {
    match summary.kind {
        SummaryKind::Llm => 1,
        SummaryKind::Extractive => 2,
        SummaryKind::Imported => 3,
    }
}

/// The kind stored as `code`. An unknown code counts as extractive.
pub(crate) const fn kind_from_code(code: i16) -> SummaryKind {
    match code {
        1 => SummaryKind::Llm,
        3 => SummaryKind::Imported,
        _ => SummaryKind::Extractive,
    }
}
