//! The built-in summarizer: takes the most important sentences and lines word for word, and writes
//! JSON and logs as outlines and templates. It is deterministic, needs no network, and its time is
//! linear in its input.
//!
//! A *digest* here is a shortened text, not a hash.
//!
//! - `range`, `message`: the summary of a run of messages, and of one large message.
//! - `previous`: the beginning of a range's summary: the previous summary, and the user message of a turn
//!   that the cut splits.
//! - `fragments`: the texts of a message.
//! - `structure`: cuts a text into blocks of prose, JSON, code, diff, log or table.
//! - `prose`, `json`, `code`, `diff`, `log`, `table`: the digest of a block of that kind.
//! - `terms`: what makes a sentence important.
//! - `candidates`: selects the lines that fit a budget.
//! - `token_counter`, `text`: counting and clipping.
//! - `work`: counts the bytes that are read, in unit tests only; `scaling`: the unit tests that
//!   this count grows linearly with the input.

mod candidates;
mod code;
mod diff;
pub(crate) mod fragments;
mod json;
mod log;
mod message;
pub(crate) mod previous;
mod prose;
mod range;
#[cfg(test)]
mod scaling;
mod structure;
mod table;
mod terms;
pub(crate) mod text;
pub(crate) mod token_counter;
pub(crate) mod work;

use anneal_core::tokens::Tokens;

use crate::summarizer::{Purpose, Summarizer, Summary, SummaryAsk, SummaryFailure};

use self::{
    structure::{Block, Kind},
    terms::Focus,
    token_counter::TokenCounter,
};

/// Version of the method. It must be raised when the summary of the same source changes.
const VERSION: i32 = 1;

/// The summarizer that needs no model.
///
/// A range becomes one line per important message: `[12 user] its key sentences … on one line`.
/// Line feeds of the source are replaced by blanks, so a source cannot forge a label at the start
/// of a line. A single message becomes the digests of its blocks: the outline of JSON, the
/// signatures of code, the templates of a log, the key sentences of prose. `examples/throughput.rs`
/// measures the speed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extractive;

impl Summarizer for Extractive {
    fn name(&self) -> &'static str {
        "extractive"
    }

    fn prompt_version(&self) -> i32 {
        VERSION
    }

    fn summarize(&self, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
        if ask.is_blank() {
            return Err(SummaryFailure::EmptySource);
        }
        if ask.target == Tokens::ZERO {
            return Err(SummaryFailure::TargetTooSmall(ask.target));
        }
        let source_tokens = ask.source_tokens(ask.target + Tokens::new(1)).get();
        let limit = ask.target.get().min(source_tokens.saturating_sub(1));
        if limit == 0 {
            return Err(SummaryFailure::NotShorter);
        }
        let counter = TokenCounter(ask.measure);
        let text = match ask.purpose {
            Purpose::Range => range::summary(ask, counter, limit),
            Purpose::Message => message::summary(ask, counter, limit),
        };
        // The counts of parts do not add up exactly to the count of the whole, and the target may
        // be smaller than any sentence.
        let text = if counter.count(&text) <= limit {
            text
        } else {
            counter.clip(&text, limit)
        };
        if text.trim().is_empty() {
            let is_source_short = limit < ask.target.get();
            return Err(if is_source_short {
                SummaryFailure::NotShorter
            } else {
                SummaryFailure::TargetTooSmall(ask.target)
            });
        }
        ask.accept(text)
    }
}

/// The digest of a block: at most `budget` tokens; the whole block if it fits.
fn digest(block: &Block<'_>, counter: TokenCounter<'_>, budget: u64, focus: &Focus) -> String {
    let prose = block.kind == Kind::Prose;
    // Most texts have at most eight bytes per token. A block of more bytes is taken as too long
    // without being counted; only runs of one character could still fit.
    if block.text.len() as u64 <= budget.saturating_mul(8) {
        let whole = if prose {
            text::fold(block.text)
        } else {
            block.text.trim_matches('\n').trim_end().to_owned()
        };
        if counter.count(&whole) <= budget {
            return whole;
        }
    }
    match (block.kind, &block.shape) {
        (Kind::Json, Some(shape)) => json::digest(shape, counter, budget),
        (Kind::Code, _) => code::digest(block.text, counter, budget),
        (Kind::Diff, _) => diff::digest(block.text, counter, budget),
        (Kind::Log, _) => log::digest(block.text, counter, budget),
        (Kind::Table, _) => table::digest(block.text, counter, budget),
        (Kind::Prose | Kind::Json, _) => prose::digest(block.text, counter, budget, focus),
    }
}
