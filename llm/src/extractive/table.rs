//! Digest of a table: its first row (the names of the columns), other rows near both ends, and the
//! number of rows.

use super::{
    candidates::{TopCandidates, lines},
    text,
    token_counter::TokenCounter,
    work,
};

/// A header with the number of rows, then the rows that fit, in order. The first row is kept before
/// all others, then rows near both ends.
pub(crate) fn digest(table: &str, counter: TokenCounter<'_>, budget: u64) -> String {
    let total = table.lines().filter(|row| !row.trim().is_empty()).count();
    let mut best = TopCandidates::for_budget(budget);
    for (at, row) in table
        .lines()
        .filter(|row| !row.trim().is_empty())
        .enumerate()
    {
        work::tick(row.len());
        let to_nearer_end = at.min(total - 1 - at) as f32;
        let is_separator = row
            .bytes()
            .all(|b| matches!(b, b'|' | b'-' | b':' | b'+' | b'=' | b' ' | b'\t' | b'\r'));
        let first = if at == 0 { 2.0 } else { 0.0 };
        let separator = if is_separator { 1.5 } else { 0.0 };
        best.offer(at, first - separator + 1.0 / (1.0 + to_nearer_end), || {
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
