//! The format of a body: empty, HTML, plain text, one JSON document, or a stream of events.

use serde_json::{Deserializer, Value};

/// A parsed body.
#[derive(Debug, PartialEq)]
pub(super) enum Body<'b> {
    Empty,
    /// HTML, from a proxy before the provider.
    Html,
    PlainText(&'b str),
    Json(Value),
    /// Server-sent events, or several JSON documents, usually one per line.
    Stream(Stream),
}

/// The events of a stream, in order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Stream {
    pub(super) events: Vec<Event>,
    /// Whether the stream holds `[DONE]`.
    pub(super) is_done: bool,
}

/// One event of a stream.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// An event that is named `error`, or a field `error:`. Text that is not JSON is a JSON string
    /// here.
    Error(Value),
    /// Any other event whose data is JSON.
    Other(Value),
}

/// Parses a body with this content type.
pub(super) fn parse<'b>(text: &'b str, content_type: Option<&str>) -> Body<'b> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        Body::Empty
    } else if is_markup(text) || content_type.is_some_and(|kind| is_html(kind.as_bytes())) {
        Body::Html
    } else if is_events(text) {
        Body::Stream(events(text))
    } else if text.starts_with(['{', '[', '"']) {
        serde_json::from_str(text).map_or_else(|_| lines(text), Body::Json)
    } else {
        Body::PlainText(text)
    }
}

/// Whether the text begins with a tag, a comment or a declaration of HTML or XML. DashScope begins
/// plain text with the status: `<400> …`.
fn is_markup(text: &str) -> bool {
    let rest = text.strip_prefix('<').unwrap_or_default();
    rest.starts_with(|next: char| next.is_ascii_alphabetic() || matches!(next, '!' | '/' | '?'))
}

/// Whether the content type is HTML. Media types are case-insensitive.
pub(crate) fn is_html(content_type: &[u8]) -> bool {
    let kind = content_type.trim_ascii_start();
    kind.get(.."text/html".len())
        .is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/html"))
}

fn is_events(text: &str) -> bool {
    let starts_with_field = ["data:", "event:", "id:", "retry:"]
        .iter()
        .any(|field| text.starts_with(field));
    // A line that begins with a colon is a comment, which keeps the connection open. Old versions
    // of llama.cpp send errors in a field `error:`.
    starts_with_field
        || text.starts_with(':')
        || field_of("error", text).is_some_and(|value| value.starts_with('{'))
}

/// Parses JSON documents, usually one per line. Keeps the objects before the first invalid
/// document. If there are none, the body is plain text.
fn lines(text: &str) -> Body<'_> {
    let documents = Deserializer::from_str(text)
        .into_iter::<Value>()
        .map_while(Result::ok);
    let events: Vec<Event> = documents
        .filter(Value::is_object)
        .map(Event::Other)
        .collect();
    if events.is_empty() {
        Body::PlainText(text)
    } else {
        Body::Stream(Stream {
            events,
            is_done: false,
        })
    }
}

fn field_of<'t>(name: &str, line: &'t str) -> Option<&'t str> {
    line.strip_prefix(name)?
        .strip_prefix(':')
        .map(str::trim_start)
}

/// Parses server-sent events, even if the last one lacks its blank line.
fn events(text: &str) -> Stream {
    let mut stream = Stream::default();
    let (mut name, mut data) = ("", String::new());
    for line in text.lines() {
        if line.is_empty() {
            dispatch(name, &data, &mut stream);
            (name, data) = ("", String::new());
        } else if let Some(value) = field_of("event", line) {
            name = value;
        } else if let Some(value) = field_of("data", line) {
            let separator = if data.is_empty() { "" } else { "\n" };
            data.push_str(separator);
            data.push_str(value);
        } else if let Some(value) = field_of("error", line) {
            dispatch("error", value, &mut stream);
        }
    }
    dispatch(name, &data, &mut stream);
    stream
}

/// Adds an event to the stream. Of data that is not JSON, only an error and the mark `[DONE]` are
/// kept.
fn dispatch(name: &str, data: &str, stream: &mut Stream) {
    let is_error = name.trim() == "error";
    match serde_json::from_str::<Value>(data) {
        Ok(value) if is_error => stream.events.push(Event::Error(value)),
        Ok(value) => stream.events.push(Event::Other(value)),
        Err(_) if is_error && !data.is_empty() => {
            stream.events.push(Event::Error(Value::from(data)));
        }
        Err(_) => stream.is_done |= data.trim() == "[DONE]",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_parsed_by_its_format() {
        assert_eq!(parse(" \r\n", None), Body::Empty);
        for page in [
            "<!DOCTYPE html>",
            "<HTML>",
            "</p>",
            "<?xml version=\"1.0\"?>",
        ] {
            assert_eq!(parse(page, None), Body::Html, "{page}");
        }
        for kind in ["text/html; charset=utf-8", "Text/HTML"] {
            assert_eq!(parse("sorry", Some(kind)), Body::Html, "{kind}");
        }
        for text in ["<400> InternalError.Algo: too long", "<", "< 3 tokens"] {
            assert_eq!(parse(text, Some("text/plain")), Body::PlainText(text));
        }
        assert_eq!(parse("error: sorry", None), Body::PlainText("error: sorry"));
        assert_eq!(
            parse("\u{feff}{\"a\":1}", None),
            Body::Json(json!({"a": 1}))
        );
        assert_eq!(parse("{broken", None), Body::PlainText("{broken"));
        let deep = "[".repeat(100_000);
        assert_eq!(parse(&deep, None), Body::PlainText(&deep));
    }

    #[test]
    fn events_are_read_with_any_line_ends_and_without_the_last_blank_line() {
        for text in [
            ": hi\n\ndata: {\"a\":1}\n\nevent: error\ndata: {\"b\":2}\n\ndata: [DONE]\n\n",
            "data:{\"a\":1}\r\n\r\nevent:error\r\ndata:{\"b\":2}\r\n\r\ndata: [DONE]",
            "data: {\"a\":1}\n\nerror: {\"b\":2}\n\ndata: [DONE]",
        ] {
            let events = vec![Event::Other(json!({"a": 1})), Event::Error(json!({"b": 2}))];
            assert_eq!(
                parse(text, None),
                Body::Stream(Stream {
                    events,
                    is_done: true
                }),
                "{text}"
            );
        }
    }

    #[test]
    fn json_lines_are_read_up_to_the_first_invalid_one() {
        let body = parse("{\"a\":1}\n{\"b\":2}\n{\"c\":", None);
        let events = vec![Event::Other(json!({"a": 1})), Event::Other(json!({"b": 2}))];
        assert_eq!(
            body,
            Body::Stream(Stream {
                events,
                is_done: false
            })
        );
    }
}
