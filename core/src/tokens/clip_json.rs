//! Clips JSON so that it stays valid JSON.

use std::ops::Range;

use super::{Encoding, Tokens};

/// JSON without some of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClippedJson {
    /// Valid JSON. Long strings keep head and tail, long arrays and objects keep their first and
    /// last entries.
    pub text: String,
    /// Tokens of `text`.
    pub tokens: Tokens,
    /// The byte ranges of the original that were left out, in order.
    pub omitted: Vec<Range<usize>>,
}

/// Number of levels of detail. Level 0 is the most detailed; the last level keeps less than a
/// hundredth of what level 0 keeps.
const LEVELS: u32 = 24;
/// Containers (arrays and objects) that are nested deeper than this are kept or left out as a
/// whole.
const MAX_DEPTH: usize = 12;
/// Fewest bytes that are kept of a string that is cut. With fewer, the marker would be most of the
/// string.
const MIN_STRING: usize = 24;
/// Fewest bytes that a cut must leave out, so that it is worth its marker.
const MIN_SAVED: usize = 60;

/// Clips JSON text to at most `limit` tokens. `None` if not even its least detailed form fits.
/// `text` must be valid JSON.
///
/// White space between values may be dropped as well. Where something is left out, the text that
/// `marker` returns for the byte range takes its place: inside a clipped string, as a value, as an
/// entry of an array, or as an entry of an object. `marker` is called several times.
pub fn clip_json(
    encoding: Encoding,
    text: &str,
    limit: Tokens,
    marker: impl Fn(Range<usize>) -> String,
) -> Option<ClippedJson> {
    // An entry takes about four tokens or more. At most 256 first and 256 last entries are held, to
    // bound the memory.
    let most_entries = (limit.get() / 4).clamp(2, 256) as usize;
    let tree = Reader {
        text,
        at: 0,
        held_at_each_end: most_entries,
    }
    .read_value(0)?;
    let attempt = |level: u32| {
        // Each level keeps four fifths of what the level before keeps.
        let scale = |full: u64, least: usize| {
            ((full as f64 * 0.8_f64.powi(level as i32)) as usize).max(least)
        };
        let detail = Detail {
            // A token has about four bytes.
            string_bytes: scale(limit.get().saturating_mul(4), MIN_STRING),
            entries: scale(most_entries as u64, 1),
        };
        let mut writer = Writer {
            text,
            detail,
            marker: &marker,
            out: String::new(),
            omitted: Vec::new(),
        };
        writer.write_value(&tree);
        let tokens = encoding.counter().count_up_to(&writer.out, limit)?;
        Some(ClippedJson {
            text: writer.out,
            tokens,
            omitted: writer.omitted,
        })
    };
    // A binary search for the most detailed level that fits.
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

/// A value: its byte range in the text, and for a container those of its entries that may be kept.
struct Node {
    span: Range<usize>,
    kind: Kind,
}

enum Kind {
    /// A number, a literal, or a container that is nested too deep.
    Plain,
    String,
    Array(Entries),
    Object(Entries),
}

/// The first and last entries of a container, and how many entries it has.
#[derive(Default)]
struct Entries {
    head: Vec<Entry>,
    /// Ring buffer: the newest entry replaces the oldest.
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
        if self.key.is_empty() {
            self.value.span.clone()
        } else {
            self.key.start..self.value.span.end
        }
    }
}

impl Entries {
    fn push(&mut self, entry: Entry, held_at_each_end: usize) {
        self.count += 1;
        if self.head.len() < held_at_each_end {
            self.head.push(entry);
            return;
        }
        if self.tail.len() == held_at_each_end {
            self.tail.pop_front();
        }
        self.tail.push_back(entry);
    }

    fn len(&self) -> usize {
        self.count
    }

    /// The entry at this index, if it is held as one of the first or last ones.
    fn get(&self, index: usize) -> Option<&Entry> {
        let tail_start = self.count - self.tail.len();
        if index < self.head.len() {
            self.head.get(index)
        } else {
            self.tail.get(index.checked_sub(tail_start)?)
        }
    }
}

/// Parses text that is known to be valid JSON.
struct Reader<'t> {
    text: &'t str,
    /// Byte offset of the next byte to read.
    at: usize,
    /// Number of first entries, and of last entries, that are held for each container.
    held_at_each_end: usize,
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

    fn read_value(&mut self, depth: usize) -> Option<Node> {
        self.skip_space();
        let start = self.at;
        let kind = match self.peek()? {
            b'"' => {
                self.skip_string();
                Kind::String
            }
            b'{' | b'[' if depth >= MAX_DEPTH => {
                self.skip_container();
                Kind::Plain
            }
            b'[' => Kind::Array(self.read_entries(depth, false)?),
            b'{' => Kind::Object(self.read_entries(depth, true)?),
            _ => {
                self.skip(|byte| {
                    !matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n')
                });
                Kind::Plain
            }
        };
        Some(Node {
            span: start..self.at,
            kind,
        })
    }

    fn read_entries(&mut self, depth: usize, keyed: bool) -> Option<Entries> {
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
                self.skip_string();
                key.end = self.at;
                self.skip(|byte| byte != b':');
                self.at += 1;
            }
            let value = self.read_value(depth + 1)?;
            entries.push(Entry { key, value }, self.held_at_each_end);
            self.skip_space();
            if self.peek()? == b',' {
                self.at += 1;
            }
        }
    }

    /// Skips a string, including its closing quote.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }

    /// Skips a container, including its closing bracket, without parsing its entries.
    fn skip_container(&mut self) {
        let mut open_containers = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => open_containers += 1,
                b'}' | b']' => open_containers -= 1,
                _ => {}
            }
            self.at += 1;
            if open_containers == 0 {
                return;
            }
        }
    }
}

/// How much one level of detail keeps.
#[derive(Clone, Copy)]
struct Detail {
    /// Bytes of a string.
    string_bytes: usize,
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
    fn write_value(&mut self, node: &Node) {
        match &node.kind {
            Kind::Plain if node.span.len() > self.detail.string_bytes + MIN_SAVED => {
                let mark = self.leave_out(node.span.clone());
                self.out.push_str(&quoted(&mark));
            }
            Kind::Plain => self.out.push_str(&self.text[node.span.clone()]),
            Kind::String => self.write_string(&node.span),
            Kind::Array(entries) => self.write_entries(entries, '[', ']'),
            Kind::Object(entries) => self.write_entries(entries, '{', '}'),
        }
    }

    /// Records the range as left out. Returns the marker for it.
    fn leave_out(&mut self, range: Range<usize>) -> String {
        self.omitted.push(range.clone());
        (self.marker)(range)
    }

    /// Writes a string, without its middle if it is long. Cuts fall between characters and between
    /// escapes.
    fn write_string(&mut self, span: &Range<usize>) {
        if span.len() <= self.detail.string_bytes + MIN_SAVED {
            self.out.push_str(&self.text[span.clone()]);
            return;
        }
        let inner = span.start + 1..span.end - 1;
        let (latest_head_end, earliest_tail_start) = (
            inner.start + self.detail.string_bytes / 2,
            inner.end - self.detail.string_bytes / 2,
        );
        let (mut head_end, mut tail_start, mut at) = (inner.start, inner.end, inner.start);
        while at < inner.end {
            if at <= latest_head_end {
                head_end = at;
            }
            if at >= earliest_tail_start {
                tail_start = at;
                break;
            }
            at += unit_bytes(&self.text[at..inner.end]);
        }
        let mark = self.leave_out(head_end..tail_start);
        let mark = quoted(&mark);
        self.out.push_str(&self.text[span.start..head_end]);
        self.out.push_str(&mark[1..mark.len() - 1]);
        self.out.push_str(&self.text[tail_start..span.end]);
    }

    /// Writes a container. If it has many entries, a marker entry replaces the middle ones.
    fn write_entries(&mut self, entries: &Entries, open: char, close: char) {
        self.out.push(open);
        let most = self.detail.entries.min(entries.head.len().max(1));
        // A single entry is not left out, because the marker would take its place.
        let keeps_all = entries.len() <= most + 1
            && (0..entries.len()).all(|index| entries.get(index).is_some());
        let (head, tail) = if keeps_all {
            (entries.len(), 0)
        } else {
            (most.div_ceil(2), most / 2)
        };
        for index in 0..head {
            self.write_entry(entries, index);
        }
        let middle = head..entries.len() - tail;
        let ends = entries
            .get(middle.start)
            .zip(entries.get(middle.end.saturating_sub(1)));
        if !middle.is_empty() {
            let range = ends.map_or(0..0, |(first, last)| first.span().start..last.span().end);
            self.write_comma();
            if open == '{' {
                self.out
                    .extend(["\"[", &middle.len().to_string(), " entries left out]\":"]);
            }
            let mark = self.leave_out(range);
            self.out.push_str(&quoted(&mark));
        }
        for index in entries.len() - tail..entries.len() {
            self.write_entry(entries, index);
        }
        self.out.push(close);
    }

    fn write_entry(&mut self, entries: &Entries, index: usize) {
        let Some(entry) = entries.get(index) else {
            return;
        };
        self.write_comma();
        if !entry.key.is_empty() {
            self.out.push_str(&self.text[entry.key.clone()]);
            self.out.push(':');
        }
        self.write_value(&entry.value);
    }

    /// Writes a comma, unless the container was just opened.
    fn write_comma(&mut self) {
        if !self.out.ends_with(['[', '{']) {
            self.out.push(',');
        }
    }
}

/// Bytes of the character or escape at the start of a string's content. A surrogate pair is one
/// escape.
fn unit_bytes(text: &str) -> usize {
    let Some(first) = text.chars().next() else {
        return 1;
    };
    if first != '\\' {
        return first.len_utf8();
    }
    let bytes = text.as_bytes();
    let surrogate = |at: usize, digits: &[u8]| {
        bytes.get(at..at + 2) == Some(b"\\u")
            && bytes
                .get(at + 2)
                .is_some_and(|byte| byte.eq_ignore_ascii_case(&b'd'))
            && bytes
                .get(at + 3)
                .is_some_and(|byte| digits.contains(&byte.to_ascii_lowercase()))
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
