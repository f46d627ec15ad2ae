//! The texts and figures of an error that few servers name alike: which fields may hold a text of the
//! error, and the numbers in its fields as a sentence, because a server may say only in numbers what
//! was too long.

use serde_json::{Map, Value};

/// Fewest figures of an error that compares two.
const MIN_FIGURES: usize = 2;
/// Most fields of an error that become words.
const MAX_FIELDS: usize = 16;
/// Most bytes of a field's name, and of a code, that become words.
const MAX_NAME_BYTES: usize = 64;
/// The smallest number that may be one of tokens of a window or of what was sent: smaller ones are
/// statuses and counts of other things.
const MIN_FIGURE: u64 = 600;

/// Parts of names of fields that hold a text about the error, or the error itself.
const TEXT_PARTS: &[&str] = &[
    "message",
    "msg",
    "error",
    "err",
    "errmsg",
    "reason",
    "detail",
    "details",
    "description",
    "desc",
    "cause",
    "explanation",
    "faultstring",
    "fault",
    "exception",
    "info",
    "summary",
    "hint",
    "body",
    "upstream",
    "response",
    "problem",
    "diagnostic",
    "diagnostics",
    "inner",
    "innererror",
    "nested",
    "warning",
    "note",
    "errormessage",
    "raw",
    "args",
];

/// Parts of names of fields that may repeat what the caller has sent, or that are not about the
/// error.
const ECHO_PARTS: &[&str] = &[
    "input",
    "prompt",
    "request",
    "user",
    "content",
    "offending",
    "flagged",
    "matched",
    "received",
    "value",
    "quote",
    "quoted",
    "snippet",
    "excerpt",
    "sample",
    "tool",
    "sent",
    "messages",
    "arguments",
    "completion",
    "generation",
    "failed",
    "url",
    "uri",
    "link",
    "docs",
    "doc",
    "trace",
    "traceback",
    "stack",
    "id",
    "echo",
    "template",
    "query",
    "chat",
    "history",
    "your",
];

/// Parts of names of numbers that count no tokens.
const OTHER_NUMBERS: &[&str] = &[
    "id",
    "time",
    "timestamp",
    "ts",
    "at",
    "date",
    "ms",
    "seconds",
    "secs",
    "retry",
    "reset",
    "port",
    "line",
    "column",
    "col",
    "pos",
    "offset",
    "status",
    "code",
    "http",
    "errno",
    "bytes",
    "attempt",
    "attempts",
    "pid",
    "build",
    "version",
    "chars",
    "characters",
    "rpm",
    "tpm",
    "minute",
    "day",
    "quota",
    "remaining",
    "cost",
    "price",
    "seed",
];

/// Whether a field of an error may hold a text about it, by the parts of its name.
pub(super) fn may_hold_text(name: &str) -> bool {
    let words = words_of(name);
    let is_text = words.split(' ').any(|part| TEXT_PARTS.contains(&part));
    name.len() <= MAX_NAME_BYTES && is_text && !is_echo(name)
}

/// The numbers of an error as a sentence, after its codes and its message: "prompt does not fit.
/// need: 18442, have: 16384, unit: tokens". None if it has fewer than two.
pub(super) fn figures(fields: &Map<String, Value>, message: Option<&str>) -> Option<String> {
    let mut found = Figures::default();
    found.sentences.extend(message.map(str::to_owned));
    found.take(fields, "");
    for (name, value) in fields.iter().take(MAX_FIELDS) {
        if let Some(inner) = value.as_object().filter(|_| !is_echo(name)) {
            found.take(inner, name);
        }
    }
    if found.numbers.len() < MIN_FIGURES {
        return None;
    }
    found.numbers.append(&mut found.units);
    found.sentences.push(found.numbers.join(", "));
    Some(found.sentences.join(". "))
}

/// The words and figures of an error's fields, in order.
#[derive(Default)]
struct Figures {
    sentences: Vec<String>,
    numbers: Vec<String>,
    units: Vec<String>,
}

impl Figures {
    /// Takes the fields of an object, which the field `outer` of the error holds; empty: the error
    /// itself.
    fn take(&mut self, fields: &Map<String, Value>, outer: &str) {
        for (name, value) in fields.iter().take(MAX_FIELDS) {
            let name = words_of(&format!("{outer} {name}")).trim().to_owned();
            match value {
                Value::Number(number) => {
                    let counts_other = name.split(' ').any(|part| OTHER_NUMBERS.contains(&part));
                    let value = number.as_u64().filter(|value| *value >= MIN_FIGURE);
                    let figure = value.filter(|_| !counts_other);
                    self.numbers
                        .extend(figure.map(|value| format!("{name}: {value}")));
                }
                Value::String(text) if name.ends_with("unit") || name.ends_with("units") => {
                    self.units.push(format!("unit: {}", words_of(text)));
                }
                Value::String(text) if outer.is_empty() && is_code(text) => {
                    self.sentences.push(words_of(text));
                }
                _ => {}
            }
        }
    }
}

/// Whether a field may repeat what the caller has sent, by the parts of its name.
fn is_echo(name: &str) -> bool {
    words_of(name)
        .split(' ')
        .any(|part| ECHO_PARTS.contains(&part))
}

/// Whether a text is a code or a name: one word of ASCII letters.
fn is_code(text: &str) -> bool {
    let is_letter = |next: char| next.is_ascii_alphabetic() || matches!(next, '_' | '-' | '.');
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.chars().all(is_letter)
}

/// The words of a name: `PromptDoesNotFit` and `prompt_does_not_fit` are "prompt does not fit".
pub(super) fn words_of(name: &str) -> String {
    let mut words = String::with_capacity(name.len());
    let mut last = ' ';
    for next in name.chars() {
        if next.is_ascii_uppercase() && (last.is_ascii_lowercase() || last.is_ascii_digit()) {
            words.push(' ');
        }
        words.push(if matches!(next, '_' | '-' | '.') {
            ' '
        } else {
            next.to_ascii_lowercase()
        });
        last = next;
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_holds_a_text_by_the_parts_of_its_name() {
        for name in [
            "message",
            "errorMessage",
            "upstream_body",
            "error-hint",
            "rootCause",
        ] {
            assert!(may_hold_text(name), "{name}");
        }
        for name in [
            "user_message",
            "input",
            "request_body",
            "messages",
            "content",
            "errorUrl",
            "",
        ] {
            assert!(!may_hold_text(name), "{name}");
        }
    }

    #[test]
    fn figures_become_a_sentence() {
        let of = |value: Value| figures(value.as_object()?, value["message"].as_str());
        assert_eq!(
            of(
                json!({"kind": "PromptDoesNotFit", "need": 18_442, "have": 16_384, "unit": "tokens"})
            ),
            Some("prompt does not fit. have: 16384, need: 18442, unit: tokens".to_owned())
        );
        assert_eq!(
            of(json!({"message": "Too much.", "limitTokens": 8_192, "promptTokens": 9_000})),
            Some("Too much.. limit tokens: 8192, prompt tokens: 9000".to_owned())
        );
        assert_eq!(
            of(json!({"code": "E_CTX_OVERRUN", "params": {"n_prompt": 9_120, "n_ctx": 8_192}})),
            Some("e ctx overrun. params n ctx: 8192, params n prompt: 9120".to_owned())
        );
        for other in [
            json!({"need": 18_442}),
            json!({"input": {"need": 18_442, "have": 16_384}}),
            json!({"need": 5, "have": 4}),
            json!({"created_at": 1_700_000_000, "retry_after_ms": 6_000, "limit": 8_192}),
        ] {
            assert_eq!(of(other.clone()), None, "{other}");
        }
    }
}
