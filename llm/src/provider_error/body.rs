//! The format of a body: empty, HTML, plain text, one JSON document, or a stream of events.

use serde_json::{Deserializer, Value};

/// Most bytes of a page whose text is read.
const MAX_PAGE_BYTES: usize = 8_192;
/// Elements whose text is not shown on the page itself.
const HIDDEN_TAGS: [&str; 4] = ["head", "title", "script", "style"];
/// Elements that are part of a line.
const INLINE_TAGS: [&str; 8] = ["a", "b", "i", "em", "strong", "span", "code", "tt"];

/// A parsed body.
#[derive(Debug, PartialEq)]
pub(super) enum Body<'b> {
    Empty,
    /// HTML, from a proxy before the provider.
    Html(&'b str),
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
        Body::Html(text)
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

/// The text of a page without its head, scripts and tags. Every tag ends a sentence, except one of
/// a part of a line.
pub(super) fn text_of_page(markup: &str) -> String {
    let mut text = String::new();
    let mut rest = &markup[..markup.floor_char_boundary(MAX_PAGE_BYTES)];
    while let Some((before, tag)) = rest.split_once('<') {
        text.push_str(before);
        let end = tag.find(|next: char| !next.is_ascii_alphanumeric() && next != '/');
        let name = &tag[..end.unwrap_or(tag.len())];
        let is_named = |other: &&&str| other.eq_ignore_ascii_case(name);
        let closing = if tag.starts_with("!--") { "-->" } else { ">" };
        rest = tag.split_once(closing).map_or("", |(_, rest)| rest);
        if let Some(hidden) = HIDDEN_TAGS.iter().find(is_named) {
            rest = after_element(hidden, rest);
        }
        let is_in_line = INLINE_TAGS
            .iter()
            .any(|other| other.eq_ignore_ascii_case(name.trim_start_matches('/')));
        if !is_in_line && text.ends_with(|last: char| !last.is_whitespace()) {
            let ends = text.ends_with(['.', '!', '?', ':']);
            text.push_str(if ends { " " } else { ". " });
        }
    }
    text.push_str(rest);
    text
}

/// The markup after the end tag of an element, whose text is not shown.
fn after_element<'m>(name: &str, markup: &'m str) -> &'m str {
    let mut tags = markup.match_indices("</");
    let end = tags.find(|(at, _)| {
        let tag = &markup.as_bytes()[at + 2..];
        tag.get(..name.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    });
    end.map_or("", |(at, _)| {
        markup[at..].split_once('>').map_or("", |(_, rest)| rest)
    })
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

/// The last line of a traceback as Python prints it, which has the error; None if it is none.
pub(super) fn last_of_traceback(text: &str) -> Option<&str> {
    text.trim_start()
        .strip_prefix("Traceback (most recent call last)")?
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
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
            assert_eq!(parse(page, None), Body::Html(page), "{page}");
        }
        for kind in ["text/html; charset=utf-8", "Text/HTML"] {
            assert_eq!(parse("sorry", Some(kind)), Body::Html("sorry"), "{kind}");
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
    fn a_page_is_read_without_its_head_and_tags() {
        for (page, text) in [
            (
                "<html><head><title>400</title></head><h1>Bad <b>one</b></h1><p>Too long.</p>",
                "Bad one. Too long. ",
            ),
            ("<body>a<br/>b<header>c</header></body>", "a. b. c. "),
            ("<SCRIPT>a</b></script >d", "d"),
            ("<!-- a > b -->c<p title='x'>d<", "c. d. "),
            ("<title>open", ""),
            ("sorry", "sorry"),
        ] {
            assert_eq!(text_of_page(page), text, "{page}");
        }
        assert!(text_of_page(&"word ".repeat(10_000)).len() <= MAX_PAGE_BYTES);
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
