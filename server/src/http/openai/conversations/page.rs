//! Pages of items. Messages are read in one direction, and a page holds the items beyond a place,
//! which may be within a message.

use serde_json::Value;

use crate::http::openai::{
    errors::ApiError,
    ids::ItemId,
    items::{StoredItem, unsupported_value},
    request,
};

/// Items on a page if the request does not say.
const LIMIT_DEFAULT: usize = 20;
/// Most items on a page.
const LIMIT_MAX: usize = 100;

/// The order of the items on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OldestFirst,
    NewestFirst,
}

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

/// Which items a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageAsk {
    pub(super) limit: usize,
    pub(super) order: Order,
    /// The id of the item before the first one. None: the page is the first.
    pub(super) after: Option<String>,
}

impl PageAsk {
    /// Parses the parameters of a query.
    pub(super) fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut ask = Self {
            limit: LIMIT_DEFAULT,
            order: Order::NewestFirst,
            after: None,
        };
        for (name, value) in query {
            match name.as_str() {
                "limit" => ask.limit = parse_limit(value)?,
                "order" => ask.order = parse_order(value)?,
                "after" => ask.after = Some(value.clone()),
                _ => request::check_include_parameter(name, value)?,
            }
        }
        Ok(ask)
    }
}

fn parse_limit(text: &str) -> Result<usize, ApiError> {
    let limit: i64 = text.parse().map_err(|_| {
        let message = "Invalid type for 'limit': expected an integer.";
        ApiError::invalid("limit", Some("invalid_type"), message)
    })?;
    let (code, expected) = match usize::try_from(limit) {
        Ok(limit @ 1..=LIMIT_MAX) => return Ok(limit),
        Ok(limit) if limit > LIMIT_MAX => (
            "integer_above_max_value",
            format!("integer above maximum value. Expected a value <= {LIMIT_MAX}"),
        ),
        Ok(_) | Err(_) => (
            "integer_below_min_value",
            "integer below minimum value. Expected a value >= 1".to_owned(),
        ),
    };
    let message = format!("Invalid 'limit': {expected}, but got {limit} instead.");
    Err(ApiError::invalid("limit", Some(code), message))
}

fn parse_order(text: &str) -> Result<Order, ApiError> {
    match text {
        "asc" => Ok(Order::OldestFirst),
        "desc" => Ok(Order::NewestFirst),
        other => Err(unsupported_value(
            "order".to_owned(),
            other,
            &["asc", "desc"],
        )),
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

    #[test]
    fn a_query_is_parsed_and_its_bounds_are_checked() {
        let parsed = |query: &[(&str, &str)]| {
            let query = query.iter();
            let query = query.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            PageAsk::parse(&query.collect::<Vec<_>>())
        };
        let default = parsed(&[]).expect("is valid");
        assert_eq!((default.limit, default.order), (20, Order::NewestFirst));
        let given = parsed(&[
            ("limit", "100"),
            ("order", "asc"),
            ("after", "x"),
            ("include[]", "reasoning.encrypted_content"),
            ("include[]", "message.input_image.image_url"),
        ]);
        let given = given.expect("is valid");
        assert_eq!(
            (given.limit, given.order, given.after.as_deref()),
            (100, Order::OldestFirst, Some("x"))
        );
        for (name, value, code) in [
            ("limit", "101", "integer_above_max_value"),
            ("limit", "1000", "integer_above_max_value"),
            ("limit", "0", "integer_below_min_value"),
            ("limit", "-1", "integer_below_min_value"),
            ("limit", "x", "invalid_type"),
            ("order", "up", "invalid_value"),
            (
                "include[]",
                "file_search_call.results",
                "unsupported_parameter",
            ),
            ("page", "1", "unknown_parameter"),
        ] {
            let refused = parsed(&[(name, value)]).expect_err("is refused").object();
            assert_eq!(
                (&refused["param"], &refused["code"]),
                (&json!(name), &json!(code)),
                "{value}"
            );
        }
    }
}
