//! Text that goes into an error, cut when it is made: names and values of a request are as long as their sender likes, and
//! whatever is done with an error (its spelling, its details, its log line) must not cost more for that.

use std::fmt;

/// Bytes of a name or a description in an error. The longest of our own has about 150.
pub(crate) const BRIEF_BYTES: usize = 200;
/// Stands where the rest of a longer text was.
const ELLIPSIS: char = '…';

/// A text of at most [`BRIEF_BYTES`] bytes; what was longer ends with an ellipsis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Brief(String);

impl Brief {
    /// Cuts a text.
    pub(crate) fn new(text: impl AsRef<str> + Into<String>) -> Self {
        let whole = text.as_ref();
        if whole.len() <= BRIEF_BYTES {
            return Self(text.into());
        }
        let mut cut = whole[..whole.floor_char_boundary(BRIEF_BYTES - ELLIPSIS.len_utf8())].to_owned();
        cut.push(ELLIPSIS);
        Self(cut)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by itself.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_character_and_says_so() {
        for short in ["", "policy.model", &"x".repeat(BRIEF_BYTES)] {
            assert_eq!(Brief::new(short).as_str(), short);
        }
        for letter in ["x", "é", "冷", "🦀"] {
            for count in [BRIEF_BYTES + 1, 4_000_000] {
                let cut = Brief::new(letter.repeat(count));
                assert!((BRIEF_BYTES - 6..=BRIEF_BYTES).contains(&cut.as_str().len()), "{cut}");
                assert!(cut.as_str().ends_with(ELLIPSIS) && cut.as_str().starts_with(letter));
            }
        }
    }
}
