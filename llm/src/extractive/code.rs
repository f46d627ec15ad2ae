//! Code: its signatures in order, whatever the language; a doc line or a mark such as TODO where there is room.

use super::{
    fit::{Best, Scale, lines},
    text, work,
};

/// Characters shown of a line.
const SHOWN: usize = 200;
/// Bytes of a line that are read.
const READ: usize = 400;

/// The signatures that fit, with two spaces per level; first a line that says how much they stand for.
pub(crate) fn digest(code: &str, scale: Scale<'_>, room: u64) -> String {
    let mut best = Best::for_room(room);
    let (mut total, mut after_signature) = (0, false);
    for (at, line) in code.lines().enumerate() {
        let line = text::head(line, READ).trim_end();
        work::tick(line.len() + 1);
        let body = line.trim_start();
        if body.is_empty() || body.starts_with("```") || body.starts_with("~~~") {
            continue;
        }
        total += 1;
        let indent = indent_of(line);
        let rank = rank(body, indent).or_else(|| after_signature.then(|| doc_rank(body)).flatten());
        after_signature = signature(body).is_some_and(|kind| kind >= 2.0);
        // What is no signature fills the room that is left, the beginning first.
        let rank = rank.unwrap_or_else(|| if body.len() > 2 { 0.3 / (1.0 + at as f32 / 10.0) } else { 0.0 });
        if rank > 0.0 {
            best.offer(at, rank, || shown(body, indent));
        }
    }
    let header = format!("[code ×{total}]");
    let left = room.saturating_sub(scale.weigh(&header) + 1);
    let kept = lines(&best.fit(scale, left));
    if kept.is_empty() { scale.clip(&header, room) } else { format!("{header}\n{kept}") }
}

/// The line as shown: indented by level, without the brace that opens its body.
fn shown(body: &str, indent: usize) -> String {
    let body = body.strip_suffix('{').unwrap_or(body).trim_end();
    format!("{:1$}{2}", "", indent.min(4) * 2, text::clip(&text::fold(body), SHOWN))
}

fn indent_of(line: &str) -> usize {
    let columns: usize = line.bytes().take_while(u8::is_ascii_whitespace).map(|b| if b == b'\t' { 4 } else { 1 }).sum();
    columns.div_ceil(4)
}

fn rank(body: &str, indent: usize) -> Option<f32> {
    if let Some(kind) = signature(body) {
        return Some(kind - indent.min(6) as f32 * 0.25);
    }
    let marked = ["TODO", "FIXME", "HACK", "XXX", "SAFETY"].iter().any(|mark| body.contains(mark));
    marked.then_some(2.2)
}

fn doc_rank(body: &str) -> Option<f32> {
    (body.starts_with("\"\"\"") || body.starts_with("'''") || body.starts_with("/*")).then_some(1.2)
}

/// How telling a declaration the line is; `None` when it is none.
pub(crate) fn signature(body: &str) -> Option<f32> {
    let plain = unqualified(body);
    let word =
        plain.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '#' | '!'))).next().unwrap_or_default();
    let named = plain[word.len()..]
        .trim_start()
        .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '(' | '<' | '*' | '$' | '{' | '"' | '.' | '@'));
    match word {
        "class" | "struct" | "enum" | "trait" | "interface" | "impl" | "protocol" | "record" | "union"
        | "extension"
            if named =>
        {
            Some(4.5)
        }
        "fn" | "def" | "func" | "function" | "fun" | "sub" | "macro_rules!" if named => Some(4.0),
        "type" | "typedef" | "namespace" | "module" | "mod" | "package" | "object" if named && !body.contains(". ") => {
            Some(3.0)
        }
        "import" | "from" | "use" | "using" | "#include" | "require" if is_import(plain, word) => Some(1.6),
        "#define" => Some(1.8),
        "const" | "let" | "var" if plain.contains("=>") || plain.contains("function") => Some(3.5),
        _ if is_sql(plain) => Some(3.5),
        _ if is_method(plain) => Some(3.6),
        _ if is_constant(plain) => Some(1.4),
        _ => None,
    }
}

fn unqualified(body: &str) -> &str {
    let mut rest = body;
    for _ in 0..6 {
        let word = rest.split([' ', '(']).next().unwrap_or_default();
        let qualifies = matches!(
            word,
            "pub"
                | "async"
                | "export"
                | "default"
                | "static"
                | "public"
                | "private"
                | "protected"
                | "final"
                | "abstract"
                | "unsafe"
                | "extern"
                | "virtual"
                | "inline"
                | "override"
                | "declare"
                | "internal"
                | "sealed"
                | "data"
                | "partial"
                | "readonly"
        ) || word == "const" && rest.starts_with("const fn ");
        if !qualifies {
            break;
        }
        let after = rest[word.len()..].trim_start();
        // `pub(crate)`
        rest = if after.starts_with('(') && word == "pub" {
            after.split_once(')').map_or(after, |(_, after)| after)
        } else {
            after
        }
        .trim_start();
    }
    rest
}

fn is_import(plain: &str, word: &str) -> bool {
    match word {
        "from" => plain.contains(" import "),
        "use" | "using" => plain.ends_with(';') || plain.contains("::"),
        "import" => !plain.ends_with('.'),
        _ => true,
    }
}

fn is_sql(plain: &str) -> bool {
    let Some(head) = plain.get(..plain.len().min(14)).or_else(|| plain.get(..6)) else { return false };
    let head = head.to_ascii_lowercase();
    ["create ", "alter table ", "insert into ", "drop table ", "delete from "]
        .iter()
        .any(|start| head.starts_with(start.get(..14).unwrap_or(start)))
        && plain.contains(['(', ';', '_'])
}

/// `Type name(arguments) {`, `name() {`: a method of Java, C, C++, C#, or a shell function.
fn is_method(plain: &str) -> bool {
    let Some((before, after)) = plain.split_once('(') else { return false };
    if !(plain.ends_with('{') || plain.ends_with(')') && after.ends_with(')') && before.contains(' '))
        || before.contains(['=', '.', '"', '\'', ';'])
    {
        return false;
    }
    let mut words = before.split_whitespace();
    let first = words.next().unwrap_or_default();
    let control = [
        "if", "for", "while", "switch", "return", "else", "catch", "match", "elif", "with", "except", "assert", "and",
        "or", "not", "new", "}", "in", "raise", "throw", "print", "yield", "await", "case", "when", "unless", "#",
        "//", "*", "-", "#ifdef", "let", "const", "var",
    ];
    let count = words.count();
    !control.contains(&first)
        && !first.is_empty()
        && count <= 4
        && before.chars().all(|c| c.is_alphanumeric() || " _*&:<>,~[]".contains(c))
        && (count > 0 || plain.ends_with('{'))
}

fn is_constant(plain: &str) -> bool {
    let name =
        plain.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).next().unwrap_or_default();
    name.len() > 3
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && plain[name.len()..].trim_start().starts_with(['=', ':'])
}
