//! The interface of summarizers: the input ([`SummaryAsk`]), the summary, the failures, and the
//! checks that every summary passes.

use std::{future::Future, pin::Pin};

use anneal_core::{
    digest::Digest,
    message::{MessageId, Part, Role},
    tokens::Tokens,
};

use crate::provider::{AdmissionRefusal, Answer, Call, CallFailure};

/// A boxed future that can move between threads, for methods of trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Counts the tokens of a text in the conversation's encoding. Its time must be linear in the text.
pub type Measure = dyn Fn(&str) -> Tokens + Send + Sync;

/// Writes summaries without a model: [`crate::Extractive`], or a replacement in tests.
pub trait Summarizer: Send + Sync {
    /// The summarizer's name, stored with each summary as the name of its model.
    fn name(&self) -> &str;

    /// Version of the method, stored with each summary. It is raised when the method's summaries
    /// change.
    fn prompt_version(&self) -> i32;

    /// Writes the summary and checks it with [`SummaryAsk::accept`]. Call it on a blocking thread:
    /// it computes for a time that is linear in the length of the sources.
    fn summarize(&self, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure>;
}

/// Whether the summary replaces many messages or one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A run of messages: the summary becomes a checkpoint.
    Range,
    /// One large message: the summary is stored with it, as its cached summary.
    Message,
}

/// The smallest target of a summary.
const MIN_TARGET: Tokens = Tokens::new(48);

impl Purpose {
    /// The target of a summary: the most tokens that it may have. It is half of the `source` tokens
    /// of a range, or a tenth of those of a message, and at most `most`, but never less than 48.
    pub fn target(self, source: Tokens, most: Tokens) -> Tokens {
        let divisor = match self {
            Self::Range => 2,
            Self::Message => 10,
        };
        Tokens::new(source.get() / divisor)
            .min(most)
            .max(MIN_TARGET)
    }
}

/// A user message that the summary must quote word for word: the opening of a turn in whose middle
/// the checkpoint ends.
#[derive(Debug, Clone, Copy)]
pub struct Quote<'a> {
    /// Id of the message.
    pub message_id: MessageId,
    /// Its whole text. The summary clips it in the middle if it is too long for the target.
    pub text: &'a str,
}

/// One message to be summarized.
#[derive(Debug, Clone)]
pub struct Source {
    /// Id of the message.
    pub message_id: MessageId,
    /// Role of the message.
    pub role: Role,
    /// Its parts, or the summary that replaces them.
    pub body: SourceBody,
}

/// The form in which a message reaches the summarizer.
#[derive(Debug, Clone)]
pub enum SourceBody {
    /// The original parts.
    Original(Vec<Part>),
    /// The cached summary of a large message.
    CachedSummary(String),
}

impl Source {
    /// The texts of the message in order, which make up its size.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let (parts, cached_summary) = match &self.body {
            SourceBody::Original(parts) => (parts.as_slice(), None),
            SourceBody::CachedSummary(text) => (&[][..], Some(text.as_str())),
        };
        let texts = parts.iter().flat_map(|part| match part {
            Part::Text { text } | Part::ToolResult { text, .. } | Part::Reasoning { text, .. } => {
                [text.as_str(), ""]
            }
            Part::ToolUse { name, input, .. } => [name.as_str(), input.as_str()],
            Part::Media(media) => [media.uri.as_str(), media.media_type.as_str()],
        });
        cached_summary
            .into_iter()
            .chain(texts)
            .filter(|text| !text.is_empty())
    }
}

/// The input of a summarizer. Its texts are data, never instructions.
#[derive(Clone, Copy)]
pub struct SummaryAsk<'a> {
    /// Whether the summary replaces many messages or one.
    pub purpose: Purpose,
    /// Summary of the previous checkpoint, whose content the new summary must keep.
    pub previous: Option<&'a str>,
    /// A user message to quote word for word.
    pub quoted: Option<Quote<'a>>,
    /// The messages in order of their ids; exactly one for [`Purpose::Message`].
    pub sources: &'a [Source],
    /// The subject that the summary should keep above all, in the caller's words.
    pub focus: Option<&'a str>,
    /// Most tokens of the summary.
    pub target: Tokens,
    /// Counts tokens in the conversation's encoding.
    pub measure: &'a Measure,
}

/// Bytes whose tokens are counted at once. A longer text is counted piece by piece, until the limit
/// is reached.
const MEASURED_BYTES: usize = 64 * 1024;
/// Most tokens by which cutting a text in two may raise its count.
const SEAM_TOKENS: u64 = 8;

impl SummaryAsk<'_> {
    /// Whether all texts consist of white space and control characters.
    pub fn is_blank(&self) -> bool {
        self.all_texts()
            .all(|text| text.chars().all(|c| c.is_whitespace() || c.is_control()))
    }

    /// Tokens of everything that the summary replaces. Counting stops above `limit`, so a result
    /// above it is a lower bound. So is the count of a long text: it is counted piece by piece, and
    /// a few tokens are subtracted for each cut.
    pub fn source_tokens(&self, limit: Tokens) -> Tokens {
        let mut sum = Tokens::ZERO;
        for text in self.all_texts() {
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

    /// Checks that a finished text is not blank, is within the target and is shorter than its
    /// source. Removes control characters other than line feed and tab.
    pub fn accept(&self, text: String) -> Result<Summary, SummaryFailure> {
        let is_unwanted = |c: char| c.is_control() && c != '\n' && c != '\t';
        let text = if text.contains(is_unwanted) {
            text.replace(is_unwanted, "")
        } else {
            text
        };
        if text.trim().is_empty() {
            return Err(SummaryFailure::EmptyAnswer);
        }
        let tokens = (self.measure)(&text);
        if tokens > self.target {
            return Err(SummaryFailure::OverTarget {
                tokens,
                target: self.target,
            });
        }
        if tokens >= self.source_tokens(tokens) {
            return Err(SummaryFailure::NotShorter);
        }
        Ok(Summary { text, tokens })
    }

    /// The previous summary, the quoted message unless it is also a source, and the sources.
    fn all_texts(&self) -> impl Iterator<Item = &str> {
        let quoted = self.quoted.filter(|quote| {
            self.sources
                .iter()
                .all(|source| source.message_id != quote.message_id)
        });
        let before = self
            .previous
            .into_iter()
            .chain(quoted.map(|quote| quote.text));
        before.chain(self.sources.iter().flat_map(Source::texts))
    }
}

/// A summary that may be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its text; holds no control character but line feed and tab.
    pub text: String,
    /// Its tokens, counted with [`SummaryAsk::measure`].
    pub tokens: Tokens,
}

/// Why there is no summary.
#[derive(Debug, thiserror::Error)]
pub enum SummaryFailure {
    /// The sources are blank.
    #[error("nothing to summarize")]
    EmptySource,
    /// The summarizer's text, or the model's answer, is blank.
    #[error("summary is empty")]
    EmptyAnswer,
    /// The model stopped at its output limit, so the text is incomplete.
    #[error("summary was cut off by the model's output limit")]
    Truncated,
    /// The provider's filter stopped the model, and would stop the same answer again.
    #[error("summary was stopped by the provider's filter")]
    Filtered,
    /// The summary would not be shorter than its source.
    #[error("summary is not shorter than its source")]
    NotShorter,
    /// The summary, or a part of it, exceeds its target.
    #[error("summary has {tokens} tokens, its target is {target}")]
    OverTarget {
        /// Its tokens; one more than its output limit for an answer that was too long to be parsed.
        tokens: Tokens,
        /// The text's own target: that of the summary ([`SummaryAsk::target`]), of the model's
        /// text without the quoted words, or of a part.
        target: Tokens,
    },
    /// The target is too small for a useful text, or for the quoted words and a text.
    #[error("nothing fits into {0} tokens")]
    TargetTooSmall(Tokens),
    /// The answer is not the requested object, or a gate (a check in `model_summary/gates/`)
    /// refused its text. The text must not be stored as a summary.
    #[error("summary was refused: {0}")]
    Rejected(RejectedSummary),
    /// The model gave no answer.
    #[error(transparent)]
    Call(#[from] CallFailure),
    /// The call was not admitted.
    #[error(transparent)]
    NotAdmitted(#[from] AdmissionRefusal),
    /// Interrupted by something other than the model: a lost lease, the database, shutdown.
    #[error("the summary was interrupted: {0}")]
    Interrupted(&'static str),
}

/// Why a model's answer was refused: by a gate, or, for `WrongSchema`, before the gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RejectedSummary {
    /// It is JSON, but not the requested object.
    #[error("it is not the requested JSON object")]
    WrongSchema,
    /// The model declined to summarize, or wrote almost nothing about a long source.
    #[error("it says nothing about its source")]
    NoContent,
    /// It repeats itself.
    #[error("it repeats itself")]
    Repetitive,
    /// It is a passage of its source.
    #[error("it is a copy of a passage of its source")]
    CopiesSource,
    /// It continues the conversation, or holds role markers such as `User:` or a chat template's
    /// tokens.
    #[error("it contains the role markers of a conversation")]
    RoleMarkers,
    /// It is in a script that its source hardly uses.
    #[error("it is written in a script that its source hardly uses")]
    WrongScript,
    /// It describes the format of its source, not the content.
    #[error("it describes the format of its source, not the content")]
    DescribesFormat,
    /// Most of its words are not in its source.
    #[error("most of its words are not in its source")]
    Ungrounded,
    /// Identifiers that its source names repeatedly are missing.
    #[error("it leaves out identifiers of its source")]
    MissingIdentifiers,
}

impl SummaryFailure {
    /// Whether the same [`SummaryAsk`] may succeed later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Call(failure) => failure.is_retryable(),
            Self::NotAdmitted(_) | Self::Interrupted(_) => true,
            _ => false,
        }
    }

    /// Whether the model would fail again for long: it refuses the request or its text cannot be
    /// used, or a breaker or a budget keeps it from being called. A summary of the built-in
    /// summarizer replaces it then.
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::Call(failure) => !failure.is_retryable(),
            Self::NotAdmitted(
                AdmissionRefusal::Breaker { .. } | AdmissionRefusal::Budget { .. },
            )
            | Self::Filtered
            | Self::NotShorter
            | Self::TargetTooSmall(_) => true,
            other => other.is_bad_output(),
        }
    }

    /// Whether the model's answer was unusable. Another answer to the same request may be good.
    pub const fn is_bad_output(&self) -> bool {
        matches!(
            self,
            Self::EmptyAnswer | Self::Truncated | Self::OverTarget { .. } | Self::Rejected(_)
        )
    }
}

/// Makes the model calls of a summary, and stores the summary's finished parts. The implementation
/// decides on admission, cost and storage.
pub trait SummaryCalls: Send + Sync {
    /// Waits for admission, calls the model, and settles the cost.
    fn call<'a>(&'a self, call: &'a Call<'a>) -> BoxFuture<'a, Result<Answer, SummaryFailure>>;

    /// Loads the part that was stored under this hash by an earlier run of the same job.
    fn load_part<'a>(&'a self, part: &'a Digest) -> BoxFuture<'a, Option<String>>;

    /// Stores a finished part under its hash for the next run, in case this run fails.
    fn store_part<'a>(&'a self, part: &'a Digest, text: &'a str) -> BoxFuture<'a, ()>;
}
