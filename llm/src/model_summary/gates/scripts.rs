//! A text in another script than what it speaks of.

use crate::extractive::work;

use super::super::pieces::Piece;

/// A script that takes so many hundredths of the text is one that it is written in.
const WRITTEN_PERCENT: u64 = 40;
/// A script with fewer hundredths of the source hardly occurs in it.
const HARDLY_PERCENT: u64 = 10;
/// A script with so many hundredths of the source is what it is written in …
const SOURCE_PERCENT: u64 = 60;
/// … and must then have so many of the text.
const LEAST_PERCENT: u64 = 20;

/// Fewer letters than this say nothing: names, abbreviations.
const LEAST_LETTERS: u64 = 40;

/// A character of these scripts is worth so many letters of an alphabet: about a syllable or a word.
const WIDE: u64 = 3;

/// Letters by script.
#[derive(Debug, Clone, Copy, Default)]
struct Letters([u64; SCRIPTS]);

const SCRIPTS: usize = 16;
const LATIN: usize = 0;

impl Letters {
    fn of(text: &str) -> Self {
        let mut letters = Self::default();
        letters.add(text);
        letters
    }

    /// Adds the letters of the text. Runs of ASCII that hold more than words (`src/main.rs`, `a_b`, `f(x)`) are code in any
    /// language and count as nothing.
    fn add(&mut self, text: &str) {
        work::tick(text.len());
        let (mut run, mut is_code) = (0, false);
        let mut before = ' ';
        for c in text.chars() {
            if c.is_ascii_graphic() {
                let inner =
                    matches!(before, '/' | '\\' | '.' | '_' | '@' | '#' | '=' | '(' | '{' | '[' | '<' | ':' | '$');
                is_code |= c.is_ascii_digit() || c == '_' || (inner && c.is_ascii_alphanumeric());
                run += u64::from(c.is_ascii_alphabetic());
            } else {
                self.0[LATIN] += if is_code { 0 } else { run };
                (run, is_code) = (0, false);
                if let Some((script, worth)) = script(c) {
                    self.0[script] += worth;
                }
            }
            before = c;
        }
        self.0[LATIN] += if is_code { 0 } else { run };
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Whether the script has at least so many hundredths of all.
    fn has(&self, script: usize, percent: u64) -> bool {
        self.0[script] * 100 >= self.total() * percent && self.0[script] > 0
    }
}

/// The script of a letter beyond ASCII, and what it is worth.
fn script(c: char) -> Option<(usize, u64)> {
    Some(match c {
        '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' | '\u{ff21}'..='\u{ff5a}' => (LATIN, 1),
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3134f}' => {
            (1, WIDE)
        }
        '\u{3040}'..='\u{30ff}' | '\u{ff66}'..='\u{ff9d}' => (2, WIDE),
        '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7af}' => (3, WIDE),
        '\u{370}'..='\u{3ff}' => (4, 1),
        '\u{400}'..='\u{52f}' => (5, 1),
        '\u{530}'..='\u{58f}' => (6, 1),
        '\u{590}'..='\u{5ff}' => (7, 1),
        '\u{600}'..='\u{77f}' => (8, 1),
        '\u{900}'..='\u{97f}' => (9, 1),
        '\u{980}'..='\u{dff}' => (10, 1),
        '\u{e00}'..='\u{eff}' => (11, 1),
        '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' => (12, 1),
        '\u{10a0}'..='\u{10ff}' => (13, 1),
        '\u{1200}'..='\u{139f}' => (14, 1),
        c if c.is_alphabetic() => (15, 1),
        _ => return None,
    })
}

/// Whether the text is in a script that hardly occurs in the source, or lacks the one that the source is written in.
///
/// One request in Chinese above ten pages of an English log asks for a Chinese summary: so a script also occurs in the
/// source when one message of those that people and models wrote is in it. And a talk in Chinese about much code has
/// more Latin letters than others: so only the lack of another script than Latin is judged by shares of the source.
pub(super) fn differ(text: &str, piece: &Piece<'_>) -> bool {
    let written = Letters::of(text);
    if written.total() < LEAST_LETTERS {
        return false;
    }
    let mut source = Letters::default();
    let mut spoken = [false; SCRIPTS];
    for slice in &piece.slices {
        let letters = Letters::of(slice.text());
        (0..SCRIPTS).for_each(|script| {
            source.0[script] += letters.0[script];
            spoken[script] |= slice.item.kind.is_spoken() && letters.has(script, HARDLY_PERCENT);
        });
    }
    if source.total() < LEAST_LETTERS {
        return false;
    }
    (0..SCRIPTS).any(|script| {
        let foreign = written.has(script, WRITTEN_PERCENT) && !source.has(script, HARDLY_PERCENT) && !spoken[script];
        let lacking = script != LATIN && source.has(script, SOURCE_PERCENT) && !written.has(script, LEAST_PERCENT);
        foreign || lacking
    })
}
