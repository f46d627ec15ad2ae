//! Counts tokens in the conversation's encoding, and clips a text to a number of tokens.

use crate::summarizer::Measure;

use super::{text, work};

/// Hardly any token has more bytes than this. Those that have are blanks, and clipping them loses
/// nothing.
const MAX_TOKEN_BYTES: u64 = 16;

/// Counts with [`SummaryAsk::measure`](crate::SummaryAsk::measure).
#[derive(Clone, Copy)]
pub(crate) struct TokenCounter<'a>(pub(crate) &'a Measure);

impl TokenCounter<'_> {
    /// The tokens of the text.
    pub(crate) fn count(self, text: &str) -> u64 {
        work::tick(text.len());
        (self.0)(text).get()
    }

    /// The longest beginning of `text` within `budget` tokens, with an ellipsis if it was cut. If
    /// not even that fits: one character, an ellipsis, a full stop, or nothing.
    pub(crate) fn clip(self, text: &str, budget: u64) -> String {
        let text = text::head(
            text,
            usize::try_from(budget.saturating_mul(MAX_TOKEN_BYTES))
                .unwrap_or(usize::MAX)
                .max(64),
        );
        if self.count(text) <= budget {
            return text.to_owned();
        }
        let (mut fits, mut over) = (0, text.chars().count());
        while over - fits > 1 {
            let middle = fits.midpoint(over);
            let cut = text::clip(text, middle);
            if self.count(&cut) <= budget {
                fits = middle;
            } else {
                over = middle;
            }
        }
        let clipped = text::clip(text, fits).into_owned();
        if fits > 0 && self.count(&clipped) <= budget {
            return clipped;
        }
        let bare = text::head(text, 1);
        [bare, "…", "."]
            .into_iter()
            .find(|short| self.count(short) <= budget)
            .unwrap_or_default()
            .to_owned()
    }
}
