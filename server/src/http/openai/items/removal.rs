//! One item is removed from its message.

use anneal_proto::v1 as pb;

use super::{
    labels::RemovedItems,
    output::{StoredItem, stored_items},
};

/// How an item is removed from its message.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::http) enum Removal {
    /// The item is all of the message, which is withdrawn.
    Withdraw,
    /// The message gets this content, without the item.
    Edit(pb::NewMessage),
}

/// Plans how to remove this item of the message.
pub(in crate::http) fn plan_removal(message: &pb::Message, item: &StoredItem) -> Removal {
    if stored_items(item.id.conversation, message).len() <= 1 {
        return Removal::Withdraw;
    }
    let mut removed = RemovedItems::read(&message.metadata);
    removed.add(item.id.index, &item.parts);
    let mut metadata = message.metadata.clone();
    removed.write(&mut metadata);
    let parts = message.parts.iter().enumerate();
    let kept = parts.filter(|(place, _)| !item.parts.contains(place));
    Removal::Edit(pb::NewMessage {
        role: message.role,
        parts: kept.map(|(_, part)| part.clone()).collect(),
        metadata,
    })
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::ConversationId;
    use anneal_proto::v1::part::Part;
    use uuid::Uuid;

    use super::*;

    const CONVERSATION: ConversationId = ConversationId(Uuid::nil());

    fn answer() -> pb::Message {
        let text = |text: &str| Part::Text(pb::TextPart { text: text.into() });
        let call = |id: &str| {
            Part::ToolUse(pb::ToolUsePart {
                id: id.into(),
                name: "look".into(),
                input: "{}".into(),
            })
        };
        let parts = [
            text("a"),
            text("b"),
            call("c"),
            text("d"),
            call("e"),
            text("f"),
        ];
        pb::Message {
            message_id: 1,
            role: pb::Role::Assistant.into(),
            parts: parts.map(|part| pb::Part { part: Some(part) }).to_vec(),
            metadata: [("mine".to_owned(), "x".to_owned())].into(),
            ..pb::Message::default()
        }
    }

    #[test]
    fn in_any_order_of_removals_the_other_items_keep_their_ids_and_contents() {
        let all = stored_items(CONVERSATION, &answer());
        assert_eq!(all.len(), 5);
        for order in [
            [0, 1, 2, 3],
            [1, 3, 0, 2],
            [3, 1, 4, 2],
            [2, 1, 0, 4],
            [4, 3, 2, 1],
        ] {
            let mut message = answer();
            let mut expected: Vec<_> = all.iter().map(|item| item.value.clone()).collect();
            for index in order {
                let items = stored_items(CONVERSATION, &message);
                let item = items.iter().find(|item| item.id.index == index);
                let item = item.expect("was not removed");
                let Removal::Edit(new) = plan_removal(&message, item) else {
                    panic!("others are left");
                };
                assert_eq!(new.metadata["mine"], "x");
                message.parts = new.parts;
                message.metadata = new.metadata;
                expected.retain(|value| *value != item.value);
                let left = stored_items(CONVERSATION, &message);
                let left: Vec<_> = left.into_iter().map(|item| item.value).collect();
                assert_eq!(left, expected, "{order:?} after {index}");
            }
            let last = stored_items(CONVERSATION, &message);
            assert_eq!(plan_removal(&message, &last[0]), Removal::Withdraw);
        }
    }
}
