//! Numbers with their nouns.

/// `1 message`, `2 messages`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
