//! The codes and messages of an error, from the fields where providers put them: `detail` is one of
//! these. Other fields (`details`, echoed requests, traces) are not read. Fields that only some
//! servers use for messages, and errors that a message quotes, give asides: texts of which only the
//! sense counts.

use serde_json::{Map, Value};

use super::{
    codes::{self, CodeMeaning},
    figures::{figures, may_hold_text},
    wrapping::{Inner, quoted_json, unwrap_message},
};

/// Most levels of nested errors that are read, including JSON in strings.
const MAX_LAYERS: u8 = 12;
/// Most entries of a list that are read.
const MAX_LIST_ENTRIES: usize = 16;

/// Fields whose texts are messages of the error. Other fields with such names give asides.
const MESSAGES: [&str; 7] = [
    "message",
    "Message",
    "error",
    "errors",
    "error_msg",
    "msg",
    "status_msg",
];

/// Fields that hold the error itself, as few servers name them.
const ERRORS: [&str; 8] = [
    "Error",
    "err",
    "fault",
    "exception",
    "fehler",
    "erreur",
    "errore",
    "erro",
];

/// Fields of an error that may hold the error that caused it.
const CAUSES: [&str; 8] = [
    "innererror",
    "inner_error",
    "cause",
    "upstream_error",
    "original_error",
    "provider_error",
    "upstream",
    "upstream_response",
];

/// The fields of an error.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ErrorFields {
    pub(super) codes: Vec<String>,
    pub(super) messages: Vec<String>,
    /// Texts that may be the error's, and messages of errors that it quotes.
    pub(super) asides: Vec<String>,
    /// HTTP statuses of errors (400 to 599) in the body.
    pub(super) statuses: Vec<u16>,
    /// Tokens of the window: llama.cpp's `n_ctx`.
    pub(super) limit: Option<u64>,
    /// Tokens of the prompt: llama.cpp's `n_prompt_tokens`.
    pub(super) prompt: Option<u64>,
}

/// The error in a value that is known to hold one, whatever fields enclose it: the body of an
/// answer with an error status, or an event that is named `error`.
pub(super) fn from_failure(value: &Value) -> ErrorFields {
    from_answer(value).unwrap_or_else(|| {
        let mut found = ErrorFields::default();
        found.take(value, MAX_LAYERS);
        found
    })
}

/// The error of a page that is shown instead of an answer. Its text is read for its sense only.
pub(super) fn from_page(text: String) -> ErrorFields {
    ErrorFields {
        asides: vec![text],
        ..ErrorFields::default()
    }
}

/// The error in a body that may also be an answer; None if no field marks an error.
pub(super) fn from_answer(value: &Value) -> Option<ErrorFields> {
    let fields = match value {
        Value::Array(list) => return list.iter().take(MAX_LIST_ENTRIES).find_map(from_answer),
        Value::Object(fields) => fields,
        _ => return None,
    };
    let mut found = ErrorFields::default();
    if let Some(error) = error_in(fields) {
        found.take_codes(fields);
        found.take(error, MAX_LAYERS);
        if let Some(by_field) = fields.get("errors").and_then(Value::as_object) {
            found.take_by_field(by_field);
        }
        // `{"status": 400, "error": "Bad Request", "message": "…"}`
        let is_name = !error.is_object() && !error.is_array();
        if is_name {
            if let Some(message) = fields.get("message").filter(|text| text.is_string()) {
                found.take_aside(message, MAX_LAYERS);
            }
            found.take_rare_fields(fields, MAX_LAYERS);
        }
    } else if let Some((name, error)) = fields
        .iter()
        .find(|(key, value)| key.ends_with("Exception") && value.is_object())
    {
        found.codes.push(name.clone());
        found.take(error, MAX_LAYERS);
    } else if is_flat(fields) {
        found.take(value, MAX_LAYERS);
    } else {
        return None;
    }
    Some(found)
}

/// The value of the field that holds the error; None if no field holds one.
fn error_in(fields: &Map<String, Value>) -> Option<&Value> {
    let field = |key| fields.get(key).filter(|value| has_value(value));
    let error_of_response = || {
        fields
            .get("response")?
            .get("error")
            .filter(|value| has_value(value))
    };
    // OpenRouter puts an error within an answer into the choice that it ended.
    let error_of_choice = || {
        fields
            .get("choices")?
            .get(0)?
            .get("error")
            .filter(|value| has_value(value))
    };
    // MiniMax puts `base_resp` into every answer: there, 0 means success.
    let failed = |base: &&Value| {
        base.get("status_code")
            .and_then(Value::as_i64)
            .is_some_and(|code| code != 0)
    };
    field("error")
        .or_else(error_of_response)
        .or_else(error_of_choice)
        .or_else(|| field("errors"))
        .or_else(|| fields.get("base_resp").filter(failed))
}

/// Whether an object is itself an error: its own fields hold the code and the message.
fn is_flat(fields: &Map<String, Value>) -> bool {
    let says_error = |key| fields.get(key).and_then(Value::as_str) == Some("error");
    says_error("object")
        || says_error("type")
        || says_error("event_type")
        || fields.contains_key("__type")
}

/// Whether an object or a list of them is an error of its own. A message of a conversation is none.
fn is_error(value: &Value) -> bool {
    let fields = match value {
        Value::Array(list) => {
            return list
                .first()
                .is_some_and(|first| !first.is_array() && is_error(first));
        }
        Value::Object(fields) => fields,
        _ => return false,
    };
    let has = |key: &&str| fields.contains_key(*key);
    let is_marked = ["error", "errors"]
        .iter()
        .any(|key| fields.get(*key).is_some_and(has_value));
    let is_detail = fields.get("detail").is_some_and(Value::is_string);
    let is_flat = fields.get("message").is_some_and(Value::is_string)
        && [
            "code",
            "type",
            "reason",
            "status",
            "status_code",
            "error_type",
        ]
        .iter()
        .any(has);
    !["role", "content"].iter().any(has) && (is_marked || is_detail || is_flat)
}

/// Whether an entry of a list of details is of a check of the server: its text is the server's.
/// Other entries come from a validator and may quote the request.
fn is_own_check(detail: &Map<String, Value>) -> bool {
    match detail.get("type").and_then(Value::as_str) {
        Some(kind) => kind.starts_with("value_error"),
        None => !detail.contains_key("input"),
    }
}

/// Whether a value is a list of texts, as the arguments of an exception are.
fn is_list_of_texts(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_string))
}

/// Whether a field's value says something: successful answers may have `"error": null`.
fn has_value(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

impl ErrorFields {
    /// Reads an error: a text, an object or a list of them. Ignores levels of nesting beyond
    /// `layers`.
    fn take(&mut self, error: &Value, layers: u8) {
        let Some(layers) = layers.checked_sub(1) else {
            return;
        };
        match error {
            Value::String(text) => self.take_text(text, layers),
            Value::Array(list) => list
                .iter()
                .take(MAX_LIST_ENTRIES)
                .for_each(|error| self.take(error, layers)),
            Value::Object(fields) => self.take_fields(fields, layers),
            _ => {}
        }
    }

    fn take_fields(&mut self, fields: &Map<String, Value>, layers: u8) {
        self.take_codes(fields);
        let number = |key| fields.get(key).and_then(Value::as_u64);
        self.limit = self.limit.or_else(|| number("n_ctx"));
        self.prompt = self.prompt.or_else(|| number("n_prompt_tokens"));
        for key in MESSAGES {
            if let Some(inner) = fields.get(key) {
                self.take(inner, layers);
            }
        }
        // JSON:API and problem details name an error in a title.
        let is_titled = ["status", "detail"]
            .iter()
            .any(|key| fields.contains_key(*key));
        if let Some(title) = fields
            .get("title")
            .filter(|text| is_titled && text.is_string())
        {
            self.take_aside(title, layers);
        }
        match fields.get("detail") {
            Some(Value::Array(list)) => list
                .iter()
                .take(MAX_LIST_ENTRIES)
                .for_each(|detail| self.take_detail(detail, layers)),
            Some(inner) => self.take(inner, layers),
            None => {}
        }
        self.take_rare_fields(fields, layers);
        if let Some(raw) = fields
            .get("metadata")
            .and_then(|metadata| metadata.get("raw"))
        {
            self.take(raw, layers);
        }
    }

    /// Reads the fields that only some servers use: texts and errors as asides, and figures.
    fn take_rare_fields(&mut self, fields: &Map<String, Value>, layers: u8) {
        let texts = fields
            .iter()
            .filter(|(key, text)| {
                let is_read = MESSAGES.contains(&key.as_str()) || *key == "detail";
                // "text" is the name of a user's text, too, where the error has a message.
                let is_text = *key == "text" && !fields.contains_key("message");
                let holds_text = text.is_string() || is_list_of_texts(text);
                holds_text && !is_read && (is_text || may_hold_text(key))
            })
            .map(|(_, text)| text);
        let errors = ERRORS.iter().filter_map(|key| fields.get(*key));
        for aside in texts.take(MAX_LIST_ENTRIES).chain(errors) {
            self.take_aside(aside, layers);
        }
        self.take_figures(fields);
        for cause in CAUSES.iter().filter_map(|key| fields.get(*key)) {
            let is_answer = |inner: &&Map<String, Value>| {
                ["code", "status", "status_code"]
                    .iter()
                    .any(|key| inner.contains_key(*key))
            };
            if let Some(inner) = cause.as_object().filter(is_answer) {
                self.take_codes(inner);
                self.take_aside(cause, layers);
            }
        }
    }

    /// Reads the numbers in an error's fields, after its message, as a text of which only the sense
    /// counts.
    fn take_figures(&mut self, fields: &Map<String, Value>) {
        let mut messages = ["message", "msg", "error", "detail"].iter();
        let message = messages.find_map(|key| fields.get(*key)?.as_str());
        if !self.is_unrelated() {
            self.asides.extend(figures(fields, message));
        }
    }

    /// Reads texts by the field of the request that they are about: `{"prompt": ["is too long"]}`.
    /// Such a text may go on with the name of its field.
    fn take_by_field(&mut self, by_field: &Map<String, Value>) {
        for (field, texts) in by_field.iter().take(MAX_LIST_ENTRIES) {
            let texts = texts
                .as_array()
                .into_iter()
                .flatten()
                .take(MAX_LIST_ENTRIES);
            for text in texts.filter_map(Value::as_str) {
                let goes_on = text.starts_with(|first: char| first.is_ascii_lowercase());
                self.asides.push(if goes_on {
                    format!("{field} {text}")
                } else {
                    text.to_owned()
                });
            }
        }
    }

    /// Reads an entry of a list of details.
    fn take_detail(&mut self, detail: &Value, layers: u8) {
        match detail {
            Value::String(_) => self.take_aside(detail, layers),
            Value::Object(fields) => {
                self.take_codes(fields);
                let text = fields.get("msg").filter(|text| text.is_string());
                if let Some(text) = text.filter(|_| is_own_check(fields)) {
                    self.take_aside(text, layers);
                }
            }
            _ => {}
        }
    }

    /// Reads the messages of an error as asides, unless it is about something else than size.
    fn take_aside(&mut self, error: &Value, layers: u8) {
        let mut aside = Self::default();
        aside.take(error, layers);
        if !aside.is_unrelated() {
            self.asides.append(&mut aside.messages);
            self.asides.append(&mut aside.asides);
        }
    }

    /// Whether a code or a status says that the error is about something else than size.
    pub(super) fn is_unrelated(&self) -> bool {
        let mut codes = self.codes.iter();
        let mut statuses = self.statuses.iter();
        codes.any(|code| codes::look_up(code) == Some(CodeMeaning::Unrelated))
            || statuses.any(|status| codes::is_unrelated_status(*status))
    }

    fn take_text(&mut self, text: &str, layers: u8) {
        // A text of one word may be a code.
        if !text.contains(char::is_whitespace) {
            self.codes.push(text.to_owned());
        }
        let unwrapped = unwrap_message(text);
        self.codes
            .extend(unwrapped.codes.into_iter().map(str::to_owned));
        match unwrapped.inner {
            Inner::Words(words) => {
                if let Some(quoted) = quoted_json(words).filter(is_error) {
                    self.take_aside(&quoted, layers);
                }
                self.messages.push(words.to_owned());
            }
            Inner::Json(value) => self.take(&value, layers),
        }
    }

    /// Reads the fields that hold codes: texts as codes, numbers from 400 to 599 as HTTP statuses.
    pub(super) fn take_codes(&mut self, fields: &Map<String, Value>) {
        for key in [
            "code",
            "type",
            "status",
            "error_type",
            "error_code",
            "__type",
            "status_code",
        ] {
            match fields.get(key) {
                Some(Value::String(text)) => match text.parse() {
                    Ok(number) => self.take_status(number),
                    Err(_) => self.codes.push(strip_namespace(text).to_owned()),
                },
                Some(Value::Number(number)) => {
                    self.take_status(number.as_u64().unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    fn take_status(&mut self, number: u64) {
        let status = u16::try_from(number)
            .ok()
            .filter(|status| (400..600).contains(status));
        self.statuses.extend(status);
    }
}

/// The name of an AWS error without its namespace and URL:
/// `com.amazon.coral#ValidationException:http://…`.
pub(super) fn strip_namespace(name: &str) -> &str {
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    name.rsplit('#').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_rare_fields_and_quoted_errors_are_asides() {
        let quoted = json!({"message": "long", "reason": "LENGTH"}).to_string();
        for body in [
            json!({"error": "Bad Request", "message": "long"}),
            json!({"error": {"message": "bad", "innererror": {"code": "x", "message": "long"}}}),
            json!({"error": {"message": "bad", "error_description": "long"}}),
            json!({"detail": [{"loc": ["body"], "msg": "long", "type": "value_error"}]}),
            json!({"detail": ["long"]}),
            json!({"Error": {"Message": "long"}}),
            json!({"fault": {"faultstring": "long"}}),
            json!({"errors": [{"status": "400", "title": "long"}]}),
            json!({"title": "long", "detail": "bad", "status": 400}),
            json!({"error": "HTTP 400: {\"detail\": \"long\"}"}),
            json!({"error": format!("Upstream Error (500): {quoted}")}),
            json!({"error": format!("Provider x returned status 400 - [{quoted}]")}),
        ] {
            let found = from_failure(&body);
            assert!(found.asides.iter().any(|text| text == "long"), "{body}");
            assert!(found.messages.iter().all(|text| text != "long"), "{body}");
        }
    }

    #[test]
    fn a_text_by_field_may_go_on_with_its_name() {
        let body = json!({"errors": {
            "prompt": ["is too long", "The prompt is bad"], "code": 5, "inner": {"a": ["b"]},
        }});
        let found = from_failure(&body);
        assert_eq!(found.asides, ["prompt is too long", "The prompt is bad"]);
    }

    #[test]
    fn what_the_caller_may_have_sent_is_no_aside() {
        let quoted = json!({"message": "long", "code": 1}).to_string();
        let limited = json!({"error": {"code": "rate_limited", "message": "long"}}).to_string();
        for body in [
            json!({"error": {"message": "bad", "innererror": {"message": "long"}}}),
            json!({"detail": [{"msg": "long", "input": "long"}]}),
            json!({"detail": [{"msg": "long", "type": "literal_error"}]}),
            json!({"error": {"message": "bad"}, "title": "long"}),
            json!({"title": "long", "messages": ["long"]}),
            json!({"error": format!("Parse error: {quoted}")}),
            json!({"error": format!("Error near: {quoted}")}),
            json!({"error": format!("See {quoted}")}),
            json!({"error": "Gateway Error: {\"role\": \"user\", \"message\": \"long\"}"}),
            json!({"error": format!("Gateway failed: {limited}")}),
            json!({"error": format!("{} failed: {quoted}", "x ".repeat(60))}),
        ] {
            let found = from_failure(&body);
            assert_eq!(found.asides, Vec::<String>::new(), "{body}");
        }
    }
}
