//! The parameters of a retrieval.

use crate::http::openai::{
    errors::ApiError, fields::unsupported_value, request::check_include_parameter,
};

/// What a retrieval asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RetrieveQuery {
    /// Whether the events are sent, instead of the object.
    pub(super) stream: bool,
    /// Only events after this one are sent.
    pub(super) starting_after: Option<u64>,
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

fn parse_flag(name: &str, value: &str) -> Result<bool, ApiError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(unsupported_value(name, value, &["true", "false"])),
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
}
