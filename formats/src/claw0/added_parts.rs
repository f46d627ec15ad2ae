//! Tool calls and tool results that were added to a message of a growing log.

use anneal_core::message::{Message, Part};

use super::{TIMES, read::times_label};

/// The parts after the first `stored_parts`, as a message of their own. None if later records
/// cannot have added these parts.
pub(crate) fn added_parts(mut message: Message, stored_parts: usize) -> Option<Message> {
    let has_own_record =
        |part: &Part| matches!(part, Part::ToolUse { .. } | Part::ToolResult { .. });
    if stored_parts == 0
        || stored_parts >= message.parts.len()
        || !message.parts[stored_parts..].iter().all(has_own_record)
    {
        return None;
    }
    message.parts.drain(..stored_parts);
    if let Some(times) = message.metadata.get(TIMES) {
        let times: Vec<String> = times.split(' ').map(str::to_owned).collect();
        // Each of these parts comes from a record of its own. If all records have times, the last
        // times are theirs.
        let first = times.len().saturating_sub(message.parts.len());
        message
            .metadata
            .insert(TIMES.into(), times_label(&times[first..]));
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use anneal_core::message::Role;

    use super::*;

    #[test]
    fn added_records_keep_their_own_times() {
        let call = |id: &str| Part::ToolUse {
            id: id.into(),
            name: "n".into(),
            input: "{}".into(),
        };
        let parts = vec![Part::Text { text: "t".into() }, call("a"), call("b")];
        let times = |times: &str| std::iter::once((TIMES.to_owned(), times.to_owned())).collect();
        let message = Message {
            role: Role::Assistant,
            parts,
            metadata: times("1 1 2"),
        };
        let rest = added_parts(message.clone(), 1).expect("two parts were added");
        assert_eq!(
            (rest.parts, rest.metadata),
            (vec![call("a"), call("b")], times("1 2"))
        );
        assert_eq!(
            added_parts(message.clone(), 2)
                .expect("one part was added")
                .metadata,
            times("2")
        );
        assert_eq!(
            (
                added_parts(message.clone(), 3),
                added_parts(message.clone(), 0)
            ),
            (None, None)
        );
        let text_last = Message {
            parts: message.parts.into_iter().rev().collect(),
            ..message
        };
        assert_eq!(
            added_parts(text_last, 1),
            None,
            "a text is never added by a later record"
        );
    }
}
