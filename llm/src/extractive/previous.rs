//! The beginning of a range's summary: the previous summary and the quoted opening.

use crate::summarizer::Quote;

use super::{
    candidates::{TopCandidates, lines},
    prose,
    terms::{Focus, Frequencies, Signals},
    text,
    token_counter::TokenCounter,
};

/// The previous summary without its lines `[… ×12]`, and the sum of their counts: the messages that
/// earlier summaries left out.
pub(crate) fn parse(previous: &str) -> (String, usize) {
    let mut left_out = 0;
    let clean = text::clean(previous);
    let mut kept = String::with_capacity(clean.len());
    for line in clean.trim().lines() {
        let count = line
            .strip_prefix("[… ×")
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|count| count.parse().ok());
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

/// The previous summary within `budget` tokens, and the number of lines that were left out of it. A
/// summary that fits is kept whole. Of a longer one, the key lines are kept. If it has fewer than
/// four lines, its key sentences are kept instead; if no line fits, it is clipped: then the number
/// is 0.
pub(crate) fn shrink(
    previous: &str,
    counter: TokenCounter<'_>,
    budget: u64,
    focus: &Focus,
) -> (String, usize) {
    if previous.is_empty() || counter.count(previous) <= budget {
        return (previous.to_owned(), 0);
    }
    let total = previous.lines().count();
    if total < 4 {
        return (prose::digest(previous, counter, budget, focus), 0);
    }
    let mut frequencies = Frequencies::new();
    frequencies.add(previous);
    let mut best = TopCandidates::for_budget(budget);
    for (at, line) in previous
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let signals = Signals::read(text::head(line, 2_000), &frequencies, focus);
        let user = if line.contains(" user]") { 0.8 } else { 0.0 };
        let opening = if at == 0 { 1.5 } else { 0.0 };
        let rank = signals.weight() + user + opening + 0.4 * at as f32 / total as f32;
        best.offer(at, rank, || text::clip(line, 2_000).into_owned());
    }
    let offered = best.offered();
    let kept = best.fit(counter, budget);
    if kept.is_empty() {
        return (counter.clip(previous, budget), 0);
    }
    (lines(&kept), offered - kept.len())
}

/// The opening user message below `label`, word for word, each line after `> `. A message that
/// exceeds `budget` tokens is clipped in the middle. The result is empty if even that does not fit,
/// or if the message is blank.
pub(crate) fn quote(
    quote: &Quote<'_>,
    label: &str,
    counter: TokenCounter<'_>,
    budget: u64,
) -> String {
    let clean = text::clean(quote.text);
    let opening = clean.trim();
    if opening.is_empty() {
        return String::new();
    }
    let quoted = |text: &str| format!("{label}\n> {}", text.replace('\n', "\n> "));
    // A token has at most about 16 characters, so the first try may be too long, but not too short.
    let mut keep = usize::try_from(budget.saturating_mul(16)).unwrap_or(usize::MAX);
    loop {
        let short = text::clip_middle(opening, keep);
        let text = quoted(&short);
        if counter.count(&text) <= budget {
            return text;
        }
        if keep < 8 {
            return String::new();
        }
        keep = keep.min(short.chars().count()) * 7 / 8;
    }
}
