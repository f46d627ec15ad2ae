//! Gates: the text describes the format in which its source was sent, or is about something else.

use rustc_hash::FxHashSet;

use crate::extractive::{text, work};

use super::super::{chunks::Chunk, items::Kind};

/// Letters of a stem: only this many letters at the beginning of a word are compared, because
/// endings differ between a source and its summary.
const STEM_LETTERS: usize = 5;

/// Texts with fewer different stems of long words pass.
const MIN_STEMS: usize = 8;

/// Percentage of the different long words that must occur in the source. Freely worded summaries of
/// dialogue reach 40. Inventions and descriptions of the prompt stay below 20.
const MIN_GROUNDED_PERCENT: usize = 25;

/// The word with which small models describe the source's format instead of its content.
const FORMAT_NAME: &str = "json";

/// Whether the text names the format of the source lines (JSON), although no source text is or
/// names JSON. Calls and results of tools, cached summaries, and texts with a line that begins like
/// JSON may be JSON: if the source has one of these, every text passes.
pub(super) fn describes_format(text: &str, chunk: &Chunk<'_>) -> bool {
    let names_format = |text: &str| stems(text).any(|word| word == FORMAT_NAME);
    let is_json = |text: &str| {
        text.lines()
            .any(|line| line.trim_start().starts_with(['{', '[']))
    };
    names_format(text)
        && !chunk.slices.iter().any(|slice| {
            let may_be_json =
                !slice.item.kind.is_dialogue() || slice.item.kind == Kind::CachedSummary;
            may_be_json
                || is_json(slice.text())
                || names_format(slice.text())
                || names_format(&slice.item.lead)
        })
}

/// Whether too few long words of the text occur in its source. The text passes if most of the
/// source is text of tools, or if only one of the two, text or source, is in a script with spaces
/// between words: then even a good summary uses other words.
pub(super) fn is_ungrounded(text: &str, chunk: &Chunk<'_>) -> bool {
    let mut missing: FxHashSet<String> = stems(text).filter(|stem| is_long(stem)).collect();
    let all = missing.len();
    if all < MIN_STEMS {
        return false;
    }
    let is_mostly_wide = missing
        .iter()
        .filter(|stem| stem.chars().all(is_wide))
        .count()
        * 2
        > all;
    // Long words of the source: those of the dialogue in the text's kind of script, and all.
    let (mut comparable, mut total) = (0, 0);
    for slice in &chunk.slices {
        let is_dialogue = slice.item.kind.is_dialogue();
        for stem in stems(slice.text()).filter(|stem| is_long(stem)) {
            total += 1;
            comparable += usize::from(is_dialogue && stem.chars().all(is_wide) == is_mostly_wide);
            missing.remove(&stem);
        }
    }
    comparable * 2 > total && (all - missing.len()) * 100 < all * MIN_GROUNDED_PERCENT
}

/// Whether the stem is that of a long word, or a pair of characters of a script without spaces.
/// Short words occur in every text.
fn is_long(stem: &str) -> bool {
    stem.chars().count() == STEM_LETTERS || stem.chars().all(is_wide)
}

/// Whether the character is of a script without spaces between words.
fn is_wide(c: char) -> bool {
    text::is_cjk(c) || text::is_southeast_asian(c)
}

/// The lower-case stems of words; in scripts without spaces, each pair of adjacent characters.
fn stems(text: &str) -> impl Iterator<Item = String> {
    work::tick(text.len());
    let mut chars = text.chars().peekable();
    std::iter::from_fn(move || {
        loop {
            let first = chars.next()?;
            if is_wide(first) {
                if let Some(second) = chars.peek().filter(|c| is_wide(**c)) {
                    return Some([first, *second].iter().collect());
                }
            } else if first.is_alphanumeric() {
                let mut stem: String = first.to_lowercase().collect();
                let mut letters = 1;
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() && !is_wide(*c)) {
                    letters += 1;
                    if letters <= STEM_LETTERS {
                        stem.extend(c.to_lowercase());
                    }
                }
                return Some(stem);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_reduced_to_their_stems() {
        let found: Vec<String> = stems("Containing, contained: Zürich-West 42 東京都 x").collect();
        assert_eq!(
            found,
            ["conta", "conta", "züric", "west", "42", "東京", "京都", "x"]
        );
    }
}
