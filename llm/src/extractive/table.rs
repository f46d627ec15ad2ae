//! Tables: head, first and last rows, and how many there are.

use super::{
    fit::{Best, Scale, lines},
    text, work,
};

/// The head and as many rows as fit: those at both ends first.
pub(crate) fn digest(table: &str, scale: Scale<'_>, room: u64) -> String {
    let total = table.lines().filter(|row| !row.trim().is_empty()).count();
    let mut best = Best::for_room(room);
    for (at, row) in table.lines().filter(|row| !row.trim().is_empty()).enumerate() {
        work::tick(row.len());
        let from_end = at.min(total - 1 - at) as f32;
        let ruler = row.bytes().all(|b| matches!(b, b'|' | b'-' | b':' | b'+' | b'=' | b' ' | b'\t' | b'\r'));
        let head = if at == 0 { 2.0 } else { 0.0 } - if ruler { 1.5 } else { 0.0 };
        best.offer(at, head + 1.0 / (1.0 + from_end), || {
            text::clip(&text::fold(text::head(row, 400)), 240).into_owned()
        });
    }
    let header = format!("[table ×{total}]");
    let left = room.saturating_sub(scale.weigh(&header) + 1);
    let kept = lines(&best.fit(scale, left));
    if kept.is_empty() { scale.clip(&header, room) } else { format!("{header}\n{kept}") }
}
