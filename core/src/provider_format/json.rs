//! Tool input as JSON, and a check for base64. Tool input is checked as strictly as the strictest
//! provider checks it, and is passed on byte for byte.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Whether the text is one JSON object that every provider accepts: no lone surrogates, no number
/// out of range, at most 127 levels deep.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<StrictValue>(text).is_ok()
}

/// The text unchanged, to be written into a request; `{}` if it is no JSON.
pub(crate) fn raw(text: &str) -> &RawValue {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str("{}"))
        .expect("{} is JSON")
}

/// A JSON object that holds the text, for tool input that is no object. A blank text gives an empty
/// object.
pub(crate) fn wrapped_in_object(text: &str) -> String {
    if text.trim().is_empty() {
        return "{}".to_owned();
    }
    format!("{{\"input\":{}}}", serde_json::Value::from(text))
}

/// Whether the text is standard base64 with padding.
pub(crate) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && digits.bytes().all(is_digit)
}

/// A value that is parsed completely and discarded. Unlike serde's `IgnoredAny` this also validates
/// strings and numbers.
struct StrictValue;

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictReader)
    }
}

struct StrictReader;

impl<'de> Visitor<'de> for StrictReader {
    type Value = StrictValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<StrictValue, E> {
        Ok(StrictValue)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<StrictValue, E> {
        Ok(StrictValue)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<StrictValue, E> {
        Ok(StrictValue)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<StrictValue, E> {
        Ok(StrictValue)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<StrictValue, E> {
        Ok(StrictValue)
    }

    fn visit_unit<E: Error>(self) -> Result<StrictValue, E> {
        Ok(StrictValue)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<StrictValue, A::Error> {
        while values.next_element::<StrictValue>()?.is_some() {}
        Ok(StrictValue)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<StrictValue, A::Error> {
        while entries.next_entry::<StrictValue, StrictValue>()?.is_some() {}
        Ok(StrictValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_counts_as_one_only_if_every_provider_accepts_it() {
        for good in [
            "{}",
            " {\"a\":1.50e+2}\n",
            "{\"b\":[{\"c\":null}],\"a\":\"\\ud83d\\ude00\"}",
        ] {
            assert!(is_object(good), "{good}");
        }
        for bad in [
            "",
            "[]",
            "1",
            "{",
            "{}{}",
            "{\"a\":\"\\ud83d\"}",
            "{\"a\":1e999}",
            "{\"a\":01}",
            "{'a':1}",
        ] {
            assert!(!is_object(bad), "{bad}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
        assert!(!is_object(&deep));
    }

    #[test]
    fn wrapped_text_is_an_object_that_holds_it() {
        assert_eq!(
            wrapped_in_object("say \"\u{0}\""),
            "{\"input\":\"say \\\"\\u0000\\\"\"}"
        );
        assert_eq!(wrapped_in_object(" \n"), "{}");
        assert!(is_object(&wrapped_in_object("{\"a\":\"\\ud83d\"}")));
    }

    #[test]
    fn only_padded_standard_base64_is_accepted() {
        assert!(is_base64("QUJD") && is_base64("QUI=") && is_base64("QQ=="));
        for bad in ["", "====", "QUJ", "QU-D", "QU=D", "Q===", "QUJD\n"] {
            assert!(!is_base64(bad), "{bad}");
        }
    }
}
