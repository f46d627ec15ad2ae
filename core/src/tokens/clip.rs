//! Clips text: leaves out its middle.

use std::ops::Range;

use super::{Encoding, Tokens};

/// A text without its middle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clipped {
    /// Head, marker line and tail; or the whole text if it fits.
    pub text: String,
    /// Tokens of `text`.
    pub tokens: Tokens,
    /// The bytes of the original that were left out; empty if none were.
    pub omitted: Range<usize>,
}

/// Clips a text to at most `limit` tokens: head and tail, about equally long, with a marker on its
/// own line between them. A text that fits is returned unchanged. `None` if not even the marker
/// fits.
///
/// `marker` returns the marker's text for the byte range that is left out. It is called several
/// times.
pub fn clip_middle(
    encoding: Encoding,
    text: &str,
    limit: Tokens,
    marker: impl Fn(Range<usize>) -> String,
) -> Option<Clipped> {
    let counter = encoding.counter();
    if let Some(tokens) = counter.count_up_to(text, limit) {
        return Some(Clipped {
            text: text.to_owned(),
            tokens,
            omitted: text.len()..text.len(),
        });
    }
    let mut kept_tokens = limit.less(counter.count(&marker(0..text.len())));
    loop {
        let (head, head_tokens) = counter.truncate(text, Tokens::new(kept_tokens.get() / 2));
        let (tail, _) = counter.truncate_start(&text[head.len()..], kept_tokens.less(head_tokens));
        let omitted = head.len()..text.len() - tail.len();
        let clipped = join(head, &marker(omitted.clone()), tail);
        let tokens = counter.count(&clipped);
        if tokens <= limit {
            return Some(Clipped {
                text: clipped,
                tokens,
                omitted,
            });
        }
        if kept_tokens == Tokens::ZERO {
            return None;
        }
        kept_tokens = kept_tokens.less(tokens.less(limit));
    }
}

fn join(head: &str, marker: &str, tail: &str) -> String {
    let above = if head.is_empty() || head.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let below = if tail.is_empty() || tail.starts_with('\n') {
        ""
    } else {
        "\n"
    };
    [head, above, marker, below, tail].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(omitted: Range<usize>) -> String {
        format!(
            "[{} bytes left out, {} to {}]",
            omitted.len(),
            omitted.start,
            omitted.end
        )
    }

    #[test]
    fn a_clip_keeps_head_and_tail_and_fits_the_limit() {
        let line = "one line of a log, 混合 \u{1f469}\u{200d}\u{1f680} 0123456789\n";
        for encoding in Encoding::ALL {
            for text in [
                line.repeat(200),
                "-".repeat(20_000),
                " ".repeat(20_000),
                "中".repeat(9_000),
            ] {
                for limit in [40, 41, 64, 100, 150] {
                    let clip = clip_middle(encoding, &text, Tokens::new(limit), left_out)
                        .expect("the marker fits");
                    assert_eq!(clip.tokens, encoding.counter().count(&clip.text));
                    assert!(
                        clip.tokens.get() <= limit && clip.tokens.get() + 20 >= limit,
                        "{} of {limit}",
                        clip.tokens
                    );
                    let marker = left_out(clip.omitted.clone());
                    assert!(clip.text.starts_with(&text[..clip.omitted.start]));
                    assert!(clip.text.ends_with(&text[clip.omitted.end..]));
                    assert!(
                        clip.text.lines().any(|line| line == marker),
                        "{}",
                        clip.text
                    );
                }
            }
        }
    }

    #[test]
    fn a_text_that_fits_is_not_clipped() {
        let clip = clip_middle(Encoding::O200kBase, "hello world", Tokens::new(2), left_out)
            .expect("it fits");
        assert_eq!(
            clip,
            Clipped {
                text: "hello world".into(),
                tokens: Tokens::new(2),
                omitted: 11..11
            }
        );
    }

    #[test]
    fn a_limit_below_the_marker_gives_nothing() {
        let text = "hello world ".repeat(1000);
        assert_eq!(
            clip_middle(Encoding::O200kBase, &text, Tokens::new(3), left_out),
            None
        );
        assert_eq!(
            clip_middle(Encoding::O200kBase, &text, Tokens::ZERO, |_| "x".into()),
            None
        );
        let bare = clip_middle(Encoding::O200kBase, &text, Tokens::new(1), |_| "x".into())
            .expect("the marker fits");
        assert_eq!((bare.text.as_str(), bare.omitted), ("x", 0..text.len()));
    }
}
