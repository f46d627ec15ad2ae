//! Text for errors, truncated when the error is made. Names and values of a request can be
//! megabytes long; the message, details and log line of an error must not be.

use std::fmt;

/// Most bytes of a name or a description in an error. The longest of the server's own texts has
/// about 150.
pub(crate) const MAX_TEXT_BYTES: usize = 200;
/// Replaces the rest of a longer text.
const ELLIPSIS: char = '…';

/// A text of at most [`MAX_TEXT_BYTES`] bytes. A longer one ends with an ellipsis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TruncatedText(String);

impl TruncatedText {
    /// Truncates a text.
    pub(crate) fn new(text: impl AsRef<str> + Into<String>) -> Self {
        let whole = text.as_ref();
        if whole.len() <= MAX_TEXT_BYTES {
            return Self(text.into());
        }
        let mut cut =
            whole[..whole.floor_char_boundary(MAX_TEXT_BYTES - ELLIPSIS.len_utf8())].to_owned();
        cut.push(ELLIPSIS);
        Self(cut)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Display for TruncatedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character_boundary_and_ends_with_an_ellipsis() {
        for short in ["", "policy.model", &"x".repeat(MAX_TEXT_BYTES)] {
            assert_eq!(TruncatedText::new(short).as_str(), short);
        }
        for character in ["x", "é", "冷", "🦀"] {
            for count in [MAX_TEXT_BYTES + 1, 4_000_000] {
                // The ellipsis has 3 bytes, and at most 3 more are lost at a character boundary.
                let cut = TruncatedText::new(character.repeat(count));
                assert!(
                    (MAX_TEXT_BYTES - 6..=MAX_TEXT_BYTES).contains(&cut.as_str().len()),
                    "{cut}"
                );
                assert!(cut.as_str().ends_with(ELLIPSIS) && cut.as_str().starts_with(character));
            }
        }
    }
}
