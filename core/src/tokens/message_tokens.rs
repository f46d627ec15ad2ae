//! Token counts and estimates of whole messages, media included. The texts are counted by `counter`
//! and estimated by `text_estimate`.

use super::{Encoding, Tokens};
use crate::message::{Media, Message, Part};

/// Tokens that a provider adds to each message for role and delimiters. OpenAI's chat format takes
/// 3 tokens per message and about 1 for the role (OpenAI cookbook, "How to count tokens"). Other
/// providers do not publish their numbers.
pub const FRAMING_PER_MESSAGE: Tokens = Tokens::new(4);

/// Tokens of a picture or file whose cost the caller did not state. A picture of 1,024 x 1,024
/// costs 765 at OpenAI and about 1,400 at Anthropic.
pub const MEDIA_TOKENS: Tokens = Tokens::new(1_000);

/// Exact content tokens of a message: the sum over its parts, without framing
/// ([`FRAMING_PER_MESSAGE`]).
///
/// Text and reasoning count as they are. A tool call counts its name and its input, a tool result
/// its text and its media. Media count what the caller stated, else [`MEDIA_TOKENS`]. Three things
/// do not count: signatures of reasoning, because the provider bills the reasoning and not its
/// ciphertext; metadata, because it is never sent; and ids of calls, because each provider writes
/// them in its own form.
pub fn count_message(encoding: Encoding, message: &Message) -> Tokens {
    count_parts(encoding, &message.parts)
}

/// [`count_message`] for parts.
pub fn count_parts(encoding: Encoding, parts: &[Part]) -> Tokens {
    let counter = encoding.counter();
    countable_content(parts)
        .map(|content| content.tokens(|text| counter.count(text)))
        .sum()
}

/// [`count_message`]; `None` as soon as `keep_going` returns false, as in
/// [`count_while`](super::Counter::count_while).
pub fn count_message_while(
    encoding: Encoding,
    message: &Message,
    keep_going: &dyn Fn() -> bool,
) -> Option<Tokens> {
    let counter = encoding.counter();
    let mut tokens = Tokens::ZERO;
    for content in countable_content(&message.parts) {
        tokens += match content {
            Content::Text(text) => counter.count_while(text, keep_going)?,
            Content::Media(media) => media_tokens(media),
        };
    }
    Some(tokens)
}

impl Encoding {
    /// An estimate of [`count_message`] in this encoding. The bounds of [`Encoding::estimate`] hold
    /// for each part.
    pub fn estimate_message(self, message: &Message) -> Tokens {
        countable_content(&message.parts)
            .map(|content| content.tokens(|text| self.estimate(text)))
            .sum()
    }
}

/// Content of a message that costs tokens.
enum Content<'m> {
    Text(&'m str),
    Media(&'m Media),
}

impl Content<'_> {
    fn tokens(&self, of_text: impl Fn(&str) -> Tokens) -> Tokens {
        match self {
            Self::Text(text) => of_text(text),
            Self::Media(media) => media_tokens(media),
        }
    }
}

fn countable_content(parts: &[Part]) -> impl Iterator<Item = Content<'_>> {
    parts.iter().flat_map(|part| {
        let (texts, media): ([&str; 2], &[Media]) = match part {
            Part::Text { text } | Part::Reasoning { text, .. } => ([text, ""], &[]),
            Part::ToolUse { name, input, .. } => ([name, input], &[]),
            Part::ToolResult { text, media, .. } => ([text, ""], media),
            Part::Media(media) => (["", ""], std::slice::from_ref(media)),
        };
        let texts = texts
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(Content::Text);
        texts.chain(media.iter().map(Content::Media))
    })
}

fn media_tokens(media: &Media) -> Tokens {
    if media.tokens == 0 {
        MEDIA_TOKENS
    } else {
        Tokens::new(media.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Role;

    fn message(parts: Vec<Part>) -> Message {
        Message {
            role: Role::Assistant,
            parts,
            metadata: [("label".into(), "not counted ".repeat(99))].into(),
        }
    }

    fn picture(tokens: u64) -> Media {
        Media {
            uri: "s3://pictures/1".into(),
            media_type: "image/png".into(),
            bytes: 9,
            tokens,
        }
    }

    fn every_part() -> Message {
        message(vec![
            Part::Text {
                text: "hello world".into(),
            },
            Part::Reasoning {
                text: "hello world".into(),
                signature: "c2lnbmF0dXJl".repeat(99),
                provider: String::new(),
                redacted: false,
            },
            Part::ToolUse {
                id: "call_0123456789".into(),
                name: "hello".into(),
                input: " world".into(),
            },
            Part::ToolResult {
                id: "call_0123456789".into(),
                text: "hello world".into(),
                is_error: false,
                media: vec![picture(7)],
            },
            Part::Media(picture(0)),
        ])
    }

    #[test]
    fn a_message_counts_its_content_and_nothing_else() {
        for encoding in Encoding::ALL {
            // Four parts of two tokens, a picture that states 7, and one that states none.
            let expected = Tokens::new(4 * 2 + 7) + MEDIA_TOKENS;
            assert_eq!(count_message(encoding, &every_part()), expected);
            assert_eq!(
                count_message_while(encoding, &every_part(), &|| true),
                Some(expected)
            );
            assert_eq!(
                count_message_while(encoding, &every_part(), &|| false),
                None
            );
            assert_eq!(count_message(encoding, &message(vec![])), Tokens::ZERO);
        }
    }

    #[test]
    fn the_estimate_of_a_message_is_close_to_its_count() {
        let exact = count_message(Encoding::O200kBase, &every_part());
        let estimated = Encoding::O200kBase.estimate_message(&every_part());
        assert!(
            estimated >= exact && estimated <= exact + Tokens::new(8),
            "{estimated} for {exact}"
        );
    }
}
