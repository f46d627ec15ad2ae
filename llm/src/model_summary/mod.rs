//! Summaries that a language model writes: the sources are sent as data, cut to the model's window,
//! merged, and the answers are checked before use.
//!
//! - `items`: the texts of the sources, as the JSON lines that the model reads.
//! - `chunks`: cuts items to the size of a call.
//! - `token_budget`: how much a call may read and answer.
//! - `merge`: summarises chunks level by level until one call holds everything.
//! - `write`: one text: call, checks, one repair.
//! - `prompt`: the instructions, and the feedback for a repair.
//! - `request`: the prompt in each provider's format.
//! - `answer_text`: the text in a model's answer.
//! - `gates`: what an answer must not be.

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

/// The quoted words take at most this fraction (one quarter) of a summary's tokens.
const QUOTE_FRACTION: u64 = 4;

/// Tokens that joining text and quote may add.
const SEAM_TOKENS: u64 = 2;

/// Summarises with a language model: in one call where the source fits its window, else in parts
/// that are merged.
pub struct ModelSummarizer<'a> {
    model: &'a Model,
    calls: &'a dyn SummaryCalls,
}

impl<'a> ModelSummarizer<'a> {
    /// Version of the instructions. Must be raised whenever answers to the same source may change.
    pub const PROMPT_VERSION: i32 = 1;

    /// A summariser that makes its calls through `calls`.
    pub fn new(model: &'a Model, calls: &'a dyn SummaryCalls) -> Self {
        Self { model, calls }
    }

    /// Writes the summary and checks it with [`SummaryAsk::accept`]. Between its calls it uses the
    /// processor for a time that is linear in the sources: poll it on a blocking thread.
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
    /// The quoted words, each line after `> `; empty when there are none.
    quote: String,
}

impl TargetSplit {
    /// The split for an ask; an error where the sources are blank, or the target is too small.
    fn of(ask: &SummaryAsk<'_>) -> Result<Self, SummaryFailure> {
        if ask.is_blank() {
            return Err(SummaryFailure::EmptySource);
        }
        let target = ask.target.get();
        if target < MIN_TEXT_TOKENS {
            return Err(SummaryFailure::TargetTooSmall(ask.target));
        }
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
            .map(|quote| previous::quote(&quote, &label(&quote), counter, limit / QUOTE_FRACTION));
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
