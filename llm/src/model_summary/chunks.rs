//! Cuts items into chunks that fit a call. Each chunk takes as much as fits, in order, so items
//! that are added at the end change no full chunk before them. (`prompt.rs` keeps the items' texts
//! from being read as instructions.)
//!
//! A text is taken in stretches of about a kilobyte that end after a line, a sentence or a word.
//! The tokens of each stretch are counted once, in the form in which it is sent: escaped in JSON.
//! So the work is linear, and a chunk has at most the sum of its stretches' tokens.

use std::ops::Range;

use crate::extractive::{text, token_counter::TokenCounter};

use super::items::Item;

/// Bytes of a stretch: short enough that a chunk leaves at most about a twentieth of a small window
/// unused.
const STRETCH_BYTES: usize = 1024;

/// At least this many stretches fit a chunk: a stretch takes at most a quarter of a chunk's budget.
/// So even with a small budget every chunk but the last is more than half full.
const MIN_STRETCHES_PER_CHUNK: u64 = 4;

/// Tokens that joining two stretches or lines may add to the sum of their counts.
const SEAM_TOKENS: u64 = 1;

/// Where a chunk begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    item: usize,
    byte: usize,
}

impl Position {
    /// Whether no text follows.
    pub(super) fn is_end(self, items: &[Item<'_>]) -> bool {
        self.item >= items.len()
    }
}

/// A range of an item's text.
#[derive(Debug, Clone)]
pub(super) struct Slice<'i> {
    pub(super) item: &'i Item<'i>,
    pub(super) range: Range<usize>,
}

impl<'i> Slice<'i> {
    pub(super) fn text(&self) -> &'i str {
        &self.item.text[self.range.clone()]
    }
}

/// The source texts of one call.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunk<'i> {
    pub(super) slices: Vec<Slice<'i>>,
    /// Upper bound of the tokens of its lines.
    pub(super) tokens: u64,
}

impl Chunk<'_> {
    /// The lines that the model reads, one JSON object each.
    pub(super) fn lines(&self) -> String {
        let mut lines = String::new();
        for slice in &self.slices {
            lines.push_str(&slice.item.line(slice.range.clone()));
            lines.push('\n');
        }
        lines
    }
}

/// The chunk of at most `budget` tokens that begins at `from`, and where the next one begins. The
/// chunk is empty only if the budget is too small for the fields of a line and one stretch, which
/// [`super::token_budget::MIN_INPUT_TOKENS`] excludes.
pub(super) fn next_chunk<'i>(
    items: &'i [Item<'i>],
    from: Position,
    budget: u64,
    counter: TokenCounter<'_>,
) -> (Chunk<'i>, Position) {
    let stretch_budget = (budget / MIN_STRETCHES_PER_CHUNK).max(1);
    let mut chunk = Chunk::default();
    let mut at = from;
    while let Some(item) = items.get(at.item) {
        let Some((end, tokens)) = fill(
            item,
            at.byte,
            budget.saturating_sub(chunk.tokens),
            stretch_budget,
            counter,
        ) else {
            break;
        };
        chunk.slices.push(Slice {
            item,
            range: at.byte..end,
        });
        chunk.tokens += tokens;
        if end < item.text.len() {
            return (chunk, Position { byte: end, ..at });
        }
        at = Position {
            item: at.item + 1,
            byte: 0,
        };
    }
    (chunk, at)
}

/// The longest range of the item's text that begins at byte `from` and whose line has at most
/// `budget` tokens: the end of the range, and the line's tokens. None if not even one stretch fits.
fn fill(
    item: &Item<'_>,
    from: usize,
    budget: u64,
    stretch_budget: u64,
    counter: TokenCounter<'_>,
) -> Option<(usize, u64)> {
    let mut tokens = counter.count(&item.line(from..from)) + SEAM_TOKENS;
    let mut end = None;
    loop {
        let at = end.unwrap_or(from);
        let (len, stretch_tokens) = stretch(&item.text[at..], stretch_budget, counter);
        if tokens + stretch_tokens + SEAM_TOKENS > budget {
            return end.map(|end| (end, tokens));
        }
        tokens += stretch_tokens + SEAM_TOKENS;
        end = Some(at + len);
        if at + len == item.text.len() {
            return end.map(|end| (end, tokens));
        }
    }
}

/// Bytes and tokens of the stretch at the beginning of `text`: at most `budget` tokens, at least
/// one character.
fn stretch(text: &str, budget: u64, counter: TokenCounter<'_>) -> (usize, u64) {
    let mut bytes = STRETCH_BYTES;
    loop {
        let len = cut(text, bytes);
        let tokens = counter.count(&escaped(&text[..len]));
        if tokens <= budget || bytes <= 1 {
            return (len, tokens);
        }
        bytes /= 2;
    }
}

/// The text as it stands between the quotes of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a string always serializes");
    quoted[1..quoted.len() - 1].to_owned()
}

/// Where to cut `text` within its first `most` bytes: after a line, a sentence or a word that ends
/// in their second half, or else after a character. The cut is after at least one character, and
/// never within one.
fn cut(text: &str, most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let end = text.floor_char_boundary(most);
    if end == 0 {
        return text.chars().next().map_or(0, char::len_utf8);
    }
    let half = text.floor_char_boundary(end / 2);
    let near = &text[half..end];
    let after = |found: Option<(usize, &str)>| found.map(|(at, found)| half + at + found.len());
    let line = after(near.rmatch_indices('\n').next());
    let sentence = || {
        after(near.rmatch_indices(['。', '！', '？', '।', '۔']).next())
            .max(after(near.rmatch_indices(". ").next()))
    };
    let word = || after(near.rmatch_indices(char::is_whitespace).next());
    line.or_else(sentence).or_else(word).unwrap_or_else(|| {
        // A cut before a combining mark would part it from its character.
        let last = text[..end].char_indices().rev().take(16);
        let whole = last
            .map(|(at, _)| at)
            .find(|at| *at > half && !text[*at..].starts_with(text::is_combining));
        if text[end..].starts_with(text::is_combining) {
            whole.unwrap_or(end)
        } else {
            end
        }
    })
}
