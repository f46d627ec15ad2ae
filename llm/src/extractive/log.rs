//! Digest of a log. Its lines are grouped by template: the line without its numbers, ids, times and
//! addresses. A group of errors or warnings is written as its first line, word for word, and so is
//! a group of one line. Any other group is written as its template. A group of several lines has
//! its count.

use std::{fmt::Write as _, hash::Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::{
    candidates::{TopCandidates, lines},
    text,
    token_counter::TokenCounter,
    work,
};

/// Most characters of a line that are read: the template is at its beginning.
const MAX_READ_CHARS: usize = 600;
/// Most distinct templates. Lines of further templates are only counted in the header.
const MAX_TEMPLATES: usize = 20_000;
/// Most characters of a line in the digest.
const MAX_LINE_CHARS: usize = 320;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Plain,
    Warning,
    Error,
}

struct Template<'a> {
    /// The number of its first line in the log.
    first: usize,
    /// How many lines it has.
    count: usize,
    level: Level,
    /// Its first line.
    example: &'a str,
}

/// A header with the number of lines and the time span, then one line per template, in source
/// order, with the template's count after `×` if it has several lines. If not all templates fit,
/// errors are kept before warnings, warnings before others, and frequent templates before rare
/// ones. A template has `#` for its variable parts.
pub(crate) fn digest(log: &str, counter: TokenCounter<'_>, budget: u64) -> String {
    let mut templates: Vec<Template<'_>> = Vec::new();
    let mut index_by_hash: FxHashMap<u64, usize> = FxHashMap::default();
    let (mut total, mut span, mut masked) = (0, (None, None), String::new());
    for (at, line) in log.lines().enumerate() {
        let line = text::head(line, MAX_READ_CHARS).trim_end();
        if line.is_empty() {
            continue;
        }
        work::tick(line.len());
        total += 1;
        if let Some(time) = time_of(line) {
            span = (span.0.or(Some(time)), Some(time));
        }
        mask(line, &mut masked);
        let mut hasher = FxHasher::default();
        hasher.write(masked.as_bytes());
        let index = index_by_hash.get(&hasher.finish()).copied();
        match index {
            Some(index) => templates[index].count += 1,
            None if templates.len() < MAX_TEMPLATES => {
                index_by_hash.insert(hasher.finish(), templates.len());
                templates.push(Template {
                    first: at,
                    count: 1,
                    level: level_of(line),
                    example: line,
                });
            }
            None => {}
        }
    }
    let mut header = format!("[log ×{total}");
    if let (Some(from), Some(to)) = span {
        let _ = write!(header, ", {from} – {to}");
    }
    header.push(']');
    let left = budget.saturating_sub(counter.count(&header) + 1);
    let kept = choose(&templates, total, counter, left);
    if kept.is_empty() {
        return counter.clip(&header, budget);
    }
    format!("{header}\n{kept}")
}

/// The lines of the templates that fit the budget.
fn choose(
    templates: &[Template<'_>],
    total: usize,
    counter: TokenCounter<'_>,
    budget: u64,
) -> String {
    let mut best = TopCandidates::for_budget(budget);
    let mut masked = String::new();
    for template in templates {
        let frequency = (template.count as f32).ln() / (total as f32 + 1.0).ln();
        let rank = match template.level {
            Level::Error => 3.0,
            Level::Warning => 2.0,
            Level::Plain => 0.0,
        } + frequency
            + if template.first == 0 { 0.2 } else { 0.0 };
        best.offer(template.first, rank, || {
            let times = if template.count > 1 {
                format!(" ×{}", template.count)
            } else {
                String::new()
            };
            let shown = if template.level == Level::Plain && template.count > 1 {
                mask(template.example, &mut masked);
                masked
                    .trim_start_matches(['#', ' ', '[', ']', '-'])
                    .to_owned()
            } else {
                text::fold(template.example)
            };
            format!("{}{times}", text::clip(&shown, MAX_LINE_CHARS))
        });
    }
    lines(&best.fit(counter, budget))
}

/// Writes the line to `out`, with `#` for numbers, ids, times and addresses. Adjacent `#` become
/// one.
fn mask(line: &str, out: &mut String) {
    out.clear();
    for word in line.split_whitespace() {
        let digits = word.bytes().filter(u8::is_ascii_digit).count();
        // A field that the logger left empty: `-` or `[]`.
        let is_empty_field = !word.contains(char::is_alphanumeric)
            && matches!(word.trim_matches(['[', ']', ',']), "-" | "");
        let is_number_or_time = digits > 0 && !word.contains(char::is_alphabetic);
        if is_empty_field || is_number_or_time {
            if !out.ends_with('#') && !out.ends_with("#]") {
                push_space(out);
                out.push('#');
            }
            // The end of a field of several words, such as `[2026-01-02 10:00:00]`.
            if word.ends_with(']') && !word.starts_with('[') && out.ends_with('#') {
                out.push(']');
            }
            continue;
        }
        push_space(out);
        if digits == 0 {
            out.push_str(word);
        } else {
            mask_inside(word, digits >= 4 && word.len() >= 12, out);
        }
    }
}

/// Writes the word with `#` for each run of letters and digits that holds a digit, except a version
/// such as `v2`. If `may_be_id` is true, runs of four or more hexadecimal digits are replaced as
/// well. `/v2/54fad/servers` becomes `/v2/#/servers`, and a UUID becomes `#`.
fn mask_inside(word: &str, may_be_id: bool, out: &mut String) {
    // A character that joins two replaced runs into one value, as in a UUID.
    const GLUE: [char; 4] = ['-', '.', ':', '_'];
    let start = out.len();
    let mut rest = word;
    while !rest.is_empty() {
        let run = rest
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(run);
        let is_version = name.len() == 2 && name.starts_with('v');
        let varies = name.bytes().any(|b| b.is_ascii_digit()) && !is_version
            || may_be_id && name.len() >= 4 && name.bytes().all(|b| b.is_ascii_hexdigit());
        let end_before_glue = start + out[start..].trim_end_matches(GLUE).len();
        if !varies {
            out.push_str(name);
        } else if out[start..end_before_glue].ends_with('#') {
            out.truncate(end_before_glue);
        } else {
            out.push('#');
        }
        let separator = after.chars().next().map_or(0, char::len_utf8);
        out.push_str(&after[..separator]);
        rest = &after[separator..];
    }
}

fn push_space(out: &mut String) {
    if !out.is_empty() {
        out.push(' ');
    }
}

fn level_of(line: &str) -> Level {
    let mut level = Level::Plain;
    for word in line
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| (4..=24).contains(&word.len()))
    {
        let found = match word.to_ascii_lowercase().as_str() {
            "error" | "errors" | "fatal" | "critical" | "severe" | "panic" | "panicked"
            | "traceback" | "emerg" | "failed" | "failure" | "segfault" => Level::Error,
            "warn" | "warning" | "refused" | "denied" | "timeout" | "unreachable" => Level::Warning,
            word if word.ends_with("exception") || word.ends_with("error") => Level::Error,
            _ => Level::Plain,
        };
        // The level written by the logger overrides words of the message.
        if matches!(
            word,
            "INFO" | "DEBUG" | "TRACE" | "WARN" | "WARNING" | "ERROR" | "FATAL" | "CRITICAL"
        ) {
            return found;
        }
        level = level.max(found);
    }
    level
}

/// The first time of day in the first 96 bytes of a line, with the date before it if there is one.
/// A time that follows a blank, `T`, a tab or a bracket is preferred to one inside a word.
pub(crate) fn time_of(line: &str) -> Option<&str> {
    let bytes = &line.as_bytes()[..line.len().min(96)];
    let mut fallback = None;
    // `12:34:56`
    let is_time = |i: usize| -> bool {
        bytes.get(i..i + 8).is_some_and(|t| {
            t[2] == b':'
                && t[5] == b':'
                && [0, 1, 3, 4, 6, 7].iter().all(|i| t[*i].is_ascii_digit())
        })
    };
    for start in
        (0..bytes.len().saturating_sub(7)).filter(|i| bytes[*i].is_ascii_digit() && is_time(*i))
    {
        let before = start.checked_sub(1).map_or(b' ', |i| bytes[i]);
        let mut end = start + 8;
        if matches!(bytes.get(end), Some(b'.' | b','))
            && bytes.get(end + 1).is_some_and(u8::is_ascii_digit)
        {
            end += 1;
            end += bytes[end..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count();
        }
        end += usize::from(bytes.get(end) == Some(&b'Z'));
        let from = match before {
            b' ' | b'T' => {
                let date_bytes = bytes[..start.saturating_sub(1)]
                    .iter()
                    .rev()
                    .take_while(|b| b.is_ascii_digit() || matches!(b, b'-' | b'/' | b'.'))
                    .count();
                // The shortest date is like `1.2.26`.
                if date_bytes >= 6 {
                    start - 1 - date_bytes
                } else {
                    start
                }
            }
            b'[' | b'(' | b'\t' => start,
            b if b.is_ascii_digit() => continue,
            _ => {
                fallback = fallback.or(line.get(start..end));
                continue;
            }
        };
        return line.get(from..end);
    }
    fallback
}
