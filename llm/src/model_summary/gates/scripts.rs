//! Gate: the text is in another script (Latin, Cyrillic, Chinese and so on) than its source.

use crate::extractive::work;

use super::super::chunks::Chunk;

/// The text counts as written in a script that has at least this percentage of its letters.
const TEXT_SCRIPT_PERCENT: u64 = 40;
/// A script with a smaller percentage of the source's letters counts as absent from the source.
const MIN_PRESENT_PERCENT: u64 = 10;
/// If a script has at least `SOURCE_SCRIPT_PERCENT` of the source's letters, it must have at least
/// `MIN_SHARED_PERCENT` of the text's letters.
const SOURCE_SCRIPT_PERCENT: u64 = 60;
const MIN_SHARED_PERCENT: u64 = 20;

/// Texts and sources with fewer letters pass: they may be names and abbreviations.
const MIN_LETTERS: u64 = 40;

/// Letters of an alphabet that one Chinese, Japanese or Korean character counts for: it is about a
/// syllable or a word.
const WIDE_CHAR_LETTERS: u64 = 3;

/// The number of letters in each script.
#[derive(Debug, Clone, Copy, Default)]
struct Letters([u64; SCRIPTS]);

/// Number of scripts that are told apart. Their indices in [`script`]: Latin 0, Han 1, kana 2,
/// Hangul 3, Greek 4, Cyrillic 5, Armenian 6, Hebrew 7, Arabic and Syriac 8, Devanagari 9, other
/// Indic 10, Thai and Lao 11, Burmese and Khmer 12, Georgian 13, Ethiopic 14, all others 15.
const SCRIPTS: usize = 16;
const LATIN: usize = 0;

impl Letters {
    fn of(text: &str) -> Self {
        let mut letters = Self::default();
        letters.add(text);
        letters
    }

    /// Adds the letters of the text. Runs of ASCII that look like code (`src/main.rs`, `a_b`,
    /// `f(x)`) do not count, because they occur in texts of any language.
    fn add(&mut self, text: &str) {
        work::tick(text.len());
        let (mut run, mut is_code) = (0, false);
        let mut before = ' ';
        for c in text.chars() {
            if c.is_ascii_graphic() {
                let after_code_mark = matches!(
                    before,
                    '/' | '\\' | '.' | '_' | '@' | '#' | '=' | '(' | '{' | '[' | '<' | ':' | '$'
                );
                is_code |= c.is_ascii_digit()
                    || c == '_'
                    || (after_code_mark && c.is_ascii_alphanumeric());
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

    /// Whether the script has at least this percentage of all letters.
    fn has(&self, script: usize, percent: u64) -> bool {
        self.0[script] * 100 >= self.total() * percent && self.0[script] > 0
    }
}

/// The index of the script of a letter beyond ASCII, and the letters that this letter counts for.
fn script(c: char) -> Option<(usize, u64)> {
    Some(match c {
        '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' | '\u{ff21}'..='\u{ff5a}' => (LATIN, 1),
        '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3134f}' => (1, WIDE_CHAR_LETTERS),
        '\u{3040}'..='\u{30ff}' | '\u{ff66}'..='\u{ff9d}' => (2, WIDE_CHAR_LETTERS),
        '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7af}' => (3, WIDE_CHAR_LETTERS),
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

/// Whether the text is in a script that is absent from the source, or lacks the script of the
/// source.
///
/// A Chinese request above ten pages of an English log asks for a Chinese summary. So a script also
/// counts as present if one message of a person or a model is in it. A Chinese dialogue about much
/// code has more Latin letters than Chinese ones, and its summary may lack Latin letters. So a text
/// is never refused because it lacks Latin letters.
pub(super) fn is_wrong_script(text: &str, chunk: &Chunk<'_>) -> bool {
    let written = Letters::of(text);
    if written.total() < MIN_LETTERS {
        return false;
    }
    let mut source = Letters::default();
    let mut in_dialogue = [false; SCRIPTS];
    for slice in &chunk.slices {
        let letters = Letters::of(slice.text());
        (0..SCRIPTS).for_each(|script| {
            source.0[script] += letters.0[script];
            in_dialogue[script] |=
                slice.item.kind.is_dialogue() && letters.has(script, MIN_PRESENT_PERCENT);
        });
    }
    if source.total() < MIN_LETTERS {
        return false;
    }
    (0..SCRIPTS).any(|script| {
        let foreign = written.has(script, TEXT_SCRIPT_PERCENT)
            && !source.has(script, MIN_PRESENT_PERCENT)
            && !in_dialogue[script];
        let lacking = script != LATIN
            && source.has(script, SOURCE_SCRIPT_PERCENT)
            && !written.has(script, MIN_SHARED_PERCENT);
        foreign || lacking
    })
}
