//! JSON that others wrote: mended where it can be, taken apart a level at a time, so that nothing is as deep as the
//! file says, and its numbers and key orders stay as they stand.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::Fate;

/// Levels of JSON that are read.
const LEVELS: usize = 128;
/// Bytes of a name that a remark repeats.
const NAME_BYTES: usize = 40;

/// Why something cannot be read: a sentence that names fields and kinds, never content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad(pub(crate) String);

impl Bad {
    /// This sentence.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// What is to be said of something that is kept.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// What became of parts of it.
    pub(crate) said: Vec<(Fate, String)>,
    /// Fields of it that nothing reads; they come with message after message, and are said once in a file.
    pub(crate) unread: Vec<String>,
}

impl Notes {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self { said: Vec::new(), unread: Vec::new() }
    }

    /// One more.
    pub(crate) fn push(&mut self, note: (Fate, String)) {
        self.said.push(note);
    }

    /// Those of something else, too.
    pub(crate) fn extend(&mut self, others: Self) {
        self.said.extend(others.said);
        self.unread.extend(others.unread);
    }

    /// Each field but the `read` ones, as one of `whose`.
    pub(crate) fn unread(&mut self, fields: &Fields, read: &[&str], whose: &str) {
        fields.names().filter(|name| !read.contains(name)).for_each(|name| self.unread_field(name, whose));
    }

    /// The field as one of `whose`.
    pub(crate) fn unread_field(&mut self, name: &str, whose: &str) {
        self.unread.push(format!("field {} of {whose}", named(name)));
    }
}

/// A kind's name as a remark repeats it: short, on one line.
pub(crate) fn named(kind: &str) -> String {
    let end = kind.floor_char_boundary(NAME_BYTES.min(kind.len()));
    kind[..end].escape_debug().to_string()
}

/// Reads a line or value. Bytes that are no UTF-8 become U+FFFD, and so do lone surrogates where the reading fails
/// without; both are noted.
pub(crate) fn read<T>(
    bytes: Vec<u8>,
    notes: &mut Notes,
    mut parse: impl FnMut(&str, &mut Notes) -> Result<T, Bad>,
) -> Result<T, Bad> {
    let text = String::from_utf8(bytes).unwrap_or_else(|error| {
        notes.push((Fate::Changed, "bytes that are not UTF-8 became U+FFFD".into()));
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    });
    if is_deep(&text) {
        return Err(Bad(format!("it is nested deeper than {LEVELS} levels")));
    }
    let before = (notes.said.len(), notes.unread.len());
    parse(&text, notes).or_else(|bad| {
        let mended = without_lone_surrogates(&text).ok_or(bad)?;
        notes.said.truncate(before.0);
        notes.unread.truncate(before.1);
        notes.push((Fate::Changed, "lone surrogates became U+FFFD".into()));
        parse(&mended, notes)
    })
}

/// The text of bytes, with U+FFFD for what is no UTF-8 and for each lone surrogate.
pub(crate) fn mended(bytes: Vec<u8>) -> String {
    let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    without_lone_surrogates(&text).unwrap_or(text)
}

/// Whether brackets are nested deeper than is read.
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

/// The text with U+FFFD for each escaped surrogate that has no partner; None when there is none.
fn without_lone_surrogates(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let unit = |at: usize| -> Option<u16> {
        let digits = bytes.get(at..at + 6).filter(|six| six.starts_with(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let mut mended = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                mended.push_str(&text[copied..at]);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            _ => at += 2,
        }
    }
    (copied > 0).then(|| mended + &text[copied..])
}

/// An object's fields. Of fields with one name the last one stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields<'a>(pub(crate) BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Those of this JSON text.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Bad> {
        if !text.trim_start().starts_with('{') {
            return Err(Bad::new("it is not a JSON object"));
        }
        serde_json::from_str(text).map(Self).map_err(|_| Bad::new("it is not JSON"))
    }

    /// A field as it stands; None when absent or null.
    pub(crate) fn raw(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).map(|raw| raw.get()).filter(|raw| *raw != "null")
    }

    /// A text; None when absent or something else.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, Bad> {
        self.raw(key).filter(|raw| is_text(raw)).map(text).transpose()
    }

    /// A text that must be there.
    pub(crate) fn must(&self, key: &str) -> Result<String, Bad> {
        self.text(key)?.ok_or_else(|| Bad(format!("it needs a text `{key}`")))
    }

    /// Whether a field is there and not null.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// Whether a field is `true`.
    pub(crate) fn is(&self, key: &str) -> bool {
        self.raw(key) == Some("true")
    }

    /// The elements of a list; none when absent or something else.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<&'a str>, Bad> {
        self.raw(key).filter(|raw| raw.starts_with('[')).map_or_else(|| Ok(Vec::new()), list)
    }

    /// A value as a label: a text as it reads, anything else as it stands.
    pub(crate) fn label(&self, key: &str) -> Result<Option<String>, Bad> {
        self.raw(key).map(label).transpose()
    }

    /// The names of all fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Whether the value is a text.
pub(crate) fn is_text(raw: &str) -> bool {
    raw.starts_with('"')
}

/// A JSON text's own text.
pub(crate) fn text(raw: &str) -> Result<String, Bad> {
    serde_json::from_str(raw).map_err(|_| Bad::new("a text in it cannot be read"))
}

/// A value as a label: a text as it reads, anything else as it stands.
pub(crate) fn label(raw: &str) -> Result<String, Bad> {
    if is_text(raw) { text(raw) } else { Ok(raw.to_owned()) }
}

/// The elements of a JSON list, as they stand.
pub(crate) fn list(raw: &str) -> Result<Vec<&str>, Bad> {
    let elements: Vec<&RawValue> = serde_json::from_str(raw).map_err(|_| Bad::new("a list in it cannot be read"))?;
    Ok(elements.into_iter().map(RawValue::get).collect())
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is always JSON")
}

/// A tool's input as a JSON object on one line: as it stands, its line ends as blanks; or under `input` where it is something
/// else.
pub(crate) fn object(input: &str) -> Box<RawValue> {
    // outside of texts they are blanks, and within them no JSON
    let line = input.trim_matches(['\n', '\r', '\t', ' ']).replace(['\n', '\r'], " ");
    let is_object = line.starts_with('{') && !is_deep_within(&line) && serde_json::from_str::<&RawValue>(input).is_ok();
    let text = if is_object { line } else { format!("{{\"input\":{}}}", quoted(input)) };
    RawValue::from_string(text).expect("it was parsed, or is an object made of one text")
}

/// Whether it would be too deep within a message.
fn is_deep_within(input: &str) -> bool {
    is_deep(&format!("{}{input}", "[".repeat(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_mended_and_pairs_stay() {
        let text = r#"{"a":"\ud83d\ude00 \ud800 \\ud800 \udc00\ud800"}"#;
        let mended = r#"{"a":"\ud83d\ude00 \ufffd \\ud800 \ufffd\ufffd"}"#;
        assert_eq!(without_lone_surrogates(text).as_deref(), Some(mended));
        assert_eq!(without_lone_surrogates(r#""\ud83d\ude00 \\ud800""#), None);
    }

    #[test]
    fn nesting_is_counted_outside_of_texts() {
        assert!(!is_deep(&format!("{}\"{}\"{}", "[".repeat(128), "[".repeat(999), "]".repeat(128))));
        assert!(is_deep(&"[".repeat(129)));
    }

    #[test]
    fn the_last_of_equal_fields_stands() {
        let fields = Fields::parse(r#"{"a":"1","a":"2"}"#).expect("parses");
        assert_eq!(fields.must("a").expect("a text"), "2");
    }

    #[test]
    fn an_object_stays_one_and_anything_else_is_wrapped() {
        assert_eq!(object("{\"n\": 1e2}").get(), "{\"n\": 1e2}");
        assert_eq!(object(" {\r\n\t\"a\\n\":\n[1]}\n").get(), "{  \t\"a\\n\": [1]}");
        for input in ["", "[1]", "{\"a\":\"\n\"}", "{\n}}", "{", "7", "\u{a0}{}"] {
            assert_eq!(object(input).get(), format!("{{\"input\":{}}}", quoted(input)));
        }
    }
}
