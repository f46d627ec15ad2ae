//! The port: what is asked of a summariser, what it answers, and the one check that every answer passes.

use std::{future::Future, pin::Pin};

use anneal_core::{
    digest::Digest,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

use crate::provider::{Answer, Call, CallFailure, Closed};

/// A future that can be sent between threads and is called through a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Counts the tokens of a text in the conversation's encoding. Must be linear in the text.
pub type Measure = dyn Fn(&str) -> Tokens + Send + Sync;

/// Something that makes a long text short: a language model, or [`crate::Extractive`].
pub trait Summarizer: Send + Sync {
    /// Stored as the checkpoint's `model`.
    fn name(&self) -> &str;

    /// Whether a language model writes, or sentences are taken over as they are.
    fn kind(&self) -> SummaryKind;

    /// Version of the instructions (or of the method): part of a summary's provenance, raised when answers change.
    fn prompt_version(&self) -> i32;

    /// The summary that is asked for, already checked by [`SummaryAsk::accept`].
    fn summarize<'a>(&'a self, ask: &'a SummaryAsk<'a>) -> BoxFuture<'a, Result<Summary, SummaryFailure>>;
}

/// How a summary came about; stored and shown beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SummaryKind {
    /// Written by a language model.
    Llm,
    /// Taken from the source, word for word.
    Extractive,
}

impl SummaryKind {
    /// The kind's name as stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm",
            Self::Extractive => "extractive",
        }
    }
}

/// What the summary will stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A run of messages: becomes a checkpoint.
    Range,
    /// One oversized message: becomes its summary cache.
    Message,
}

/// The least that a summary is given room for.
const LEAST_TARGET: Tokens = Tokens::new(48);

impl Purpose {
    /// How long a summary of `source` tokens may be: at most `most`, at most half of a range or a tenth of a message.
    pub fn target(self, source: Tokens, most: Tokens) -> Tokens {
        let share = match self {
            Self::Range => 2,
            Self::Message => 10,
        };
        Tokens::new(source.get() / share).min(most).max(LEAST_TARGET)
    }
}

/// A user message that the summary must hold word for word: the opening of a turn that is being split.
#[derive(Debug, Clone, Copy)]
pub struct Quote<'a> {
    /// Which message.
    pub message_id: MessageId,
    /// Its text; clipped in the middle when it is too long for the target.
    pub text: &'a str,
}

/// One message to be summarised.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its place in the conversation.
    pub message_id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said, or the digest that stands for it.
    pub body: SourceBody,
}

/// The form in which a message reaches the summariser.
#[derive(Debug, Clone)]
pub enum SourceBody {
    /// As it was said.
    Original(Vec<Part>),
    /// The cached summary of a large message.
    Digest(String),
}

impl Source {
    /// The texts of this message in order: everything that counts as its size.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let (parts, digest) = match &self.body {
            SourceBody::Original(parts) => (parts.as_slice(), None),
            SourceBody::Digest(text) => (&[][..], Some(text.as_str())),
        };
        let said = parts.iter().flat_map(|part| match part {
            Part::Text { text } | Part::ToolResult { text, .. } | Part::Reasoning { text, .. } => [text.as_str(), ""],
            Part::ToolUse { name, input, .. } => [name.as_str(), input.as_str()],
            Part::Media(media) => [media.uri.as_str(), media.media_type.as_str()],
        });
        digest.into_iter().chain(said).filter(|text| !text.is_empty())
    }
}

/// Everything that a summariser is told. Texts are data: whatever they say, they are no instructions.
#[derive(Clone, Copy)]
pub struct SummaryAsk<'a> {
    /// What the summary will stand for.
    pub purpose: Purpose,
    /// Summary of the previous checkpoint: what it holds must not be lost.
    pub previous: Option<&'a str>,
    /// To be quoted word for word.
    pub quoted: Option<Quote<'a>>,
    /// The messages, in id order; exactly one for [`Purpose::Message`].
    pub sources: &'a [Source],
    /// What the caller cares about most, in the caller's words.
    pub focus: Option<&'a str>,
    /// The summary counts at most this.
    pub target: Tokens,
    /// Counts tokens in the conversation's encoding.
    pub measure: &'a Measure,
}

/// Bytes that are measured in one piece; longer texts are measured piece by piece until the answer is known.
const MEASURED_BYTES: usize = 64 * 1024;
/// Tokens that a cut between two measured pieces may add, generously.
const SEAM_TOKENS: u64 = 8;

impl SummaryAsk<'_> {
    /// Whether there is nothing but white space and control characters to summarise.
    pub fn is_blank(&self) -> bool {
        self.every_text().all(|text| text.chars().all(|c| c.is_whitespace() || c.is_control()))
    }

    /// Tokens of everything that the summary replaces, counted only as far as `limit`: the result is exact up to there.
    pub fn source_tokens(&self, limit: Tokens) -> Tokens {
        let mut sum = Tokens::ZERO;
        for text in self.every_text() {
            let mut rest = text;
            while !rest.is_empty() && sum <= limit {
                let mut cut = rest.len().min(MEASURED_BYTES);
                while !rest.is_char_boundary(cut) {
                    cut -= 1;
                }
                let seam = if cut < rest.len() { SEAM_TOKENS } else { 0 };
                sum += (self.measure)(&rest[..cut]).less(Tokens::new(seam));
                rest = &rest[cut..];
            }
        }
        sum
    }

    /// Checks a finished text by the rules that every summary keeps: not blank, within the target, shorter than its
    /// source, no control character but line feed and tab.
    pub fn accept(&self, text: String) -> Result<Summary, SummaryFailure> {
        let stray = |c: char| c.is_control() && c != '\n' && c != '\t';
        let text = if text.contains(stray) { text.replace(stray, "") } else { text };
        if text.trim().is_empty() {
            return Err(SummaryFailure::Empty);
        }
        let tokens = (self.measure)(&text);
        if tokens > self.target {
            return Err(SummaryFailure::OverTarget { tokens, target: self.target });
        }
        if tokens >= self.source_tokens(tokens) {
            return Err(SummaryFailure::NotShorter);
        }
        Ok(Summary { text, tokens })
    }

    fn every_text(&self) -> impl Iterator<Item = &str> {
        let quoted =
            self.quoted.filter(|quote| self.sources.iter().all(|source| source.message_id != quote.message_id));
        let before = self.previous.into_iter().chain(quoted.map(|quote| quote.text));
        before.chain(self.sources.iter().flat_map(Source::texts))
    }
}

/// A summary that may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its text; holds no control character but line feed and tab.
    pub text: String,
    /// What it counts by the ask's measure.
    pub tokens: Tokens,
}

/// Why there is no summary.
#[derive(Debug, thiserror::Error)]
pub enum SummaryFailure {
    /// The sources are blank: there is nothing to ask anyone for.
    #[error("nothing to summarise")]
    NothingSaid,
    /// The model answered nothing.
    #[error("summary is empty")]
    Empty,
    /// The model stopped at its output limit: the text may end anywhere.
    #[error("summary was cut off by the model's output limit")]
    CutOff,
    /// The provider's filter stopped the model: it would stop the same answer again.
    #[error("summary was stopped by the provider's filter")]
    Filtered,
    /// No gain: the original is the better summary.
    #[error("summary is not shorter than its source")]
    NotShorter,
    /// It would not leave the room that it was asked to leave.
    #[error("summary has {tokens} tokens, its target is {target}")]
    OverTarget {
        /// What it counts; of an answer that was too long to be read, what it counts at least.
        tokens: Tokens,
        /// What was asked for.
        target: Tokens,
    },
    /// The target is too small for anything at all.
    #[error("nothing fits into {0} tokens")]
    NoRoom(Tokens),
    /// The model wrote something that no reader should be given as a summary.
    #[error("summary is unfit: {0}")]
    Unfit(Unfit),
    /// The model gave no answer.
    #[error(transparent)]
    Call(#[from] CallFailure),
    /// The model is not called now.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// Something else than the model stands in the way: ours to mend, and no failure of its.
    #[error("the summary was interrupted: {0}")]
    Interrupted(&'static str),
}

/// What is wrong with a text that a model wrote as a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is JSON, and not the object that was asked for.
    #[error("it is not the object that was asked for")]
    NotTheSchema,
    /// It refuses, or says next to nothing of a long source.
    #[error("it says nothing of its source")]
    SaysNothing,
    /// It says the same again and again.
    #[error("it repeats itself")]
    Loops,
    /// It is a piece of its source.
    #[error("it copies its source")]
    Copies,
    /// It goes on with the conversation, or forges its marks.
    #[error("it speaks with the marks of a conversation")]
    RoleMarks,
    /// It is written in a script that its source hardly uses.
    #[error("it is in another script than its source")]
    OtherScript,
    /// It describes the lines in which its source was told, not what they say.
    #[error("it speaks of the form of its source")]
    SpeaksOfForm,
    /// Most of what it speaks of stands nowhere in its source.
    #[error("it is not about its source")]
    Invents,
    /// Names, paths or numbers that its source lives on are not in it.
    #[error("it leaves out identifiers of its source")]
    MissesIdentifiers,
}

impl SummaryFailure {
    /// Whether the same ask may succeed later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Call(failure) => failure.is_retryable(),
            Self::Closed(_) | Self::Interrupted(_) => true,
            _ => false,
        }
    }

    /// Whether a model wrote something, and it was not good enough; another answer may be.
    pub const fn is_bad_writing(&self) -> bool {
        matches!(self, Self::Empty | Self::CutOff | Self::OverTarget { .. } | Self::Unfit(_))
    }
}

/// What stands around the calls that a summary needs: who admits them, what they cost, and what earlier runs have finished.
pub trait Desk: Send + Sync {
    /// Calls the model once it is admitted, and settles what that cost.
    fn ask<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>>;

    /// The part of this digest that an earlier run of the same job has finished.
    fn recall<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>>;

    /// Keeps a finished part for the next run, should this one not come to its end.
    fn keep<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()>;
}
