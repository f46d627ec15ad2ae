//! Items cut into pieces that fit a call. Greedy and in order: what is appended behind changes no full piece before it.
//!
//! Texts are taken in stretches of about a kilobyte that end at lines, sentences or words, each counted once, as it will
//! be written: escaped in JSON. So the work is linear, and a piece counts at most the sum of its stretches.

use std::ops::Range;

use crate::extractive::{fit::Scale, text};

use super::items::Item;

/// Bytes of a stretch: short enough that a piece is full to within a twentieth of a small window.
const STRETCH_BYTES: usize = 1024;

/// A stretch counts at most one in so many of the room, so that every piece but the last is more than half full.
const STRETCHES_IN_ROOM: u64 = 4;

/// What a seam between two stretches or lines may add to the sum of their counts.
const SEAM: u64 = 1;

/// Where a piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    item: usize,
    byte: usize,
}

impl Place {
    /// Whether nothing comes after it.
    pub(super) fn is_end(self, items: &[Item<'_>]) -> bool {
        self.item >= items.len()
    }
}

/// A stretch of an item's text.
#[derive(Debug, Clone)]
pub(super) struct Slice<'i> {
    pub(super) item: &'i Item<'i>,
    pub(super) range: Range<usize>,
}

impl<'i> Slice<'i> {
    /// Its text.
    pub(super) fn text(&self) -> &'i str {
        &self.item.text[self.range.clone()]
    }
}

/// What one call is told.
#[derive(Debug, Clone, Default)]
pub(super) struct Piece<'i> {
    pub(super) slices: Vec<Slice<'i>>,
    /// What its lines count at most.
    pub(super) tokens: u64,
}

impl Piece<'_> {
    /// Its lines, as they are told.
    pub(super) fn lines(&self) -> String {
        let mut lines = String::new();
        for slice in &self.slices {
            lines.push_str(&slice.item.line(slice.range.clone()));
            lines.push('\n');
        }
        lines
    }
}

/// The piece of at most `room` tokens that begins at `from`, and where the next one begins. Empty only when the room does
/// not even hold a line's head and one stretch, which [`super::room::LEAST_INPUT`] always does.
pub(super) fn piece<'i>(items: &'i [Item<'i>], from: Place, room: u64, scale: Scale<'_>) -> (Piece<'i>, Place) {
    let most = (room / STRETCHES_IN_ROOM).max(1);
    let mut piece = Piece::default();
    let mut at = from;
    while let Some(item) = items.get(at.item) {
        let Some((end, tokens)) = filled(item, at.byte, room.saturating_sub(piece.tokens), most, scale) else { break };
        piece.slices.push(Slice { item, range: at.byte..end });
        piece.tokens += tokens;
        if end < item.text.len() {
            return (piece, Place { byte: end, ..at });
        }
        at = Place { item: at.item + 1, byte: 0 };
    }
    (piece, at)
}

/// As much of the item from byte `from` on as counts at most `room` as a line: where it ends, and its count. None when
/// not even one stretch of it fits.
fn filled(item: &Item<'_>, from: usize, room: u64, most: u64, scale: Scale<'_>) -> Option<(usize, u64)> {
    let mut tokens = scale.weigh(&item.line(from..from)) + SEAM;
    let mut end = None;
    loop {
        let at = end.unwrap_or(from);
        let (len, more) = stretch(&item.text[at..], most, scale);
        if tokens + more + SEAM > room {
            return end.map(|end| (end, tokens));
        }
        tokens += more + SEAM;
        end = Some(at + len);
        if at + len == item.text.len() {
            return end.map(|end| (end, tokens));
        }
    }
}

/// Bytes and tokens of the stretch at the beginning of `text`: at most `room` tokens, at least a character.
fn stretch(text: &str, room: u64, scale: Scale<'_>) -> (usize, u64) {
    let mut bytes = STRETCH_BYTES;
    loop {
        let len = cut(text, bytes);
        let tokens = scale.weigh(&escaped(&text[..len]));
        if tokens <= room || bytes <= 1 {
            return (len, tokens);
        }
        bytes /= 2;
    }
}

/// The text as it stands between the quotes of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("a string always serialises");
    quoted[1..quoted.len() - 1].to_owned()
}

/// Where to cut `text` within its first `most` bytes: after a line, a sentence, a word in their second half, else after
/// a character; at least one character, never inside one.
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
    let sentence =
        || after(near.rmatch_indices(['。', '！', '？', '।', '۔']).next()).max(after(near.rmatch_indices(". ").next()));
    let word = || after(near.rmatch_indices(char::is_whitespace).next());
    line.or_else(sentence).or_else(word).unwrap_or_else(|| {
        let last = text[..end].char_indices().rev().take(16);
        let whole = last.map(|(at, _)| at).find(|at| *at > half && !text[*at..].starts_with(text::extends));
        if text[end..].starts_with(text::extends) { whole.unwrap_or(end) } else { end }
    })
}
