//! Messages that a log in use has got more records of.

use anneal_core::message::{Message, Part};

use super::{TIMES, read::labelled};

/// What the records say that joined the message after its first `parts` parts, as a message of its own; None where no
/// record can have joined there.
pub(crate) fn grown(mut message: Message, parts: usize) -> Option<Message> {
    let joins = |part: &Part| matches!(part, Part::ToolUse { .. } | Part::ToolResult { .. });
    if parts == 0 || parts >= message.parts.len() || !message.parts[parts..].iter().all(joins) {
        return None;
    }
    message.parts.drain(..parts);
    if let Some(times) = message.metadata.get(TIMES) {
        let times: Vec<String> = times.split(' ').map(str::to_owned).collect();
        // each of these parts is a record, and has a time or none has
        let first = times.len().saturating_sub(message.parts.len());
        message.metadata.insert(TIMES.into(), labelled(&times[first..]));
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use anneal_core::message::Role;

    use super::*;

    #[test]
    fn the_records_that_joined_keep_their_own_times() {
        let call = |id: &str| Part::ToolUse { id: id.into(), name: "n".into(), input: "{}".into() };
        let parts = vec![Part::Text { text: "t".into() }, call("a"), call("b")];
        let times = |times: &str| std::iter::once((TIMES.to_owned(), times.to_owned())).collect();
        let message = Message { role: Role::Assistant, parts, metadata: times("1 1 2") };
        let rest = grown(message.clone(), 1).expect("two have joined");
        assert_eq!((rest.parts, rest.metadata), (vec![call("a"), call("b")], times("1 2")));
        assert_eq!(grown(message.clone(), 2).expect("one has joined").metadata, times("2"));
        assert_eq!((grown(message.clone(), 3), grown(message.clone(), 0)), (None, None));
        let texts = Message { parts: message.parts.into_iter().rev().collect(), ..message };
        assert_eq!(grown(texts, 1), None, "a text is no record that joins");
    }
}
