//! The parameters of a query. Clients write a list as `include[]=a&include[]=b`.

use super::fields::not_one_of;
use crate::http::openai::{errors::ApiError, request::check_include_parameter};

/// A query, as its pairs.
pub(super) type Pairs = axum::extract::Query<Vec<(String, String)>>;

/// Most items of a page, and those of a page without `limit`.
const PAGE_ITEMS: (usize, usize) = (100, 20);

/// What a retrieval asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RetrieveQuery {
    /// Whether the events are sent, instead of the object.
    pub(super) stream: bool,
    /// Only events after this one are sent.
    pub(super) starting_after: Option<u64>,
}

/// Which items of a list are wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageQuery {
    pub(super) limit: usize,
    pub(super) newest_first: bool,
    /// The item before the page.
    pub(super) after: Option<String>,
}

impl RetrieveQuery {
    /// Reads a query.
    pub(super) fn parse(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let mut query = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "stream" => query.stream = parse_flag("stream", &value)?,
                "starting_after" => {
                    query.starting_after = Some(parse_number("starting_after", &value)?);
                }
                "include_obfuscation" => {
                    if parse_flag("include_obfuscation", &value)? {
                        return Err(ApiError::unsupported_parameter(
                            "include_obfuscation",
                            "Unsupported parameter: 'include_obfuscation' must be false.",
                        ));
                    }
                }
                _ => check_include_parameter(&name, &value)?,
            }
        }
        if query.starting_after.is_some() && !query.stream {
            return Err(ApiError::invalid(
                "starting_after",
                Some("invalid_value"),
                "'starting_after' needs 'stream=true'.",
            ));
        }
        Ok(query)
    }
}

impl PageQuery {
    /// Reads a query.
    pub(super) fn parse(pairs: Vec<(String, String)>) -> Result<Self, ApiError> {
        let (most, default) = PAGE_ITEMS;
        let mut query = Self {
            limit: default,
            newest_first: true,
            after: None,
        };
        for (name, value) in pairs {
            match name.as_str() {
                "limit" => {
                    let limit = parse_number("limit", &value)?;
                    let (code, word) = match limit {
                        0 => ("integer_below_min_value", "below minimum value"),
                        limit if limit > most as u64 => {
                            ("integer_above_max_value", "above maximum value")
                        }
                        limit => {
                            query.limit = limit as usize;
                            continue;
                        }
                    };
                    return Err(ApiError::invalid(
                        "limit",
                        Some(code),
                        format!(
                            "Invalid 'limit': integer {word}. Expected a value from 1 to {most}, \
                             but got {limit} instead."
                        ),
                    ));
                }
                "order" => {
                    query.newest_first = match value.as_str() {
                        "asc" => false,
                        "desc" => true,
                        _ => return Err(not_one_of("order", &value, &["asc", "desc"])),
                    };
                }
                "after" => query.after = Some(value),
                _ => check_include_parameter(&name, &value)?,
            }
        }
        Ok(query)
    }
}

fn parse_flag(name: &str, value: &str) -> Result<bool, ApiError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(not_one_of(name, value, &["true", "false"])),
    }
}

fn parse_number(name: &str, value: &str) -> Result<u64, ApiError> {
    let number = value
        .parse()
        .ok()
        .filter(|number| i64::try_from(*number).is_ok());
    number.ok_or_else(|| {
        ApiError::invalid(
            name,
            Some("invalid_type"),
            format!("Invalid type for '{name}': expected an integer of at least 0."),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let pairs = query.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_retrieval_is_read() {
        let query = RetrieveQuery::parse(pairs(&[
            ("stream", "true"),
            ("starting_after", "41"),
            ("include[]", "reasoning.encrypted_content"),
            ("include_obfuscation", "false"),
        ]));
        let expected = RetrieveQuery {
            stream: true,
            starting_after: Some(41),
        };
        assert_eq!(query, Ok(expected));
        for (name, value) in [
            ("stream", "1"),
            ("starting_after", "-1"),
            ("starting_after", "3"),
            ("include_obfuscation", "true"),
            ("include[]", "file_search_call.results"),
            ("other", "x"),
        ] {
            assert!(
                RetrieveQuery::parse(pairs(&[(name, value)])).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_page_is_read() {
        let query = PageQuery::parse(pairs(&[
            ("limit", "7"),
            ("order", "asc"),
            ("after", "msg_1"),
        ]));
        let expected = PageQuery {
            limit: 7,
            newest_first: false,
            after: Some("msg_1".into()),
        };
        assert_eq!(query, Ok(expected));
        let error = PageQuery::parse(pairs(&[("limit", "1000")])).err();
        let error = error.expect("is refused");
        assert_eq!(error.code(), Some("integer_above_max_value"));
        assert_eq!(error.object()["param"], "limit");
    }
}
