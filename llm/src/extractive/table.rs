//! Digest of a table: its head, the first and last rows, and the number of rows.

use super::{
    candidates::{TopCandidates, lines},
    text,
    token_counter::TokenCounter,
    work,
};

/// The head and the rows that fit; rows near both ends come first.
pub(crate) fn digest(table: &str, counter: TokenCounter<'_>, budget: u64) -> String {
    let total = table.lines().filter(|row| !row.trim().is_empty()).count();
    let mut best = TopCandidates::for_budget(budget);
    for (at, row) in table
        .lines()
        .filter(|row| !row.trim().is_empty())
        .enumerate()
    {
        work::tick(row.len());
        let from_end = at.min(total - 1 - at) as f32;
        let ruler = row
            .bytes()
            .all(|b| matches!(b, b'|' | b'-' | b':' | b'+' | b'=' | b' ' | b'\t' | b'\r'));
        let head = if at == 0 { 2.0 } else { 0.0 } - if ruler { 1.5 } else { 0.0 };
        best.offer(at, head + 1.0 / (1.0 + from_end), || {
            text::clip(&text::fold(text::head(row, 400)), 240).into_owned()
        });
    }
    let header = format!("[table ×{total}]");
    let left = budget.saturating_sub(counter.count(&header) + 1);
    let kept = lines(&best.fit(counter, left));
    if kept.is_empty() {
        counter.clip(&header, budget)
    } else {
        format!("{header}\n{kept}")
    }
}
