//! Cuts a text into blocks of one kind each: prose, JSON, code, diff, log or table.

use super::{code, json, log, work};

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Prose,
    Json,
    Code,
    Diff,
    Log,
    Table,
}

/// A run of text of one kind.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// The outline of a JSON block.
    pub(crate) shape: Option<json::Shape>,
}

/// After this many blocks of a text, only code fences begin another one, because each block takes
/// memory.
const MAX_BLOCKS: usize = 256;
/// Fewest lines of a block of code, log or table outside a code fence; a shorter run counts as
/// prose.
const MIN_RUN_LINES: usize = 4;
/// Bytes of a line, or of a JSON text, that are read to guess its kind.
const GUESS_BYTES: usize = 200;

/// The blocks of a text, in order. Together they are the text without its blank blocks.
pub(crate) fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut splitter = BlockSplitter {
        text,
        start: 0,
        kind: Kind::Prose,
        lines: 0,
        fence: None,
        found: &mut found,
    };
    let mut at = 0;
    while at < text.len() {
        let line = text[at..].split_inclusive('\n').next().unwrap_or_default();
        work::tick(line.len().min(GUESS_BYTES) + 1);
        if splitter.fence.is_none()
            && splitter.found.len() < MAX_BLOCKS
            && !matches!(splitter.kind, Kind::Code | Kind::Diff | Kind::Log)
            && let Some(open) = json_in(line, &text[at..])
        {
            let (shape, taken) = json::outline(&text[at + open..]);
            let json = Block {
                kind: Kind::Json,
                text: &text[at + open..at + open + taken],
                shape: Some(shape),
            };
            splitter.cut(at + open);
            splitter.found.push(json);
            at += open + taken;
            (splitter.start, splitter.kind, splitter.lines) = (at, Kind::Prose, 0);
            continue;
        }
        splitter.line(at, line);
        at += line.len();
    }
    splitter.cut(text.len());
    merged(text, found)
}

struct BlockSplitter<'a, 'f> {
    text: &'a str,
    /// Where the current run begins.
    start: usize,
    /// The kind of the current run.
    kind: Kind,
    /// Lines of the current run that are not blank.
    lines: usize,
    /// The mark that closes the current code fence.
    fence: Option<&'static str>,
    found: &'f mut Vec<Block<'a>>,
}

impl<'a> BlockSplitter<'a, '_> {
    fn line(&mut self, at: usize, line: &'a str) {
        let body = line.trim();
        if let Some(mark) = self.fence {
            if body.starts_with(mark) {
                self.cut(at + line.len());
                (self.kind, self.fence) = (Kind::Prose, None);
            }
            return;
        }
        if body.starts_with("```") || body.starts_with("~~~") {
            self.cut(at);
            self.fence = Some(if body.starts_with('`') { "```" } else { "~~~" });
            self.kind = Kind::Code;
            return;
        }
        let kind = if body.is_empty() {
            self.kind
        } else {
            kind_of_line(line, self.kind)
        };
        if kind != self.kind && self.found.len() < MAX_BLOCKS {
            self.cut(at);
            (self.kind, self.lines) = (kind, 0);
        }
        self.lines += usize::from(!body.is_empty());
    }

    /// Ends the current block before `end`.
    fn cut(&mut self, end: usize) {
        let text = &self.text[self.start..end];
        self.start = end;
        if text.is_empty() {
            return;
        }
        let fenced = self.fence.is_some();
        // A short run of another kind is part of the text around it.
        let kind = if !fenced && self.lines < MIN_RUN_LINES && self.kind != Kind::Diff {
            None
        } else {
            Some(self.kind)
        };
        let kind = if fenced {
            kind_of_fence(text)
        } else {
            kind.unwrap_or(Kind::Prose)
        };
        self.found.push(Block {
            kind,
            text,
            shape: None,
        });
        self.lines = 0;
    }
}

/// The kind of a fenced block, by its first lines.
fn kind_of_fence(text: &str) -> Kind {
    let inner = text.lines().skip(1).take(40);
    let (mut logs, mut diffs, mut tables, mut total) = (0, 0, 0, 1);
    for line in inner {
        total += 1;
        match kind_of_line(line, Kind::Code) {
            Kind::Log => logs += 1,
            Kind::Diff => diffs += 1,
            Kind::Table => tables += 1,
            _ => {}
        }
    }
    match () {
        () if diffs > 0 => Kind::Diff,
        () if logs * 2 > total => Kind::Log,
        () if tables * 2 > total => Kind::Table,
        () => Kind::Code,
    }
}

/// Joins adjacent blocks of one kind, except JSON. A short run of prose between two blocks of code,
/// two of log or two of diff is joined with them.
fn merged<'a>(text: &'a str, found: Vec<Block<'a>>) -> Vec<Block<'a>> {
    let offset = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    let mut out: Vec<Block<'a>> = Vec::new();
    let join = |out: &mut Vec<Block<'a>>, block: Block<'a>| {
        if let Some(last) = out.last_mut()
            && last.kind == block.kind
            && block.kind != Kind::Json
        {
            let start = offset(last.text);
            last.text = &text[start..offset(block.text) + block.text.len()];
            return;
        }
        out.push(block);
    };
    for block in found {
        if let [.., before, between] = out.as_mut_slice()
            && before.kind == block.kind
            && between.kind == Kind::Prose
            && matches!(block.kind, Kind::Code | Kind::Log | Kind::Diff)
            && between.text.lines().take(7).count() < 7
            && between.text.len() < 600
        {
            between.kind = block.kind;
            if let Some(between) = out.pop() {
                join(&mut out, between);
            }
        }
        join(&mut out, block);
    }
    out.retain(|block| !block.text.trim().is_empty());
    out
}

/// Where in the line a JSON text begins, judged by its first bytes without reading all of it.
fn json_in(line: &str, rest: &str) -> Option<usize> {
    let open = line
        .bytes()
        .take(GUESS_BYTES)
        .position(|b| matches!(b, b'{' | b'['))?;
    // `x = {"a": 1}` and `f({"a": 1})` are code; `result: {"a": 1}` is JSON after a word.
    // If `before` ends at `open`, no blank stands between the word and the bracket.
    let before = line[..open].trim_end();
    if !before.is_empty()
        && (before.len() == open && !before.ends_with([':', '>'])
            || before.ends_with(['=', '(', ',', '+']))
    {
        return None;
    }
    let mut ahead = rest.as_bytes()[open..]
        .iter()
        .take(GUESS_BYTES)
        .copied()
        .filter(|b| !b.is_ascii_whitespace());
    let mut opened = ahead.next()?;
    for _ in 0..8 {
        let next = ahead.next()?;
        match (opened, next) {
            (b'{', b'"') => {
                // A key: text up to its quote, then a colon.
                let mut escaped = false;
                let closes = ahead.by_ref().any(|b| {
                    let closes = b == b'"' && !escaped;
                    escaped = b == b'\\' && !escaped;
                    closes
                });
                return (closes && ahead.next() == Some(b':')).then_some(open);
            }
            (b'[', b'[' | b'{') => opened = next,
            (b'[', b'"') => return ahead.any(|b| matches!(b, b',' | b']')).then_some(open),
            (b'[', b'0'..=b'9' | b'-') => {
                let mut number = ahead
                    .skip_while(|b| matches!(b, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'));
                return (number.next() == Some(b',')
                    && number.next().is_some_and(|b| b.is_ascii_digit()))
                .then_some(open);
            }
            _ => return None,
        }
    }
    // Nested arrays only: treated as JSON, because an outline is the best digest.
    Some(open)
}

/// The kind of a line within a block of kind `around`.
fn kind_of_line(line: &str, around: Kind) -> Kind {
    let line = super::text::head(line, GUESS_BYTES);
    let body = line.trim();
    if line.starts_with("diff --git ")
        || line.starts_with("@@ -")
        || around == Kind::Diff && line.starts_with(['+', '-', ' ', '\\', 'i', 'n', 'd'])
    {
        return Kind::Diff;
    }
    if body.contains('|') && body.matches('|').count() > 1 && body.starts_with('|')
        || body.matches('\t').count() > 1
        || is_csv(body, around)
    {
        return Kind::Table;
    }
    if log::time_of(line).is_some_and(|time| time.len() > 7)
        && !body.starts_with(['"', '\'', '{'])
        && body.len() > 20
        || has_log_level(body)
    {
        return Kind::Log;
    }
    let indented = line.starts_with(['\t', ' ']);
    if around == Kind::Log
        && (indented || body.starts_with("Traceback") || body.starts_with("Caused by"))
    {
        return Kind::Log;
    }
    if is_code(body) || around == Kind::Code && (indented || !body.contains(' ')) {
        return Kind::Code;
    }
    Kind::Prose
}

fn has_log_level(body: &str) -> bool {
    let start = body.get(..60).unwrap_or(body);
    let mut words = start.split(|c: char| !c.is_ascii_alphabetic());
    words.any(|word| {
        matches!(
            word,
            "INFO" | "WARN" | "WARNING" | "ERROR" | "DEBUG" | "TRACE" | "FATAL" | "CRITICAL"
        )
    }) && start
        .bytes()
        .any(|b| b.is_ascii_digit() || matches!(b, b'[' | b':'))
}

fn is_csv(body: &str, around: Kind) -> bool {
    let commas = body.matches(',').count();
    let spaced_commas = body.matches(", ").count();
    commas >= if around == Kind::Table { 2 } else { 3 }
        && spaced_commas == 0
        && !body.ends_with(['{', ';', '('])
        && body.len() < GUESS_BYTES
}

fn is_code(body: &str) -> bool {
    if code::signature_rank(body).is_some() {
        return true;
    }
    let is_comment = ["//", "/*", "*/", "#!", "<!--", "-- "]
        .iter()
        .any(|mark| body.starts_with(mark));
    let ends_like_code = body.ends_with([';', '{', '}'])
        || body.ends_with("};")
        || body.ends_with("):")
        || body.ends_with(");");
    let begins_like_code = [
        "if ", "elif ", "else:", "return ", "for ", "while ", "try:", "except ", "raise ", "self.",
        "$ ", "let ", "const ", "var ", "@",
    ]
    .iter()
    .any(|start| body.starts_with(start));
    let marks = body
        .bytes()
        .filter(|b| {
            matches!(
                b,
                b'(' | b')' | b'=' | b'{' | b'}' | b';' | b'[' | b']' | b'<' | b'>' | b'_'
            )
        })
        .count();
    is_comment
        || ends_like_code && body.len() > 1
        || ends_like_code && marks > 0
        || begins_like_code && marks > 1
        || marks >= 4 && marks * 8 > body.len()
        || body.contains(" = ") && marks > 1
}
