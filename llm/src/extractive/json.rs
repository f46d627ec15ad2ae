//! Digest of JSON, valid or broken. The JSON is read in one pass into an outline of bounded size,
//! which is written with as much detail as the budget allows.

use std::fmt::Write as _;

use super::{text, token_counter::TokenCounter, work};

/// Most levels of nesting in the outline. A deeper array or object becomes [`Shape::Deep`].
const MAX_DEPTH: usize = 48;
/// When the outline has more nodes than this, a further entry of an array or an object replaces
/// the last one.
const MAX_NODES: usize = 20_000;
/// Most characters held of a string.
const MAX_TEXT_CHARS: usize = 1_000;

/// The outline of a value.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A string.
    Text {
        /// The whole string, or its first [`MAX_TEXT_CHARS`] characters.
        sample: String,
        is_whole: bool,
        /// Length of the string in the JSON, in bytes.
        bytes: usize,
    },
    /// A number, `true`, `null`, or any other text without quotes.
    Bare(String),
    /// An object or array.
    Many(Entries),
    /// An object or array that is nested deeper than [`MAX_DEPTH`].
    Deep,
}

/// The entries of an object or array.
#[derive(Debug)]
pub(crate) struct Entries {
    is_object: bool,
    /// The first entries and the last one, with their keys. The keys of an array's entries are
    /// empty.
    kept: Vec<(String, Shape)>,
    /// Number of all entries.
    total: usize,
}

impl Shape {
    fn nodes(&self) -> usize {
        match self {
            Self::Many(entries) => {
                1 + entries
                    .kept
                    .iter()
                    .map(|(_, shape)| shape.nodes())
                    .sum::<usize>()
            }
            _ => 1,
        }
    }
}

/// An object or array that is being read.
struct Frame {
    /// The entries so far.
    entries: Entries,
    /// The key of the next entry of an object, once it is read.
    key: Option<String>,
}

impl Frame {
    const fn new(is_object: bool) -> Self {
        Self {
            entries: Entries {
                is_object,
                kept: Vec::new(),
                total: 0,
            },
            key: None,
        }
    }
}

struct Scanner<'a> {
    text: &'a str,
    /// Index of the next byte to read.
    at: usize,
    /// The open objects and arrays. The outermost frame holds the values of the whole text.
    frames: Vec<Frame>,
    /// Number of open objects and arrays that are nested deeper than [`MAX_DEPTH`].
    deeper: usize,
    /// Number of nodes in the outline.
    nodes: usize,
}

/// The outline of the JSON values at the start of `text`, and their length in bytes. Several values
/// in a row (NDJSON) are read as one array. Invalid JSON is no error: it is read as far as
/// possible.
pub(crate) fn outline(text: &str) -> (Shape, usize) {
    let mut scanner = Scanner {
        text,
        at: 0,
        frames: vec![Frame::new(false)],
        deeper: 0,
        nodes: 0,
    };
    scanner.run();
    while scanner.frames.len() > 1 {
        scanner.close();
    }
    let (at, root) = (scanner.at, scanner.frames.pop());
    work::tick(at);
    let Some(mut root) = root.map(|frame| frame.entries) else {
        return (Shape::Deep, at);
    };
    let shape = match (root.total, root.kept.pop()) {
        (1, Some((_, only))) => only,
        (_, last) => {
            root.kept.extend(last);
            Shape::Many(root)
        }
    };
    (shape, at)
}

impl Scanner<'_> {
    fn run(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(&b) = bytes.get(self.at) {
            let at_root = self.frames.len() == 1 && self.deeper == 0;
            match b {
                b'{' | b'[' => self.open(b == b'{'),
                b if b.is_ascii_whitespace() => self.at += 1,
                // After the first value, only further objects and arrays are read (NDJSON).
                _ if at_root && self.frames[0].entries.total > 0 => return,
                b'}' | b']' => {
                    self.at += 1;
                    self.close();
                }
                b',' | b':' => self.at += 1,
                b'"' => self.string(),
                _ => self.bare(),
            }
        }
    }

    fn open(&mut self, is_object: bool) {
        self.at += 1;
        if self.deeper > 0 || self.frames.len() > MAX_DEPTH {
            if self.deeper == 0 {
                self.add(Shape::Deep);
            }
            self.deeper += 1;
        } else {
            self.frames.push(Frame::new(is_object));
        }
    }

    fn close(&mut self) {
        if self.deeper > 0 {
            self.deeper -= 1;
            return;
        }
        if self.frames.len() > 1
            && let Some(frame) = self.frames.pop()
        {
            // The frame's nodes were counted when they were added.
            self.add(Shape::Many(frame.entries));
        }
    }

    fn string(&mut self) {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut end = start;
        while end < bytes.len() && bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let mut end = end.min(bytes.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        self.at = (end + 1).min(bytes.len());
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
        if self.deeper > 0 {
            return;
        }
        let raw = &self.text[start.min(end)..end];
        if self
            .frames
            .last()
            .is_some_and(|frame| frame.entries.is_object && frame.key.is_none())
        {
            let next = bytes[self.at..]
                .iter()
                .position(|b| !b.is_ascii_whitespace())
                .map(|i| self.at + i);
            if let Some(colon) = next.filter(|i| bytes[*i] == b':') {
                self.at = colon + 1;
                if let Some(frame) = self.frames.last_mut() {
                    frame.key = Some(text::clip(&text::fold(text::head(raw, 80)), 64).into_owned());
                }
                return;
            }
        }
        let sample = text::head(raw, MAX_TEXT_CHARS);
        self.add(Shape::Text {
            sample: text::fold(&unescaped(sample)),
            is_whole: sample.len() == raw.len(),
            bytes: raw.len(),
        });
    }

    fn bare(&mut self) {
        let rest = &self.text[self.at..];
        let stop = |c: char| {
            c.is_ascii_whitespace() || matches!(c, ',' | ':' | '{' | '}' | '[' | ']' | '"')
        };
        let end = rest.find(stop).unwrap_or(rest.len()).max(1);
        let end = (end..=rest.len())
            .find(|i| rest.is_char_boundary(*i))
            .unwrap_or(rest.len());
        self.at += end;
        if self.deeper == 0 {
            self.add(Shape::Bare(text::clip(&rest[..end], 40).into_owned()));
        }
    }

    /// Adds a value to the innermost frame, which keeps its first values and the last one.
    fn add(&mut self, shape: Shape) {
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let entries = &mut frame.entries;
        entries.total += 1;
        let most = match (entries.is_object, depth) {
            (true, ..=3) => 64,
            (true, _) => 24,
            (false, _) => 4,
        };
        let key = frame.key.take().unwrap_or_default();
        self.nodes += 1;
        if entries.kept.len() >= if self.nodes > MAX_NODES { 1 } else { most }
            && let Some((_, replaced)) = entries.kept.pop()
        {
            self.nodes = self.nodes.saturating_sub(replaced.nodes());
        }
        entries.kept.push((key, shape));
    }
}

/// The string with its escapes replaced, except `\u` escapes of control characters and surrogates.
/// Escapes of white space become blanks.
fn unescaped(raw: &str) -> String {
    if !raw.contains('\\') {
        return raw.to_owned();
    }
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n' | 'r' | 't' | 'b' | 'f') => out.push(' '),
            Some('u') => {
                let code = u32::from_str_radix(chars.as_str().get(..4).unwrap_or_default(), 16);
                match code
                    .ok()
                    .and_then(char::from_u32)
                    .filter(|c| !c.is_control())
                {
                    Some(c) => {
                        chars.nth(3);
                        out.push(c);
                    }
                    None => out.push_str("\\u"),
                }
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    text::clean(&out).into_owned()
}

/// How much detail an outline is written with.
#[derive(Clone, Copy)]
struct Detail {
    /// Most characters of a string; 0: only its type.
    text: usize,
    /// Most entries of an object.
    keys: usize,
    /// Most items of an array.
    items: usize,
    /// Most levels of nesting.
    depth: usize,
}

/// The details that are tried, roughly from the longest outline to the shortest.
const DETAILS: [Detail; 15] = [
    Detail {
        text: 1000,
        keys: 64,
        items: 4,
        depth: 12,
    },
    Detail {
        text: 400,
        keys: 64,
        items: 4,
        depth: 12,
    },
    Detail {
        text: 160,
        keys: 64,
        items: 3,
        depth: 10,
    },
    Detail {
        text: 80,
        keys: 48,
        items: 3,
        depth: 8,
    },
    Detail {
        text: 60,
        keys: 32,
        items: 2,
        depth: 8,
    },
    Detail {
        text: 40,
        keys: 24,
        items: 2,
        depth: 6,
    },
    Detail {
        text: 32,
        keys: 16,
        items: 2,
        depth: 4,
    },
    Detail {
        text: 60,
        keys: 12,
        items: 1,
        depth: 4,
    },
    Detail {
        text: 40,
        keys: 10,
        items: 2,
        depth: 3,
    },
    Detail {
        text: 32,
        keys: 8,
        items: 1,
        depth: 3,
    },
    Detail {
        text: 24,
        keys: 12,
        items: 1,
        depth: 3,
    },
    Detail {
        text: 12,
        keys: 10,
        items: 1,
        depth: 2,
    },
    Detail {
        text: 12,
        keys: 6,
        items: 1,
        depth: 1,
    },
    Detail {
        text: 0,
        keys: 12,
        items: 1,
        depth: 1,
    },
    Detail {
        text: 0,
        keys: 6,
        items: 0,
        depth: 1,
    },
];

/// The first outline of [`DETAILS`] within `budget` tokens; the last one, clipped, if none fits.
pub(crate) fn digest(shape: &Shape, counter: TokenCounter<'_>, budget: u64) -> String {
    let mut out = String::new();
    for detail in DETAILS {
        out.clear();
        write_shape(&mut out, shape, detail, 0);
        // Hardly any outline has eight bytes per token, so one of more bytes does not fit.
        if out.len() as u64 <= budget.saturating_mul(8) && counter.count(&out) <= budget {
            return out;
        }
    }
    counter.clip(&out, budget)
}

fn write_shape(out: &mut String, shape: &Shape, detail: Detail, depth: usize) {
    match shape {
        Shape::Text { sample, .. } if detail.text == 0 => {
            out.push_str(if sample.is_empty() { "\"\"" } else { "str" });
        }
        Shape::Text {
            sample,
            is_whole,
            bytes,
        } => {
            let shown = text::head(sample, detail.text);
            if *is_whole && shown.len() == sample.len() {
                let _ = write!(out, "\"{shown}\"");
            } else {
                let _ = write!(out, "\"{shown}…\"({bytes})");
            }
        }
        Shape::Bare(word) => out.push_str(word),
        Shape::Deep => out.push('…'),
        Shape::Many(entries) => write_entries(out, entries, detail, depth),
    }
}

fn write_entries(out: &mut String, entries: &Entries, detail: Detail, depth: usize) {
    let Entries {
        is_object,
        ref kept,
        total,
    } = *entries;
    if is_object && depth >= detail.depth && !kept.is_empty() {
        // The values are too deep to be written, but the keys still describe the object.
        let keys: Vec<&str> = kept
            .iter()
            .take(detail.keys / 2)
            .map(|(key, _)| key.as_str())
            .collect();
        let more = if total > keys.len() {
            format!(" ×{total}")
        } else {
            String::new()
        };
        let _ = write!(out, "{{{}{more}}}", keys.join(", "));
        return;
    }
    let (open, close) = if is_object { ('{', '}') } else { ('[', ']') };
    out.push(open);
    let most = if is_object { detail.keys } else { detail.items };
    let most = if depth >= detail.depth { 0 } else { most };
    // The total of an array that is not written whole comes before its entries, and so does any
    // total if no entry is written. The total of another object comes after its entries.
    if !is_object && total > most.min(kept.len()) || most == 0 && total > 0 {
        let _ = write!(out, "×{total}{}", if most == 0 { "" } else { " " });
    }
    let one_per_line = depth == 0 && is_object;
    let mut shown = 0;
    for (at, (key, value)) in kept.iter().enumerate() {
        let last = at + 1 == kept.len();
        // Writes the first entries and the last one, because both together show how the entries
        // differ. If only one may be written, it is the first.
        if shown + 1 > most || shown + 1 == most && !last && most > 1 {
            continue;
        }
        let gap = last && total > shown + 1;
        out.push_str(match (shown, gap, one_per_line) {
            (0, ..) if !one_per_line => "",
            (0, ..) => "\n ",
            (_, true, true) => ",\n …,\n ",
            (_, true, false) => " … ",
            (_, false, true) => ",\n ",
            (_, false, false) => ", ",
        });
        if is_object {
            let _ = write!(out, "{key}: ");
        }
        write_shape(out, value, detail, depth + 1);
        shown += 1;
    }
    if is_object && most > 0 && total > shown {
        let _ = write!(out, " ×{total}");
    }
    if one_per_line {
        out.push('\n');
    }
    out.push(close);
}
