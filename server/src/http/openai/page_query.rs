//! Pages of lists: which items a query asks for, and the list of an answer. Clients write a list in
//! a query as `include[]=a&include[]=b`.

use serde_json::{Value, json};

use super::{errors::ApiError, fields::unsupported_value, request};

/// Items on a page if the request does not say.
const LIMIT_DEFAULT: usize = 20;
/// Most items on a page.
const LIMIT_MAX: usize = 100;

/// The order of the items on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http::openai) enum Order {
    OldestFirst,
    NewestFirst,
}

/// Which items a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http::openai) struct PageAsk {
    pub(in crate::http::openai) limit: usize,
    pub(in crate::http::openai) order: Order,
    /// The id of the item before the first one. None: the page is the first.
    pub(in crate::http::openai) after: Option<String>,
}

impl PageAsk {
    /// Parses the parameters of a query.
    pub(in crate::http::openai) fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
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
        other => Err(unsupported_value("order", other, &["asc", "desc"])),
    }
}

/// A list of items, as an answer has it.
pub(in crate::http::openai) fn show_list(items: &[Value], has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first, last) = (id(items.first()), id(items.last()));
    json!({
        "object": "list",
        "data": items,
        "first_id": first,
        "last_id": last,
        "has_more": has_more,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_empty_list_has_no_first_and_no_last_item() {
        let empty = show_list(&[], false);
        assert_eq!(
            (&empty["first_id"], &empty["last_id"]),
            (&Value::Null, &Value::Null)
        );
        let list = show_list(&[json!({"id": "a"}), json!({"id": "b"})], true);
        assert_eq!(
            (&list["first_id"], &list["last_id"]),
            (&json!("a"), &json!("b"))
        );
    }
}
