//! What comes before the messages of a range: the previous summary, carried forward, and the quoted opening.

use crate::port::Quote;

use super::{
    fit::{Best, Scale, lines},
    prose,
    terms::{Focus, Frequencies, Signals},
    text,
};

/// The previous summary without its own count of what was left out, and that count.
pub(crate) fn parse(previous: &str) -> (String, usize) {
    let mut left_out = 0;
    let clean = text::clean(previous);
    let mut kept = String::with_capacity(clean.len());
    for line in clean.trim().lines() {
        let count =
            line.strip_prefix("[… ×").and_then(|rest| rest.strip_suffix(']')).and_then(|count| count.parse().ok());
        if let Some(count) = count {
            left_out += usize::min(count, u32::MAX as usize);
        } else {
            if !kept.is_empty() {
                kept.push('\n');
            }
            kept.push_str(line);
        }
    }
    (kept, left_out)
}

/// The previous summary within `room`: whole if it fits, else its key lines (or sentences, when it is one paragraph),
/// and how many lines were dropped.
pub(crate) fn shrunk(previous: &str, scale: Scale<'_>, room: u64, focus: &Focus) -> (String, usize) {
    if previous.is_empty() || scale.weigh(previous) <= room {
        return (previous.to_owned(), 0);
    }
    let total = previous.lines().count();
    if total < 4 {
        return (prose::digest(previous, scale, room, focus), 0);
    }
    let mut frequencies = Frequencies::new();
    frequencies.add(previous);
    let mut best = Best::for_room(room);
    for (at, line) in previous.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let signals = Signals::read(text::head(line, 2_000), &frequencies, focus);
        let user = if line.contains(" user]") { 0.8 } else { 0.0 };
        let opening = if at == 0 { 1.5 } else { 0.0 };
        let rank = signals.weight() + user + opening + 0.4 * at as f32 / total as f32;
        best.offer(at, rank, || text::clip(line, 2_000).into_owned());
    }
    let seen = best.seen();
    let kept = best.fit(scale, room);
    if kept.is_empty() {
        return (scale.clip(previous, room), 0);
    }
    (lines(&kept), seen - kept.len())
}

/// The opening user message, word for word, each of its lines behind `> ` and all below the label; clipped in the middle
/// when it exceeds `room`.
pub(crate) fn quote(quote: &Quote<'_>, label: &str, scale: Scale<'_>, room: u64) -> String {
    let said = text::clean(quote.text);
    let said = said.trim();
    if said.is_empty() {
        return String::new();
    }
    let written = |said: &str| format!("{label}\n> {}", said.replace('\n', "\n> "));
    let mut keep = usize::try_from(room.saturating_mul(16)).unwrap_or(usize::MAX);
    loop {
        let short = text::clip_middle(said, keep);
        let text = written(&short);
        if scale.weigh(&text) <= room {
            return text;
        }
        if keep < 8 {
            return String::new();
        }
        keep = keep.min(short.chars().count()) * 7 / 8;
    }
}
