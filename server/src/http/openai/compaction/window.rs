//! What a compaction leaves of a conversation: the messages of the user and of the application, and
//! one compaction for everything else.

use anneal_proto::v1 as pb;
use serde_json::Value;

use crate::http::openai::{
    ids::{ItemKind, random_item_id},
    items::{Compaction, items_of_parts},
};

/// A conversation that is to be compacted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Window {
    /// The summary of the last compaction, with the messages of others than the user before it.
    pub(super) previous: Option<String>,
    /// The messages that the new summary reads. Messages of the user that stand before the last
    /// compaction are not among them: its summary has read them.
    pub(super) messages: Vec<pb::NewMessage>,
    /// The messages that stay, of the user and of the application.
    pub(super) kept: Vec<pb::NewMessage>,
    /// How many of `messages` stand before the last compaction.
    replaced: usize,
}

impl Window {
    /// The window of these messages. A message may have been made from a compaction.
    pub(super) fn of(messages: Vec<pb::NewMessage>) -> Self {
        let mut window = Self::default();
        for message in messages {
            if let Some(compaction) = Compaction::of_message(&message.parts, &message.metadata) {
                window.add_compaction(compaction.summary());
                continue;
            }
            if matches!(message.role(), pb::Role::User | pb::Role::System) {
                window.kept.push(message.clone());
            }
            window.messages.push(message);
        }
        window
    }

    /// A compaction replaces what stands before it. Its summary follows an earlier one, which the
    /// sender has not left out.
    fn add_compaction(&mut self, summary: &str) {
        let others = |message: &pb::NewMessage| {
            matches!(message.role(), pb::Role::Assistant | pb::Role::Tool)
        };
        // What a model or a tool has said before it was sent beside the compaction, so it is read.
        // Only such messages stand before the compaction before this one.
        let newer = self.messages.split_off(self.replaced);
        self.messages.extend(newer.into_iter().filter(others));
        self.replaced = self.messages.len();
        match &mut self.previous {
            Some(previous) => {
                previous.push_str("\n\n");
                previous.push_str(summary);
            }
            None => self.previous = Some(summary.to_owned()),
        }
    }

    /// Whether nothing was said.
    pub(super) const fn is_empty(&self) -> bool {
        self.previous.is_none() && self.messages.is_empty()
    }
}

/// The items of a compacted conversation, with new ids.
pub(super) fn show(kept: &[pb::NewMessage], compaction: &Compaction) -> Vec<Value> {
    let kept = kept.iter();
    let items = kept.flat_map(|message| items_of_parts(&mut random_item_id, message));
    let mut items: Vec<Value> = items.collect();
    items.push(compaction.item(&random_item_id(ItemKind::Compaction)));
    items
}

#[cfg(test)]
mod tests {
    use anneal_proto::convert::message::text_message;
    use pb::Role::{Assistant, System, User};

    use super::*;
    use crate::http::openai::items::SealKey;

    fn compaction(summary: &str) -> Compaction {
        Compaction::seal(summary.to_owned(), "m".to_owned(), &SealKey([1; 32]))
    }

    #[test]
    fn messages_of_the_user_and_the_application_stay() {
        let messages = vec![
            text_message(System, "Be brief."),
            text_message(User, "Hi."),
            text_message(Assistant, "Hello."),
        ];
        let window = Window::of(messages.clone());
        assert_eq!(window.kept, messages[..2]);
        assert_eq!(window.messages, messages);
        assert_eq!(window.previous, None);
        let items = show(&window.kept, &compaction("All is well."));
        let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str()).collect();
        assert_eq!(
            kinds,
            [Some("message"), Some("message"), Some("compaction")]
        );
        assert_eq!(items[1]["role"], "user");
    }

    #[test]
    fn a_compaction_is_continued_by_the_next_one() {
        let window = Window::of(vec![
            text_message(User, "one"),
            text_message(Assistant, "two"),
            compaction("S").message(),
            text_message(User, "three"),
            text_message(Assistant, "four"),
        ]);
        assert_eq!(window.previous.as_deref(), Some("S"));
        let read: Vec<_> = window.messages.iter().map(pb::NewMessage::role).collect();
        assert_eq!(read, [Assistant, User, Assistant]);
        assert_eq!(window.kept.len(), 2);
        let thrice = Window::of(vec![
            text_message(User, "one"),
            text_message(Assistant, "two"),
            compaction("S").message(),
            compaction("T").message(),
            text_message(System, "three"),
            text_message(Assistant, "four"),
            compaction("U").message(),
            text_message(User, "five"),
        ]);
        let read: Vec<_> = thrice.messages.iter().map(pb::NewMessage::role).collect();
        assert_eq!(read, [Assistant, Assistant, User]);
        assert_eq!(thrice.previous.as_deref(), Some("S\n\nT\n\nU"));
        let both = Window::of(vec![compaction("S").message(), compaction("T").message()]);
        assert_eq!(both.previous.as_deref(), Some("S\n\nT"));
        assert!(!both.is_empty() && Window::default().is_empty());
    }
}
