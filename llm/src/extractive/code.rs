//! Digest of code in any language: its signatures and, as far as the budget allows, lines with
//! marks such as TODO, the first lines of docs, and other lines, all in source order.

use super::{
    candidates::{TopCandidates, lines},
    text,
    token_counter::TokenCounter,
    work,
};

/// Most characters of a line in the digest.
const MAX_LINE_CHARS: usize = 200;
/// Most characters of a line that are read.
const MAX_READ_CHARS: usize = 400;

/// A header with the number of lines (without blank lines and code fences), then the lines of
/// highest rank that fit, in source order, indented by two spaces per level, at most four levels.
/// Declarations have the highest ranks.
pub(crate) fn digest(code: &str, counter: TokenCounter<'_>, budget: u64) -> String {
    let mut best = TopCandidates::for_budget(budget);
    let (mut total, mut after_signature) = (0, false);
    for (at, line) in code.lines().enumerate() {
        let line = text::head(line, MAX_READ_CHARS).trim_end();
        work::tick(line.len() + 1);
        let body = line.trim_start();
        if body.is_empty() || body.starts_with("```") || body.starts_with("~~~") {
            continue;
        }
        total += 1;
        let indent = indent_of(line);
        let rank = rank(body, indent).or_else(|| after_signature.then(|| doc_rank(body)).flatten());
        // Signatures of lower rank (imports and constants) have no doc string after them.
        after_signature = signature_rank(body).is_some_and(|rank| rank >= 2.0);
        // Other lines fill the rest of the budget, the first ones before the later ones.
        let rank = rank.unwrap_or_else(|| {
            if body.len() > 2 {
                0.3 / (1.0 + at as f32 / 10.0)
            } else {
                0.0
            }
        });
        if rank > 0.0 {
            best.offer(at, rank, || digest_line(body, indent));
        }
    }
    let header = format!("[code ×{total}]");
    let left = budget.saturating_sub(counter.count(&header) + 1);
    let kept = lines(&best.fit(counter, left));
    if kept.is_empty() {
        counter.clip(&header, budget)
    } else {
        format!("{header}\n{kept}")
    }
}

/// A line of the digest: indented by level, without the brace that opens a body.
fn digest_line(body: &str, indent: usize) -> String {
    let body = body.strip_suffix('{').unwrap_or(body).trim_end();
    format!(
        "{:1$}{2}",
        "",
        indent.min(4) * 2,
        text::clip(&text::fold(body), MAX_LINE_CHARS)
    )
}

/// The indentation in levels: each level is four blanks or one tab, and a part of a level counts as
/// one.
fn indent_of(line: &str) -> usize {
    let columns: usize = line
        .bytes()
        .take_while(u8::is_ascii_whitespace)
        .map(|b| if b == b'\t' { 4 } else { 1 })
        .sum();
    columns.div_ceil(4)
}

/// The rank of a signature, which is lower if it is indented, or of a line with a mark such as
/// TODO; None for other lines.
fn rank(body: &str, indent: usize) -> Option<f32> {
    if let Some(rank) = signature_rank(body) {
        return Some(rank - indent.min(6) as f32 * 0.25);
    }
    let has_mark = ["TODO", "FIXME", "HACK", "XXX", "SAFETY"]
        .iter()
        .any(|mark| body.contains(mark));
    has_mark.then_some(2.2)
}

/// The rank of a line that begins a doc string or a block comment; None for other lines.
fn doc_rank(body: &str) -> Option<f32> {
    (body.starts_with("\"\"\"") || body.starts_with("'''") || body.starts_with("/*")).then_some(1.2)
}

/// The rank of the declaration, import or SQL statement in the line; None for any other line.
pub(crate) fn signature_rank(body: &str) -> Option<f32> {
    let plain = unqualified(body);
    let word = plain
        .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '#' | '!')))
        .next()
        .unwrap_or_default();
    let name_follows = plain[word.len()..].trim_start().starts_with(|c: char| {
        c.is_alphanumeric() || matches!(c, '_' | '(' | '<' | '*' | '$' | '{' | '"' | '.' | '@')
    });
    match word {
        "class" | "struct" | "enum" | "trait" | "interface" | "impl" | "protocol" | "record"
        | "union" | "extension"
            if name_follows =>
        {
            Some(4.5)
        }
        "fn" | "def" | "func" | "function" | "fun" | "sub" | "macro_rules!" if name_follows => {
            Some(4.0)
        }
        "type" | "typedef" | "namespace" | "module" | "mod" | "package" | "object"
            if name_follows && !body.contains(". ") =>
        {
            Some(3.0)
        }
        "import" | "from" | "use" | "using" | "#include" | "require" if is_import(plain, word) => {
            Some(1.6)
        }
        "#define" => Some(1.8),
        "const" | "let" | "var" if plain.contains("=>") || plain.contains("function") => Some(3.5),
        _ if is_sql(plain) => Some(3.5),
        _ if is_method(plain) => Some(3.6),
        _ if is_constant(plain) => Some(1.4),
        _ => None,
    }
}

/// The line without qualifiers such as `pub` and `static` before its declaration.
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
    [
        "create ",
        "alter table ",
        "insert into ",
        "drop table ",
        "delete from ",
    ]
    .iter()
    .any(|start| {
        plain
            .get(..start.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(start))
    }) && plain.contains(['(', ';', '_'])
}

/// `Type name(arguments) {`, `name() {`: a method of Java, C, C++, C#, or a shell function.
fn is_method(plain: &str) -> bool {
    let Some((before, after)) = plain.split_once('(') else {
        return false;
    };
    if !(plain.ends_with('{')
        || plain.ends_with(')') && after.ends_with(')') && before.contains(' '))
        || before.contains(['=', '.', '"', '\'', ';'])
    {
        return false;
    }
    let mut words = before.split_whitespace();
    let first = words.next().unwrap_or_default();
    let control = [
        "if", "for", "while", "switch", "return", "else", "catch", "match", "elif", "with",
        "except", "assert", "and", "or", "not", "new", "}", "in", "raise", "throw", "print",
        "yield", "await", "case", "when", "unless", "#", "//", "*", "-", "#ifdef", "let", "const",
        "var",
    ];
    let words_after_first = words.count();
    !control.contains(&first)
        && !first.is_empty()
        && words_after_first <= 4
        && before
            .chars()
            .all(|c| c.is_alphanumeric() || " _*&:<>,~[]".contains(c))
        && (words_after_first > 0 || plain.ends_with('{'))
}

fn is_constant(plain: &str) -> bool {
    let name = plain
        .split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
        .next()
        .unwrap_or_default();
    name.len() > 3
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && plain[name.len()..].trim_start().starts_with(['=', ':'])
}
