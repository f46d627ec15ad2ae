//! Removes what gateways and client libraries put before a provider's message. Only known wrappings
//! are removed, so that a quotation within an error stays a quotation.

use serde_json::{Deserializer, Value};

/// Most bytes of a message before the JSON that it quotes.
const MAX_QUOTING_BYTES: usize = 120;

/// Words before the JSON of an error that another server has answered. Words that end with `error`
/// or `exception` are such words, too.
const REPORTS: [&str; 8] = [
    "failed", "rejected", "returned", "response", "upstream", "provider", "status", "http",
];

/// Words before JSON that the caller may have sent.
#[rustfmt::skip]
const ECHOES: [&str; 25] = [
    "parse", "parsing", "json", "invalid", "unexpected", "decode", "decoding", "content", "input",
    "message", "messages", "text", "role", "tool", "argument", "arguments", "function", "user",
    "value", "prompt", "near", "wrote", "said", "body", "payload",
];

/// Most nested wrappings that are removed.
const MAX_LAYERS: usize = 8;

/// Prefixes that say nothing about the error. Of the one that does not end with `: `, only
/// `Invalid request: ` is removed.
const PREFIXES: [&str; 8] = [
    "The model returned the following errors: ",
    "Input validation error: ",
    "Provider returned error: ",
    "Upstream error: ",
    "Codex error: ",
    "API Error: ",
    "Invalid request: Your request exceeded",
    "Error: ",
];

/// A message without its wrappings.
#[derive(Debug, PartialEq)]
pub(super) struct Unwrapped<'t> {
    /// Names of errors in the wrappings, such as `RateLimitError`.
    pub(super) codes: Vec<&'t str>,
    pub(super) inner: Inner<'t>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Inner<'t> {
    Words(&'t str),
    Json(Value),
}

/// Removes the wrappings at the start of a message.
pub(super) fn unwrap_message(message: &str) -> Unwrapped<'_> {
    let mut words = message.trim();
    let mut codes = Vec::new();
    for _ in 0..MAX_LAYERS {
        // Python prints bytes as `b'…'`.
        let bare = words
            .strip_prefix("b'")
            .or_else(|| words.strip_prefix("b\""))
            .unwrap_or(words);
        if bare.starts_with(['{', '['])
            && let Some(value) = first_json(bare)
        {
            return Unwrapped {
                codes,
                inner: Inner::Json(value),
            };
        }
        let Some(inner) = unwrap_layer(words, &mut codes) else {
            break;
        };
        words = inner;
    }
    Unwrapped {
        codes,
        inner: Inner::Words(words),
    }
}

/// The JSON that a message quotes after words such as `Upstream error (500): `; None if the caller
/// may have sent it.
pub(super) fn quoted_json(message: &str) -> Option<Value> {
    let marks = ['{', '[', '"', '\'', '`', '\u{2018}', '\u{201c}'];
    let start = message
        .find(marks)
        .filter(|start| *start <= MAX_QUOTING_BYTES)?;
    let (before, json) = message.split_at(start);
    if !before.ends_with(' ') || !json.starts_with(['{', '[']) {
        return None;
    }
    let before = before.to_ascii_lowercase();
    let mut words = before.split(|next: char| !next.is_alphanumeric());
    let is_report = |word: &str| {
        word.ends_with("error") || word.ends_with("exception") || REPORTS.contains(&word)
    };
    let is_echo = words.clone().any(|word| ECHOES.contains(&word));
    (!is_echo && words.any(is_report))
        .then(|| first_json(json))
        .flatten()
}

/// The JSON object or list at the start of a text. A log prefix such as `[json.exception]` is not
/// JSON.
fn first_json(text: &str) -> Option<Value> {
    let first = Deserializer::from_str(text).into_iter::<Value>().next()?;
    first
        .ok()
        .filter(|value| value.is_object() || value.is_array())
}

/// Removes one wrapping; None if there is none.
fn unwrap_layer<'t>(words: &'t str, codes: &mut Vec<&'t str>) -> Option<&'t str> {
    for prefix in PREFIXES {
        if let Some(inner) = after(prefix, words) {
            // One prefix ends with the provider's own words, "Your request exceeded". They stay.
            return Some(if prefix.ends_with(": ") {
                inner
            } else {
                &words["Invalid request: ".len()..]
            });
        }
    }
    python_repr(words)
        .or_else(|| mantle(words))
        .or_else(|| botocore(words, codes))
        .or_else(|| dashscope(words))
        .or_else(|| numbered(words))
        .or_else(|| named(words, codes))
}

/// `{'error': {'message': "…` as Python prints it.
fn python_repr(words: &str) -> Option<&str> {
    let inner = after("{'error': {'message': ", words).or_else(|| after("{'message': ", words))?;
    inner.strip_prefix(['\'', '"'])
}

/// `Mantle streaming error for requestId ID: "…`
fn mantle(words: &str) -> Option<&str> {
    let (id, inner) = after("Mantle streaming error for requestId ", words)?.split_once(": \"")?;
    is_name(id).then_some(inner)
}

/// `An error occurred (ValidationException) when calling the Converse operation: …`
fn botocore<'t>(words: &'t str, codes: &mut Vec<&'t str>) -> Option<&'t str> {
    let (code, rest) = after("An error occurred (", words)?.split_once(") when calling the ")?;
    let (operation, inner) = rest.split_once(": ")?;
    let (operation, retries) = operation.split_once(" operation")?;
    let inner = if retries.is_empty() {
        inner
    } else {
        inner.split_once("): ")?.1
    };
    (is_name(code) && is_name(operation)).then(|| {
        codes.push(code);
        inner
    })
}

/// `<400> InternalError.Algo.InvalidParameter: …`
fn dashscope(words: &str) -> Option<&str> {
    let (status, rest) = words.strip_prefix('<')?.split_once("> ")?;
    let (name, inner) = rest.split_once(": ")?;
    (is_status(status) && is_name(name)).then_some(inner)
}

/// `Error code: 400 - …`, `5021: …`, `400 Bad Request: …`, `400 {…`
fn numbered(words: &str) -> Option<&str> {
    if let Some((code, inner)) =
        after("Error code: ", words).and_then(|rest| rest.split_once(" - "))
    {
        return is_status(code).then_some(inner);
    }
    let digits = words.bytes().take_while(u8::is_ascii_digit).count();
    let rest = words.get(digits..).filter(|_| (3..=4).contains(&digits))?;
    let inner = rest
        .strip_prefix(": ")
        .or_else(|| rest.strip_prefix(" Bad Request: "));
    inner.or_else(|| rest.strip_prefix(' ').filter(|rest| rest.starts_with('{')))
}

/// `litellm.BadRequestError: …`, `OpenAIException - …`
fn named<'t>(words: &'t str, codes: &mut Vec<&'t str>) -> Option<&'t str> {
    let end = words.find([':', ' '])?;
    let (name, rest) = words.split_at(end);
    let inner = rest
        .strip_prefix(": ")
        .or_else(|| rest.strip_prefix(" - "))?;
    let error = name.rsplit('.').next().unwrap_or(name);
    let is_error = error.ends_with("Error") || error.ends_with("Exception");
    (is_error && is_name(name)).then(|| {
        codes.push(error);
        inner
    })
}

/// The text after a prefix, whatever the case of its ASCII letters; None if it begins otherwise.
fn after<'t>(prefix: &str, words: &'t str) -> Option<&'t str> {
    let start = words.get(..prefix.len())?;
    start
        .eq_ignore_ascii_case(prefix)
        .then(|| &words[prefix.len()..])
}

fn is_status(text: &str) -> bool {
    text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(message: &str) -> String {
        match unwrap_message(message).inner {
            Inner::Words(words) => words.to_owned(),
            Inner::Json(value) => value.to_string(),
        }
    }

    #[test]
    fn wrappings_of_gateways_are_removed() {
        for wrapped in [
            "The model returned the following errors: too long",
            "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too long",
            "<400> InternalError.Algo.InvalidParameter: too long",
            "An error occurred (ValidationException) when calling the Converse operation (reached max retries: 4): too long",
            "AiError: AiError: too long",
            "5021: too long",
            "400 Bad Request: too long",
        ] {
            assert_eq!(words(wrapped), "too long", "{wrapped}");
        }
        assert!(
            words("Error code: 400 - {'error': {'message': \"too long\", 'type': 'x'}}")
                .starts_with("too long")
        );
        assert!(
            words("Mantle streaming error for requestId x-1: \"too long\"").starts_with("too long")
        );
        assert_eq!(words("AnthropicException - b'{\"a\":1}' more"), "{\"a\":1}");
        assert_eq!(
            words("Invalid request: Your request exceeded model"),
            "Your request exceeded model"
        );
    }

    #[test]
    fn names_of_errors_become_codes() {
        assert_eq!(
            unwrap_message("litellm.RateLimitError: OpenAIException - x").codes,
            ["RateLimitError", "OpenAIException"]
        );
    }

    #[test]
    fn other_prefixes_stay() {
        for message in [
            "Invalid value: 'too long'",
            "messages.3.content: too long",
            "Invalid request: too long",
            "the error: too long",
            "[json.exception.parse_error.101] too long",
            "{not json} too long",
            "14 items: too long",
        ] {
            assert_eq!(words(message), message);
        }
    }
}
