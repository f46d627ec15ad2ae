//! Summaries that a language model writes: sources framed as data, split to its window, merged, and judged before use.

mod answer;
mod gates;
mod items;
mod merge;
mod pieces;
mod prompt;
mod request;
mod room;
mod writing;

use anneal_core::tokens::Tokens;

use crate::{
    extractive::{fit::Scale, previous, text},
    port::{BoxFuture, Desk, Quote, Summarizer, Summary, SummaryAsk, SummaryFailure, SummaryKind},
    provider::Model,
};

/// Version of the instructions; raised whenever answers to the same source may change.
const PROMPT_VERSION: i32 = 1;

/// Fewest tokens in which a model can say anything: two short sentences.
const LEAST_TEXT: u64 = 24;

/// The quoted words take at most one in so many of a summary's tokens.
const QUOTE_SHARE: u64 = 4;

/// Tokens that putting quoted words behind a text may add.
const SEAM: u64 = 2;

/// Has a language model summarise: in one call where the source fits its window, else in parts that are merged.
pub struct ModelSummarizer<'a> {
    model: &'a Model,
    desk: &'a dyn Desk,
}

impl<'a> ModelSummarizer<'a> {
    /// Version of the instructions; raised whenever answers to the same source may change.
    pub const PROMPT_VERSION: i32 = PROMPT_VERSION;

    /// A summariser whose calls go over this desk.
    pub fn new(model: &'a Model, desk: &'a dyn Desk) -> Self {
        Self { model, desk }
    }
}

impl Summarizer for ModelSummarizer<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn kind(&self) -> SummaryKind {
        SummaryKind::Llm
    }

    fn prompt_version(&self) -> i32 {
        PROMPT_VERSION
    }

    fn summarize<'a>(&'a self, ask: &'a SummaryAsk<'a>) -> BoxFuture<'a, Result<Summary, SummaryFailure>> {
        Box::pin(async move {
            let frame = Frame::of(ask)?;
            let text = merge::Run::new(self.model, self.desk, ask, frame).summary().await?;
            ask.accept(text)
        })
    }
}

/// How the target is shared between the model's text and the words that are quoted behind it.
#[derive(Debug)]
struct Frame {
    /// What the model's text counts at most.
    text: u64,
    /// The quoted words, each line behind `> `; empty when there are none.
    quote: String,
}

impl Frame {
    /// The frame of a summary; an error where nothing is said, or nothing fits.
    fn of(ask: &SummaryAsk<'_>) -> Result<Self, SummaryFailure> {
        if ask.is_blank() {
            return Err(SummaryFailure::NothingSaid);
        }
        let target = ask.target.get();
        if target < LEAST_TEXT {
            return Err(SummaryFailure::NoRoom(ask.target));
        }
        let limit = target.min(ask.source_tokens(ask.target + Tokens::new(1)).get().saturating_sub(1));
        if limit < LEAST_TEXT {
            return Err(SummaryFailure::NotShorter);
        }
        let scale = Scale(ask.measure);
        let label = |quote: &Quote<'_>| format!("[{} user, word for word]", quote.message_id);
        let quote = ask.quoted.map(|quote| previous::quote(&quote, &label(&quote), scale, limit / QUOTE_SHARE));
        let quote = quote.unwrap_or_default();
        if quote.is_empty() && ask.quoted.is_some_and(|quote| !text::clean(quote.text).trim().is_empty()) {
            return Err(SummaryFailure::NoRoom(ask.target));
        }
        let taken = if quote.is_empty() { 0 } else { scale.weigh(&quote) + SEAM };
        match limit.saturating_sub(taken) {
            text if text < LEAST_TEXT => Err(SummaryFailure::NoRoom(ask.target)),
            text => Ok(Self { text, quote }),
        }
    }

    /// The model's text with the quoted words behind it.
    fn around(&self, text: String) -> String {
        if self.quote.is_empty() { text } else { format!("{text}\n\n{}", self.quote) }
    }
}
