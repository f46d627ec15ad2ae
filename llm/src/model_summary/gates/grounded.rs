//! A text that is not about its source: it speaks of the form in which it was told, or of things that nobody said.

use rustc_hash::FxHashSet;

use crate::extractive::{text, work};

use super::super::{items::Kind, pieces::Piece};

/// Letters of a word's beginning that count: endings differ between what is said and how it is retold.
const STEM: usize = 5;

/// With fewer different words nothing can be said of them.
const LEAST_STEMS: usize = 8;

/// Of the different long words, at least so many hundredths stand in the source. Free retellings of talk in a model's own
/// words reach 40; inventions and descriptions of the prompt stay below 20.
const GROUNDED_PERCENT: usize = 25;

/// What small models describe instead of reporting it: the lines in which the source is told.
const FORM: &str = "json";

/// Whether the text speaks of the form of its source, where the source does not, and holds nothing that has this form:
/// programs speak in JSON, digests stand for what may be JSON, and so does a text with lines that begin as it does.
pub(super) fn speaks_of_form(text: &str, piece: &Piece<'_>) -> bool {
    let says = |text: &str| stems(text).any(|word| word == FORM);
    let is_json = |text: &str| text.lines().any(|line| line.trim_start().starts_with(['{', '[']));
    says(text)
        && !piece.slices.iter().any(|slice| {
            let programs = !slice.item.kind.is_spoken() || slice.item.kind == Kind::Digest;
            programs || is_json(slice.text()) || says(slice.text()) || says(&slice.item.mark)
        })
}

/// Whether most of what the text speaks of stands nowhere in its source. Not asked where most of the source are words of
/// programs, or of another language than the text's: then even a good report has other words.
pub(super) fn invents(text: &str, piece: &Piece<'_>) -> bool {
    let mut missing: FxHashSet<String> = stems(text).filter(|stem| is_telling(stem)).collect();
    let all = missing.len();
    if all < LEAST_STEMS {
        return false;
    }
    let wide = missing.iter().filter(|stem| stem.chars().all(is_wide)).count() * 2 > all;
    let (mut alike, mut told) = (0, 0);
    for slice in &piece.slices {
        let spoken = slice.item.kind.is_spoken();
        for stem in stems(slice.text()).filter(|stem| is_telling(stem)) {
            told += 1;
            alike += usize::from(spoken && stem.chars().all(is_wide) == wide);
            missing.remove(&stem);
        }
    }
    alike * 2 > told && (all - missing.len()) * 100 < all * GROUNDED_PERCENT
}

/// Short words stand in every text.
fn is_telling(stem: &str) -> bool {
    stem.chars().count() == STEM || stem.chars().all(is_wide)
}

fn is_wide(c: char) -> bool {
    text::is_cjk(c) || text::is_southeast(c)
}

/// The beginnings of words, in small letters; in scripts without spaces each pair of neighbouring characters.
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
                    if letters <= STEM {
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
    fn words_are_told_apart_by_their_beginnings() {
        let found: Vec<String> = stems("Containing, contained: Zürich-West 42 東京都 x").collect();
        assert_eq!(found, ["conta", "conta", "züric", "west", "42", "東京", "京都", "x"]);
    }
}
