//! Pages of items. Messages are read in one direction, and a page holds the items beyond a place,
//! which may be within a message.

use serde_json::Value;

use crate::http::openai::{ids::ItemId, items::StoredItem, page_query::Order};

/// The place of an item in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) message: i64,
    index: u32,
}

impl Place {
    /// The place of the item with this id.
    pub(super) const fn of(id: &ItemId) -> Self {
        Self {
            message: id.message.0,
            index: id.index,
        }
    }
}

/// A page that is being filled.
#[derive(Debug)]
pub(super) struct Page {
    order: Order,
    limit: usize,
    /// Only items beyond this place are on the page.
    after: Option<Place>,
    items: Vec<Value>,
    has_more: bool,
}

impl Page {
    pub(super) const fn new(order: Order, limit: usize, after: Option<Place>) -> Self {
        Self {
            order,
            limit,
            after,
            items: Vec::new(),
            has_more: false,
        }
    }

    /// Adds the items of the next message in this page's direction. They come in the order of the
    /// message.
    pub(super) fn add(&mut self, mut items: Vec<StoredItem>) {
        if self.order == Order::NewestFirst {
            items.reverse();
        }
        for item in items {
            let place = Place::of(&item.id);
            let is_beyond = self.after.is_none_or(|after| match self.order {
                Order::OldestFirst => place > after,
                Order::NewestFirst => place < after,
            });
            if !is_beyond {
                continue;
            }
            if self.items.len() == self.limit {
                self.has_more = true;
                return;
            }
            self.items.push(item.value);
        }
    }

    /// Whether no item was added that belongs on the page.
    pub(super) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The items, and whether there are more. `has_more_messages`: not all messages were read.
    pub(super) fn finish(self, has_more_messages: bool) -> (Vec<Value>, bool) {
        (self.items, self.has_more || has_more_messages)
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::{caller::ConversationId, message::MessageId};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::http::openai::ids::{CHECKPOINT_INDEX, ItemKind};

    fn item(message: i64, index: u32) -> StoredItem {
        StoredItem {
            id: ItemId {
                kind: ItemKind::Message,
                conversation: ConversationId(Uuid::nil()),
                message: MessageId(message),
                index,
            },
            parts: 0..1,
            value: json!([message, index]),
        }
    }

    /// Messages 1, 3 and 4 with the items that are left of them; 2 is withdrawn.
    fn messages() -> Vec<Vec<StoredItem>> {
        vec![
            vec![item(1, 0), item(1, 1), item(1, 2)],
            vec![item(3, 1)],
            vec![item(4, 0), item(4, 2)],
        ]
    }

    #[test]
    fn pages_of_any_size_hold_each_item_once_in_both_orders() {
        let expected: Vec<Value> = messages()
            .into_iter()
            .flatten()
            .map(|item| item.value)
            .collect();
        for order in [Order::OldestFirst, Order::NewestFirst] {
            for limit in 1..8 {
                let (mut seen, mut after) = (Vec::new(), None);
                loop {
                    let mut page = Page::new(order, limit, after);
                    let mut messages = messages();
                    if order == Order::NewestFirst {
                        messages.reverse();
                    }
                    for items in messages {
                        page.add(items);
                    }
                    let (items, has_more) = page.finish(false);
                    assert!(items.len() <= limit);
                    seen.extend(items);
                    if !has_more {
                        break;
                    }
                    let last = seen.last().expect("a page with more has items");
                    after = Some(Place {
                        message: last[0].as_i64().expect("an id"),
                        index: last[1].as_u64().expect("an index") as u32,
                    });
                }
                if order == Order::NewestFirst {
                    seen.reverse();
                }
                assert_eq!(seen, expected, "{order:?} {limit}");
            }
        }
    }

    #[test]
    fn an_item_that_is_gone_still_marks_a_place() {
        for (order, first) in [
            (Order::OldestFirst, json!([4, 2])),
            (Order::NewestFirst, json!([4, 0])),
        ] {
            let mut page = Page::new(
                order,
                1,
                Some(Place {
                    message: 4,
                    index: 1,
                }),
            );
            page.add(vec![item(4, 0), item(4, 2)]);
            assert_eq!(page.finish(false).0, [first]);
        }
    }

    #[test]
    fn a_checkpoint_stands_after_the_items_of_its_last_message() {
        let id = item(4, CHECKPOINT_INDEX).id;
        assert!(Place::of(&id) > Place::of(&item(4, 2).id));
        assert!(Place::of(&id) < Place::of(&item(5, 0).id));
    }
}
