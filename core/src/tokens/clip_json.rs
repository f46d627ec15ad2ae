//! Clipping JSON so that it stays JSON.

use std::ops::Range;

use super::{Encoding, Tokens};

/// JSON of which parts were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClippedJson {
    /// JSON again: long strings keep head and tail, long arrays and objects their first and last entries.
    pub text: String,
    /// What `text` counts.
    pub tokens: Tokens,
    /// The bytes of the original that were left out, in order.
    pub omitted: Vec<Range<usize>>,
}

/// Levels of detail, from the fullest to the barest.
const LEVELS: u32 = 24;
/// Containers in containers up to this depth are looked into; deeper ones are kept or left out whole.
const DEPTH: usize = 12;
/// The least that is kept of a string, in bytes; a shorter one is never cut, for the marker is as long.
const LEAST_STRING: usize = 24;
/// What a cut must save for it to be worth its marker, in bytes.
const MARKER: usize = 60;

/// The JSON text with as much left out as is needed for it to count at most `room`. `None` when not even its barest
/// form fits. The text must be JSON.
///
/// White space between values may go as well. Where something is left out stands a string with `marker` of its byte range: within the string that was cut, among
/// the entries of an array, or as an entry of an object. `marker` is called a few times.
pub fn clip_json(
    encoding: Encoding,
    text: &str,
    room: Tokens,
    marker: impl Fn(Range<usize>) -> String,
) -> Option<ClippedJson> {
    let entries = (room.get() / 4).clamp(2, 256) as usize;
    let tree = Reader { text, at: 0, most: entries }.value(0)?;
    let attempt = |level: u32| {
        // Each level shows four fifths of the one before.
        let scale = |full: u64, least: usize| ((full as f64 * 0.8_f64.powi(level as i32)) as usize).max(least);
        let detail =
            Detail { string: scale(room.get().saturating_mul(4), LEAST_STRING), entries: scale(entries as u64, 1) };
        let mut written = Writer { text, detail, marker: &marker, out: String::new(), omitted: Vec::new() };
        written.value(&tree);
        let tokens = encoding.counter().count_up_to(&written.out, room)?;
        Some(ClippedJson { text: written.out, tokens, omitted: written.omitted })
    };
    let (mut low, mut high) = (0, LEVELS - 1);
    let mut best = None;
    while low <= high {
        let level = u32::midpoint(low, high);
        match attempt(level) {
            Some(fits) => {
                best = Some(fits);
                if level == 0 {
                    break;
                }
                high = level - 1;
            }
            None => low = level + 1,
        }
    }
    best
}

/// A value's place in the text, and what is in it as far as it may be shown.
struct Node {
    span: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// Number, literal, or a container too deep to look into.
    Plain,
    String,
    Array(Entries),
    Object(Entries),
}

/// The first and last entries of a container.
#[derive(Default)]
struct Entries {
    head: Vec<Entry>,
    /// As a ring: the newest overwrites the oldest.
    tail: std::collections::VecDeque<Entry>,
    count: usize,
}

/// An entry: from its key, if it has one, to the end of its value.
struct Entry {
    key: Range<usize>,
    value: Node,
}

impl Entry {
    fn span(&self) -> Range<usize> {
        if self.key.is_empty() { self.value.span.clone() } else { self.key.start..self.value.span.end }
    }
}

impl Entries {
    fn push(&mut self, entry: Entry, most: usize) {
        self.count += 1;
        if self.head.len() < most {
            self.head.push(entry);
            return;
        }
        if self.tail.len() == most {
            self.tail.pop_front();
        }
        self.tail.push_back(entry);
    }

    fn len(&self) -> usize {
        self.count
    }

    /// The entry at this place, of those that are held: the first and the last ones.
    fn get(&self, index: usize) -> Option<&Entry> {
        let tail = self.count - self.tail.len();
        if index < self.head.len() { self.head.get(index) } else { self.tail.get(index.checked_sub(tail)?) }
    }
}

/// Reads text that is known to be JSON.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// First, and last, entries of a container that are held.
    most: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skipped) {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    }

    fn value(&mut self, depth: usize) -> Option<Node> {
        self.skip_space();
        let start = self.at;
        let kind = match self.peek()? {
            b'"' => {
                self.string();
                Kind::String
            }
            b'{' | b'[' if depth >= DEPTH => {
                self.container();
                Kind::Plain
            }
            b'[' => Kind::Array(self.entries(depth, false)?),
            b'{' => Kind::Object(self.entries(depth, true)?),
            _ => {
                self.skip(|byte| !matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n'));
                Kind::Plain
            }
        };
        Some(Node { span: start..self.at, kind })
    }

    fn entries(&mut self, depth: usize, keyed: bool) -> Option<Entries> {
        let mut entries = Entries::default();
        self.at += 1;
        loop {
            self.skip_space();
            if matches!(self.peek()?, b']' | b'}') {
                self.at += 1;
                return Some(entries);
            }
            let mut key = self.at..self.at;
            if keyed {
                self.string();
                key.end = self.at;
                self.skip(|byte| byte != b':');
                self.at += 1;
            }
            let value = self.value(depth + 1)?;
            entries.push(Entry { key, value }, self.most);
            self.skip_space();
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
    }

    /// To behind a string's closing quote.
    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }

    /// To behind a container's closing bracket, without a look at what is in it.
    fn container(&mut self) {
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string();
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' => open -= 1,
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return;
            }
        }
    }
}

/// What is shown at most.
#[derive(Clone, Copy)]
struct Detail {
    /// Bytes of a string.
    string: usize,
    /// Entries of a container.
    entries: usize,
}

struct Writer<'t, M> {
    text: &'t str,
    detail: Detail,
    marker: &'t M,
    out: String,
    omitted: Vec<Range<usize>>,
}

impl<M: Fn(Range<usize>) -> String> Writer<'_, M> {
    fn value(&mut self, node: &Node) {
        match &node.kind {
            Kind::Plain if node.span.len() > self.detail.string + MARKER => {
                let mark = self.mark(node.span.clone());
                self.out.push_str(&quoted(&mark));
            }
            Kind::Plain => self.out.push_str(&self.text[node.span.clone()]),
            Kind::String => self.string(&node.span),
            Kind::Array(entries) => self.entries(entries, '[', ']'),
            Kind::Object(entries) => self.entries(entries, '{', '}'),
        }
    }

    fn mark(&mut self, range: Range<usize>) -> String {
        self.omitted.push(range.clone());
        (self.marker)(range)
    }

    /// A string, its middle left out when it is long. Cuts fall between characters, and between escapes.
    fn string(&mut self, span: &Range<usize>) {
        if span.len() <= self.detail.string + MARKER {
            self.out.push_str(&self.text[span.clone()]);
            return;
        }
        let inner = span.start + 1..span.end - 1;
        let (wanted_head, wanted_tail) = (inner.start + self.detail.string / 2, inner.end - self.detail.string / 2);
        let (mut head, mut tail, mut at) = (inner.start, inner.end, inner.start);
        while at < inner.end {
            if at <= wanted_head {
                head = at;
            }
            if at >= wanted_tail {
                tail = at;
                break;
            }
            at += unit(&self.text[at..inner.end]);
        }
        let mark = self.mark(head..tail);
        let mark = quoted(&mark);
        self.out.push_str(&self.text[span.start..head]);
        self.out.push_str(&mark[1..mark.len() - 1]);
        self.out.push_str(&self.text[tail..span.end]);
    }

    /// A container, its middle entries left out when there are many; one more entry says so.
    fn entries(&mut self, entries: &Entries, open: char, close: char) {
        self.out.push(open);
        let most = self.detail.entries.min(entries.head.len().max(1));
        let all = entries.len() <= most + 1 && (0..entries.len()).all(|index| entries.get(index).is_some());
        let (head, tail) = if all { (entries.len(), 0) } else { (most.div_ceil(2), most / 2) };
        for index in 0..head {
            self.entry(entries, index);
        }
        let rest = head..entries.len() - tail;
        let ends = entries.get(rest.start).zip(entries.get(rest.end.saturating_sub(1)));
        if !rest.is_empty() {
            let range = ends.map_or(0..0, |(first, last)| first.span().start..last.span().end);
            self.separate();
            if open == '{' {
                self.out.extend(["\"[", &rest.len().to_string(), " entries left out]\":"]);
            }
            let mark = self.mark(range);
            self.out.push_str(&quoted(&mark));
        }
        for index in entries.len() - tail..entries.len() {
            self.entry(entries, index);
        }
        self.out.push(close);
    }

    fn entry(&mut self, entries: &Entries, index: usize) {
        let Some(entry) = entries.get(index) else { return };
        self.separate();
        if !entry.key.is_empty() {
            self.out.push_str(&self.text[entry.key.clone()]);
            self.out.push(':');
        }
        self.value(&entry.value);
    }

    /// A comma, unless the container has just been opened.
    fn separate(&mut self) {
        if !self.out.ends_with(['[', '{']) {
            self.out.push(',');
        }
    }
}

/// Bytes of the character or escape at the start of a string's inside; a surrogate pair is one.
fn unit(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 1 };
    if first != '\\' {
        return first.len_utf8();
    }
    let bytes = text.as_bytes();
    let surrogate = |at: usize, digits: &[u8]| {
        bytes.get(at..at + 2) == Some(b"\\u")
            && bytes.get(at + 2).is_some_and(|byte| byte.eq_ignore_ascii_case(&b'd'))
            && bytes.get(at + 3).is_some_and(|byte| digits.contains(&byte.to_ascii_lowercase()))
    };
    match bytes.get(1) {
        Some(b'u') if surrogate(0, b"89ab") && surrogate(6, b"cdef") => 12,
        Some(b'u') => 6,
        _ => 2,
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
