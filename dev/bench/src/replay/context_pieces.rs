//! Splits contexts that the service built into pieces for the cache meter.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use anneal_proto::v1::{ContextMessage, Part, part::Part as Content};

use super::meter::Piece;

/// Splits the contexts of one conversation. A message that grew becomes several pieces: if a new
/// message is joined to the last one of the previous context, as repairs do with two messages of
/// the same role, a provider's cache still contains the beginning of the joined message.
#[derive(Default)]
pub(super) struct PieceSplitter {
    /// The last message of the previous context: its index, its text and its piece.
    end: Option<(usize, String, Piece)>,
    /// The pieces of messages that grew, by the identity of the whole message.
    grown: HashMap<u64, Vec<Piece>>,
}

impl PieceSplitter {
    /// Splits a context into pieces.
    pub(super) fn pieces(&mut self, context: &[ContextMessage]) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(context.len());
        let mut end = None;
        for (index, message) in context.iter().enumerate() {
            let text = text(message);
            let whole = Piece {
                identity: identity(&text),
                tokens: message.tokens,
            };
            if let Some((_, earlier_text, earlier_piece)) =
                self.end.as_ref().filter(|(place, ..)| *place == index)
                && text.len() > earlier_text.len()
                && text.starts_with(earlier_text.as_str())
            {
                let mut pieces_of_whole = self
                    .grown
                    .get(&earlier_piece.identity)
                    .cloned()
                    .unwrap_or_else(|| vec![*earlier_piece]);
                let rest_tokens = whole.tokens.saturating_sub(earlier_piece.tokens);
                pieces_of_whole.push(Piece {
                    identity: identity(&text[earlier_text.len()..]),
                    tokens: rest_tokens,
                });
                self.grown.insert(whole.identity, pieces_of_whole);
            }
            match self.grown.get(&whole.identity) {
                Some(pieces_of_whole) => pieces.extend(pieces_of_whole),
                None => pieces.push(whole),
            }
            end = Some((index, text, whole));
        }
        self.end = end;
        pieces
    }
}

fn identity(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The role and the parts of a message as one text, by which messages are compared. Signatures and
/// the media of results are left out.
fn text(message: &ContextMessage) -> String {
    let parts = message.parts.iter().map(part_text);
    format!(
        "{}: {}",
        message.role().as_str_name(),
        parts.collect::<Vec<_>>().join("\n\n")
    )
}

fn part_text(part: &Part) -> String {
    match &part.part {
        Some(Content::Text(part)) => part.text.clone(),
        Some(Content::ToolUse(part)) => format!("{} {} {}", part.id, part.name, part.input),
        Some(Content::ToolResult(part)) => {
            format!("{} {} {}", part.tool_use_id, part.is_error, part.text)
        }
        Some(Content::Media(part)) => part.uri.clone(),
        Some(Content::Reasoning(part)) => part.text.clone(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use anneal_transcripts::{pb, text};

    use super::*;
    use crate::replay::meter::{CacheUsage, Meter};

    fn message(role: pb::Role, said: &str, tokens: u64) -> ContextMessage {
        let parts = text(role, said).parts;
        ContextMessage {
            role: role.into(),
            parts,
            tokens,
            ..Default::default()
        }
    }

    #[test]
    fn a_message_that_grew_at_the_end_is_not_a_break() {
        let (user, assistant) = (pb::Role::User, pb::Role::Assistant);
        let (mut meter, mut splitter) = (Meter::default(), PieceSplitter::default());
        let first = vec![message(user, "one", 10)];
        let second = vec![message(user, "one\n\ntwo", 15)];
        let third = vec![message(user, "one\n\ntwo\n\nthree", 21)];
        let fourth = vec![
            third[0].clone(),
            message(assistant, "yes", 3),
            message(user, "four", 5),
        ];
        for context in [first, second, third, fourth] {
            meter.record_call(splitter.pieces(&context));
        }
        assert_eq!(
            meter.usage(),
            CacheUsage {
                calls: 4,
                sent: 10 + 15 + 21 + 29,
                cached: 10 + 15 + 21,
                ..CacheUsage::default()
            }
        );
    }

    #[test]
    fn a_message_that_changed_is_a_break() {
        let user = pb::Role::User;
        let (mut meter, mut splitter) = (Meter::default(), PieceSplitter::default());
        meter.record_call(splitter.pieces(&[message(user, "one", 10), message(user, "two", 5)]));
        meter.record_call(
            splitter.pieces(&[message(user, "[Summary] one", 3), message(user, "two", 5)]),
        );
        assert_eq!(
            meter.usage(),
            CacheUsage {
                calls: 2,
                sent: 23,
                breaks: 1,
                ..CacheUsage::default()
            }
        );
    }
}
