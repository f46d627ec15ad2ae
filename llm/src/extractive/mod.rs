//! The built-in summariser: takes over what matters word for word. Deterministic, offline, linear in its input.

mod code;
mod diff;
pub(crate) mod fit;
mod json;
mod log;
mod message;
pub(crate) mod pieces;
pub(crate) mod previous;
mod prose;
mod range;
#[cfg(test)]
mod scaling;
mod structure;
mod table;
mod terms;
pub(crate) mod text;
pub(crate) mod work;

use anneal_core::tokens::Tokens;

use crate::port::{BoxFuture, Purpose, Summarizer, Summary, SummaryAsk, SummaryFailure, SummaryKind};

use self::{
    fit::Scale,
    structure::{Block, Kind},
    terms::Focus,
};

/// Version of the method; raised when the same ask would be answered differently.
const VERSION: i32 = 1;

/// The summariser that needs no model.
///
/// A range becomes one line for each message that matters: `[12 user] its key sentences … on one line`. Line feeds of
/// the source are folded, so that what stands at the start of a line is always ours, never a forged label.
/// A single message keeps the digest that its structure asks for: outline, signatures, templates, key sentences.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extractive;

impl Extractive {
    /// The summary. CPU work, linear in the sources (see `examples/throughput.rs`): call it from a blocking thread.
    pub fn summarize_now(&self, ask: &SummaryAsk<'_>) -> Result<Summary, SummaryFailure> {
        if ask.is_blank() {
            return Err(SummaryFailure::NothingSaid);
        }
        if ask.target == Tokens::ZERO {
            return Err(SummaryFailure::NoRoom(ask.target));
        }
        let source = ask.source_tokens(ask.target + Tokens::new(1)).get();
        let limit = ask.target.get().min(source.saturating_sub(1));
        if limit == 0 {
            return Err(SummaryFailure::NotShorter);
        }
        let scale = Scale(ask.measure);
        let text = match ask.purpose {
            Purpose::Range => range::summary(ask, scale, limit),
            Purpose::Message => message::summary(ask, scale, limit),
        };
        // A last guard: counts do not add up exactly, and a target may be smaller than any sentence.
        let text = if scale.weigh(&text) <= limit { text } else { scale.clip(&text, limit) };
        if text.trim().is_empty() {
            let short = limit < ask.target.get();
            return Err(if short { SummaryFailure::NotShorter } else { SummaryFailure::NoRoom(ask.target) });
        }
        ask.accept(text)
    }
}

impl Summarizer for Extractive {
    fn name(&self) -> &'static str {
        "extractive"
    }

    fn kind(&self) -> SummaryKind {
        SummaryKind::Extractive
    }

    fn prompt_version(&self) -> i32 {
        VERSION
    }

    fn summarize<'a>(&'a self, ask: &'a SummaryAsk<'a>) -> BoxFuture<'a, Result<Summary, SummaryFailure>> {
        Box::pin(async move { self.summarize_now(ask) })
    }
}

/// A block as its kind asks for, within `room`; whole when it fits.
fn digest(block: &Block<'_>, scale: Scale<'_>, room: u64, focus: &Focus) -> String {
    let prose = block.kind == Kind::Prose;
    // No encoding puts more than about eight bytes of such text into a token: longer ones need no measuring.
    if block.text.len() as u64 <= room.saturating_mul(8) {
        let whole = if prose { text::fold(block.text) } else { block.text.trim_matches('\n').trim_end().to_owned() };
        if scale.weigh(&whole) <= room {
            return whole;
        }
    }
    match (block.kind, &block.shape) {
        (Kind::Json, Some(shape)) => json::digest(shape, scale, room),
        (Kind::Code, _) => code::digest(block.text, scale, room),
        (Kind::Diff, _) => diff::digest(block.text, scale, room),
        (Kind::Log, _) => log::digest(block.text, scale, room),
        (Kind::Table, _) => table::digest(block.text, scale, room),
        (Kind::Prose | Kind::Json, _) => prose::digest(block.text, scale, room, focus),
    }
}
