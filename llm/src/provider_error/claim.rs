//! What an error says about itself: its codes and its own messages, from the places where providers put them. Whatever
//! stands elsewhere in a body (echoed requests, details, traces) is not read.

use serde_json::{Map, Value};

use super::wrapping::{Within, open};

/// Envelopes within envelopes that are opened, those in strings included.
const LAYERS: u8 = 12;
/// Errors of a list that are read.
const LISTED: usize = 16;

/// What was claimed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Claim {
    pub(super) codes: Vec<String>,
    pub(super) messages: Vec<String>,
    /// HTTP statuses that the body repeats.
    pub(super) statuses: Vec<u16>,
    /// llama.cpp's `n_ctx` and `n_prompt_tokens`.
    pub(super) limit: Option<u64>,
    pub(super) prompt: Option<u64>,
}

/// The error in the body of an answer that failed, whatever its envelope.
pub(super) fn of_failure(value: &Value) -> Claim {
    of_answer(value).unwrap_or_else(|| {
        let mut claim = Claim::default();
        claim.take(value, LAYERS);
        claim
    })
}

/// The error in a body that may also be an answer; None when nothing in it says "error".
pub(super) fn of_answer(value: &Value) -> Option<Claim> {
    let fields = match value {
        Value::Array(list) => return list.iter().take(LISTED).find_map(of_answer),
        Value::Object(fields) => fields,
        _ => return None,
    };
    let mut claim = Claim::default();
    if let Some(error) = error_in(fields) {
        claim.take_codes(fields);
        claim.take(error, LAYERS);
    } else if let Some((name, error)) =
        fields.iter().find(|(key, value)| key.ends_with("Exception") && value.is_object())
    {
        claim.codes.push(name.clone());
        claim.take(error, LAYERS);
    } else if is_flat(fields) {
        claim.take(value, LAYERS);
    } else {
        return None;
    }
    Some(claim)
}

/// The field that holds the error.
fn error_in(fields: &Map<String, Value>) -> Option<&Value> {
    let given = |key| fields.get(key).filter(|value| is_given(value));
    let of_response = || fields.get("response")?.get("error").filter(|value| is_given(value));
    // OpenRouter puts what went wrong midway beside the choice that it ended.
    let of_choice = || fields.get("choices")?.get(0)?.get("error").filter(|value| is_given(value));
    let failed = |base: &&Value| base.get("status_code").and_then(Value::as_i64).is_some_and(|code| code != 0);
    given("error")
        .or_else(of_response)
        .or_else(of_choice)
        .or_else(|| given("errors"))
        .or_else(|| fields.get("base_resp").filter(failed))
}

/// Whether an object without an envelope says that it is an error.
fn is_flat(fields: &Map<String, Value>) -> bool {
    let says_error = |key| fields.get(key).and_then(Value::as_str) == Some("error");
    says_error("object") || says_error("type") || says_error("event_type") || fields.contains_key("__type")
}

/// Whether a field says something: successful answers carry `"error": null`.
fn is_given(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

impl Claim {
    /// Takes in an error: a text, an object or a list of them.
    fn take(&mut self, error: &Value, layers: u8) {
        let Some(layers) = layers.checked_sub(1) else { return };
        match error {
            Value::String(text) => self.take_text(text, layers),
            Value::Array(list) => list.iter().take(LISTED).for_each(|error| self.take(error, layers)),
            Value::Object(fields) => self.take_fields(fields, layers),
            _ => {}
        }
    }

    fn take_fields(&mut self, fields: &Map<String, Value>, layers: u8) {
        self.take_codes(fields);
        let number = |key| fields.get(key).and_then(Value::as_u64);
        self.limit = self.limit.or_else(|| number("n_ctx"));
        self.prompt = self.prompt.or_else(|| number("n_prompt_tokens"));
        for key in ["message", "Message", "error", "errors", "error_msg", "msg", "status_msg"] {
            if let Some(said) = fields.get(key) {
                self.take(said, layers);
            }
        }
        // A list of details is a validator's, and quotes what it was given: of it only the kinds of its complaints.
        match fields.get("detail") {
            Some(Value::Array(list)) => {
                list.iter().take(LISTED).filter_map(Value::as_object).for_each(|complaint| self.take_codes(complaint));
            }
            Some(said) => self.take(said, layers),
            None => {}
        }
        if let Some(raw) = fields.get("metadata").and_then(|metadata| metadata.get("raw")) {
            self.take(raw, layers);
        }
    }

    fn take_text(&mut self, text: &str, layers: u8) {
        if !text.contains(char::is_whitespace) {
            self.codes.push(text.to_owned());
        }
        let opened = open(text);
        self.codes.extend(opened.codes.into_iter().map(str::to_owned));
        match opened.within {
            Within::Words(words) => self.messages.push(words.to_owned()),
            Within::Json(value) => self.take(&value, layers),
        }
    }

    /// Takes in the fields that hold codes: names as such, numbers as HTTP statuses.
    pub(super) fn take_codes(&mut self, fields: &Map<String, Value>) {
        for key in ["code", "type", "status", "error_type", "error_code", "__type", "status_code"] {
            match fields.get(key) {
                Some(Value::String(text)) => match text.parse() {
                    Ok(number) => self.take_status(number),
                    Err(_) => self.codes.push(plain(text).to_owned()),
                },
                Some(Value::Number(number)) => self.take_status(number.as_u64().unwrap_or_default()),
                _ => {}
            }
        }
    }

    fn take_status(&mut self, number: u64) {
        let status = u16::try_from(number).ok().filter(|status| (400..600).contains(status));
        self.statuses.extend(status);
    }
}

/// An AWS error's name without its namespace and its address: `com.amazon.coral#ValidationException:http://…`.
pub(super) fn plain(name: &str) -> &str {
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    name.rsplit('#').next().unwrap_or(name)
}
