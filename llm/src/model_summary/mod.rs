//! Summaries that a language model writes. The sources are sent as data, in calls that fit the
//! model's window, and every answer is checked before use.
//!
//! An *item* is one source text. A *chunk* is what one call reads: items, the first and last
//! perhaps cut. A *part* is the model's summary of one chunk. Parts are merged into the whole
//! summary.
//!
//! - `items`: the texts of the sources, as the JSON lines that the model reads.
//! - `chunks`: cuts items to the size of a call.
//! - `token_budget`: how many tokens a call may read and answer.
//! - `merge`: replaces chunks by their parts until one call can read everything.
//! - `write`: writes one text: calls the model, checks the answer, and calls once more with
//!   feedback if the answer is refused.
//! - `prompt`: the instructions, the feedback on a refused answer, and what keeps the sources'
//!   texts from being read as instructions: the lines BEGIN and END around them.
//! - `request`: the prompt in each provider's format.
//! - `answer_text`: the text in a model's answer.
//! - `gates`: the checks that refuse an unusable answer.

mod answer_text;
mod chunks;
mod gates;
mod items;
mod merge;
mod prompt;
mod request;
mod token_budget;
mod write;

use anneal_core::tokens::Tokens;

use crate::{
    extractive::{previous, text, token_counter::TokenCounter},
    provider::Model,
    summarizer::{Quote, Summary, SummaryAsk, SummaryCalls, SummaryFailure},
};

/// Fewest tokens of a useful text: two short sentences.
const MIN_TEXT_TOKENS: u64 = 24;

/// The quoted words take at most a quarter of a summary's tokens. This is the divisor.
const QUOTE_DIVISOR: u64 = 4;

/// Tokens that joining the text and the quote may add.
const SEAM_TOKENS: u64 = 2;

/// Summarizes with a language model: in one call if the source fits the model's window, or else in
/// parts that are merged.
pub struct ModelSummarizer<'a> {
    model: &'a Model,
    calls: &'a dyn SummaryCalls,
}

impl<'a> ModelSummarizer<'a> {
    /// Version of the instructions. It must be raised whenever the summary of the same source may
    /// change.
    pub const PROMPT_VERSION: i32 = 1;

    /// A summarizer that makes its calls through `calls`.
    pub fn new(model: &'a Model, calls: &'a dyn SummaryCalls) -> Self {
        Self { model, calls }
    }

    /// Writes the summary and checks it with [`SummaryAsk::accept`]. Poll the future on a blocking
    /// thread: between the calls it computes for a time that is linear in the length of the
    /// sources.
    pub async fn summarize(&self, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
        let split = TargetSplit::of(ask)?;
        let text = merge::SummaryRun::new(self.model, self.calls, ask, split)
            .write_summary()
            .await?;
        ask.accept(text)
    }
}

/// How the summary's target is split between the model's text and the quoted words after it.
#[derive(Debug)]
struct TargetSplit {
    /// Most tokens of the model's text.
    text: u64,
    /// The quoted words below their label, each line after `> `; empty when there are none.
    quote: String,
}

impl TargetSplit {
    /// The split for this ask; an error if the sources are blank or too short, or the target is too
    /// small.
    fn of(ask: &SummaryAsk<'_>) -> Result<Self, SummaryFailure> {
        if ask.is_blank() {
            return Err(SummaryFailure::EmptySource);
        }
        let target = ask.target.get();
        if target < MIN_TEXT_TOKENS {
            return Err(SummaryFailure::TargetTooSmall(ask.target));
        }
        // The summary must be shorter than its source.
        let limit = target.min(
            ask.source_tokens(ask.target + Tokens::new(1))
                .get()
                .saturating_sub(1),
        );
        if limit < MIN_TEXT_TOKENS {
            return Err(SummaryFailure::NotShorter);
        }
        let counter = TokenCounter(ask.measure);
        let label = |quote: &Quote<'_>| format!("[{} user, word for word]", quote.message_id);
        let quote = ask
            .quoted
            .map(|quote| previous::quote(&quote, &label(&quote), counter, limit / QUOTE_DIVISOR));
        let quote = quote.unwrap_or_default();
        if quote.is_empty()
            && ask
                .quoted
                .is_some_and(|quote| !text::clean(quote.text).trim().is_empty())
        {
            return Err(SummaryFailure::TargetTooSmall(ask.target));
        }
        let quote_tokens = if quote.is_empty() {
            0
        } else {
            counter.count(&quote) + SEAM_TOKENS
        };
        match limit.saturating_sub(quote_tokens) {
            text if text < MIN_TEXT_TOKENS => Err(SummaryFailure::TargetTooSmall(ask.target)),
            text => Ok(Self { text, quote }),
        }
    }

    /// The model's text with the quoted words after it.
    fn with_quote(&self, text: String) -> String {
        if self.quote.is_empty() {
            text
        } else {
            format!("{text}\n\n{}", self.quote)
        }
    }
}
