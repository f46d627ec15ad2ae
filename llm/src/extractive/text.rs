//! Cleans and shortens text: removes control characters, folds lines, clips between graphemes.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

/// The text without control characters (but with line feeds and tabs), terminal codes, direction
/// overrides and byte order marks. Other line separators become line feeds.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unclean) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
                chars.next_if(|c| matches!(c, '@'..='~'));
            }
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            c if is_unclean(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn is_unclean(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{2028}'
        | '\u{2029}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => true,
        c => c.is_control(),
    }
}

/// Appends the text as one line: each run of white space becomes one space.
pub(crate) fn fold_into(out: &mut String, text: &str) {
    let mut first = true;
    for word in text.split_whitespace() {
        if !first {
            out.push(' ');
        }
        out.push_str(word);
        first = false;
    }
}

/// The text as one line.
pub(crate) fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    fold_into(&mut out, text);
    out
}

/// At most the first `chars` characters. The cut is never within a grapheme, unless the first
/// grapheme is longer than that.
pub(crate) fn head(text: &str, chars: usize) -> &str {
    if text.len() <= chars {
        return text;
    }
    let Some((end, _)) = text.char_indices().nth(chars) else {
        return text;
    };
    // Only the text near the cut is searched for graphemes: earlier text does not affect it.
    let near = text[..end]
        .char_indices()
        .rev()
        .nth(63)
        .map_or(0, |(i, _)| i);
    let past = text[end..]
        .char_indices()
        .nth(1)
        .map_or(text.len(), |(i, _)| end + i);
    let cut = text[near..past]
        .grapheme_indices(true)
        .map(|(i, _)| near + i)
        .take_while(|i| *i <= end)
        .last();
    match cut {
        Some(cut) if cut > 0 => &text[..cut],
        _ => &text[..end],
    }
}

/// The text, or its first `chars` characters with an ellipsis.
pub(crate) fn clip(text: &str, chars: usize) -> Cow<'_, str> {
    let kept = head(text, chars);
    if kept.len() == text.len() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{}…", kept.trim_end()))
    }
}

/// At most `keep` characters of the text, two thirds from its beginning and one third from its end,
/// with an ellipsis between them.
pub(crate) fn clip_middle(text: &str, keep: usize) -> String {
    let total = text.chars().count();
    if total <= keep {
        return text.to_owned();
    }
    let front = head(text, keep * 2 / 3);
    let back = keep - keep * 2 / 3;
    let tail = if back == 0 {
        ""
    } else {
        text.char_indices()
            .rev()
            .nth(back - 1)
            .map_or("", |(i, _)| &text[i..])
    };
    format!("{front}…{}", tail.trim_start_matches(is_combining))
}

/// The text with a blank before each line that looks like the beginning of a line in a range's
/// summary (`[13 assistant]`, `[… ×12]`).
pub(crate) fn escape_labels(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        if line
            .strip_prefix('[')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_numeric() || c == '…'))
        {
            out.push(' ');
        }
        out.push_str(line);
    }
    out
}

/// Whether the character modifies the one before it: marks, joiners, variation selectors, skin
/// tones.
pub(crate) fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{200c}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}')
        || is_indic_mark(c)
}

/// Vowel signs and viramas of the Indic scripts, and Thai and Lao marks: they are part of a word.
pub(crate) fn is_indic_mark(c: char) -> bool {
    match c {
        // Each of these scripts has a block of 128 characters, with its marks at nearly the same
        // places.
        '\u{900}'..='\u{dff}' => {
            matches!(c as u32 & 0x7f, 0x00..=0x03 | 0x3a..=0x3c | 0x3e..=0x4f | 0x51..=0x57 | 0x62 | 0x63)
        }
        '\u{e31}'
        | '\u{e34}'..='\u{e3a}'
        | '\u{e47}'..='\u{e4e}'
        | '\u{eb1}'
        | '\u{eb4}'..='\u{ebc}'
        | '\u{ec8}'..='\u{ecd}' => true,
        _ => false,
    }
}

/// Han, Kana and Hangul: sentences end with full-width marks, terms are pairs of characters.
pub(crate) const fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3134f}')
}

/// Thai, Lao, Khmer and Burmese: no spaces between words, and often no sentence marks.
pub(crate) const fn is_southeast_asian(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

/// Whether text after `before` is joined without a space, because `before` ends in full-width text.
pub(crate) fn joins_without_space(before: &str) -> bool {
    before.chars().next_back().is_some_and(|c| {
        is_cjk(c) || matches!(c, '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ff65}')
    })
}
