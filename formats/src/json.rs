//! Tolerant JSON parsing. Values are parsed one level at a time. What is below that level stays raw
//! text, with numbers and key order as written. Invalid UTF-8 and lone surrogates are replaced.
//! Values that are nested deeper than 128 levels are refused.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::ImportOutcome;

/// Deepest nesting of lists and objects that is accepted.
const LEVELS: usize = 128;
/// Longest name that a remark quotes, in bytes.
const NAME_BYTES: usize = 40;

/// Why an item cannot be read. The sentence names fields and kinds, never content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable(pub(crate) String);

impl Unreadable {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// Remarks about an item that is kept.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Outcomes of parts of the item that could not be kept unchanged, with their descriptions.
    pub(crate) remarks: Vec<(ImportOutcome, String)>,
    /// Fields that no reader uses. Every message may have them, so the emitter reports them once
    /// per file.
    pub(crate) unread_fields: Vec<String>,
}

impl Notes {
    pub(crate) const fn new() -> Self {
        Self {
            remarks: Vec::new(),
            unread_fields: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, note: (ImportOutcome, String)) {
        self.remarks.push(note);
    }

    pub(crate) fn extend(&mut self, others: Self) {
        self.remarks.extend(others.remarks);
        self.unread_fields.extend(others.unread_fields);
    }

    /// Notes each of `fields` that is not in `read_names` as unread. `whose` names what it is a
    /// field of.
    pub(crate) fn note_unread_fields(&mut self, fields: &Fields, read_names: &[&str], whose: &str) {
        fields
            .names()
            .filter(|name| !read_names.contains(name))
            .for_each(|name| self.note_unread_field(name, whose));
    }

    /// Notes one field as unread.
    pub(crate) fn note_unread_field(&mut self, name: &str, whose: &str) {
        self.unread_fields
            .push(format!("field {} of {whose}", short_name(name)));
    }
}

/// A name as a remark quotes it: shortened, with control characters escaped.
pub(crate) fn short_name(name: &str) -> String {
    let end = name.floor_char_boundary(NAME_BYTES.min(name.len()));
    name[..end].escape_debug().to_string()
}

/// Parses a line or a value. Replaces bytes that are not UTF-8 with U+FFFD. If parsing fails,
/// replaces lone surrogates with U+FFFD and parses again. Each kind of replacement adds one note.
pub(crate) fn parse_bytes<T>(
    bytes: Vec<u8>,
    notes: &mut Notes,
    mut parse: impl FnMut(&str, &mut Notes) -> Result<T, Unreadable>,
) -> Result<T, Unreadable> {
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        notes.push((
            ImportOutcome::Changed,
            "bytes that are not UTF-8 became U+FFFD".into(),
        ));
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    if is_deep(&text) {
        return Err(Unreadable(format!(
            "it is nested deeper than {LEVELS} levels"
        )));
    }
    let (remarks_before, unread_before) = (notes.remarks.len(), notes.unread_fields.len());
    parse(&text, notes).or_else(|bad| {
        let repaired = without_lone_surrogates(&text).ok_or(bad)?;
        notes.remarks.truncate(remarks_before);
        notes.unread_fields.truncate(unread_before);
        notes.push((
            ImportOutcome::Changed,
            "lone surrogates became U+FFFD".into(),
        ));
        parse(&repaired, notes)
    })
}

/// The bytes as text, with U+FFFD for invalid UTF-8 and for lone surrogates.
pub(crate) fn repaired_text(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    without_lone_surrogates(&text).unwrap_or(text)
}

/// Whether brackets are nested deeper than [`LEVELS`].
pub(crate) fn is_deep(text: &str) -> bool {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > LEVELS {
            return true;
        }
    }
    false
}

/// Bytes of an escape sequence `\uXXXX`, which stands for one UTF-16 unit.
const UNIT_ESCAPE_BYTES: usize = 6;

/// The text with U+FFFD for each escaped surrogate without a partner. None if there is none.
fn without_lone_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let unit_at = |start: usize| -> Option<u16> {
        let escape = bytes
            .get(start..start + UNIT_ESCAPE_BYTES)
            .filter(|escape| escape.starts_with(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()
    };
    let mut repaired = String::new();
    // `copied`: the bytes of `text` that `repaired` holds already.
    let (mut index, mut copied) = (0, 0);
    while index < bytes.len() {
        if bytes[index] != b'\\' {
            index += 1;
            continue;
        }
        match unit_at(index) {
            Some(0xD800..=0xDBFF)
                if matches!(unit_at(index + UNIT_ESCAPE_BYTES), Some(0xDC00..=0xDFFF)) =>
            {
                index += 2 * UNIT_ESCAPE_BYTES;
            }
            Some(0xD800..=0xDFFF) => {
                repaired.push_str(&text[copied..index]);
                repaired.push_str("\\ufffd");
                index += UNIT_ESCAPE_BYTES;
                copied = index;
            }
            // The backslash and the character after it.
            _ => index += 2,
        }
    }
    (copied > 0).then(|| repaired + &text[copied..])
}

/// The fields of a JSON object. If several fields have one name, the last one counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields<'a>(pub(crate) BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Parses a JSON text, one level deep.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Unreadable> {
        if !text.trim_start().starts_with('{') {
            return Err(Unreadable::new("it is not a JSON object"));
        }
        serde_json::from_str(text)
            .map(Self)
            .map_err(|_| Unreadable::new("it is not JSON"))
    }

    /// A field as raw JSON; None if absent or null.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a str> {
        self.0
            .get(key)
            .map(|raw| raw.get())
            .filter(|raw| *raw != "null")
    }

    /// A string; None if the field is absent or not a string.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, Unreadable> {
        self.raw(key)
            .filter(|raw| is_text(raw))
            .map(text)
            .transpose()
    }

    /// A string; an error if the field is absent or not a string.
    pub(crate) fn required_text(&self, key: &str) -> Result<String, Unreadable> {
        self.text(key)?
            .ok_or_else(|| Unreadable(format!("it needs a text `{key}`")))
    }

    /// Whether a field is present and not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// Whether a field is `true`.
    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.raw(key) == Some("true")
    }

    /// The elements of a list as raw JSON; empty if the field is absent or not a list.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<&'a str>, Unreadable> {
        self.raw(key)
            .filter(|raw| raw.starts_with('['))
            .map_or_else(|| Ok(Vec::new()), list)
    }

    /// A field as text: a string unescaped, anything else as raw JSON.
    pub(crate) fn text_or_raw(&self, key: &str) -> Result<Option<String>, Unreadable> {
        self.raw(key).map(text_or_raw).transpose()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Whether the raw value is a string.
pub(crate) fn is_text(raw: &str) -> bool {
    raw.starts_with('"')
}

/// The content of a JSON string.
pub(crate) fn text(raw: &str) -> Result<String, Unreadable> {
    serde_json::from_str(raw).map_err(|_| Unreadable::new("a text in it cannot be read"))
}

/// A raw value as text: a string unescaped, anything else as raw JSON.
pub(crate) fn text_or_raw(raw: &str) -> Result<String, Unreadable> {
    if is_text(raw) {
        text(raw)
    } else {
        Ok(raw.to_owned())
    }
}

/// The elements of a JSON list, as raw JSON.
pub(crate) fn list(raw: &str) -> Result<Vec<&str>, Unreadable> {
    let elements: Vec<&RawValue> =
        serde_json::from_str(raw).map_err(|_| Unreadable::new("a list in it cannot be read"))?;
    Ok(elements.into_iter().map(RawValue::get).collect())
}

/// The text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is always JSON")
}

/// A tool's input as a JSON object on one line, with line ends replaced by blanks. An input that is
/// not an object, or is nested too deep, is wrapped as `{"input": …}`.
pub(crate) fn object(input: &str) -> Box<RawValue> {
    // Line ends are blanks outside of strings. Inside strings they are not valid JSON.
    let line = input
        .trim_matches(['\n', '\r', '\t', ' '])
        .replace(['\n', '\r'], " ");
    let is_object = line.starts_with('{')
        && !is_too_deep_inside_a_message(&line)
        && serde_json::from_str::<&RawValue>(input).is_ok();
    let text = if is_object {
        line
    } else {
        format!("{{\"input\":{}}}", quoted(input))
    };
    RawValue::from_string(text).expect("the text was parsed, or is an object with one string")
}

/// Levels reserved for the lists and objects around a tool's input, which are fewer in every
/// format.
const LEVELS_AROUND_INPUT: usize = 16;

/// Whether the input would exceed the nesting limit when it is written inside a message.
fn is_too_deep_inside_a_message(input: &str) -> bool {
    is_deep(&format!("{}{input}", "[".repeat(LEVELS_AROUND_INPUT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        let text = r#"{"a":"\ud83d\ude00 \ud800 \\ud800 \udc00\ud800"}"#;
        let repaired = r#"{"a":"\ud83d\ude00 \ufffd \\ud800 \ufffd\ufffd"}"#;
        assert_eq!(without_lone_surrogates(text).as_deref(), Some(repaired));
        assert_eq!(without_lone_surrogates(r#""\ud83d\ude00 \\ud800""#), None);
    }

    #[test]
    fn nesting_is_counted_outside_of_texts() {
        assert!(!is_deep(&format!(
            "{}\"{}\"{}",
            "[".repeat(LEVELS),
            "[".repeat(999),
            "]".repeat(LEVELS)
        )));
        assert!(is_deep(&"[".repeat(LEVELS + 1)));
    }

    #[test]
    fn the_last_of_duplicate_fields_counts() {
        let fields = Fields::parse(r#"{"a":"1","a":"2"}"#).expect("parses");
        assert_eq!(fields.required_text("a").expect("a text"), "2");
    }

    #[test]
    fn an_object_stays_an_object_and_other_inputs_are_wrapped() {
        assert_eq!(object("{\"n\": 1e2}").get(), "{\"n\": 1e2}");
        assert_eq!(
            object(" {\r\n\t\"a\\n\":\n[1]}\n").get(),
            "{  \t\"a\\n\": [1]}"
        );
        for input in ["", "[1]", "{\"a\":\"\n\"}", "{\n}}", "{", "7", "\u{a0}{}"] {
            assert_eq!(
                object(input).get(),
                format!("{{\"input\":{}}}", quoted(input))
            );
        }
    }
}
