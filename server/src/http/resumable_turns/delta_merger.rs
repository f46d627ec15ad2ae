//! Merges the deltas of an answer before they are logged. An event for each token would cost its
//! readers many times the bytes of its text.

use std::time::Duration;

use anneal_proto::v1::chat_response::Event;
use tokio::time::Instant;

/// How long a delta waits for further ones.
const MERGE_WINDOW: Duration = Duration::from_millis(20);
/// Bytes of merged deltas that do not wait any longer.
const MAX_WAITING_BYTES: usize = 64 * 1024;

/// The deltas that wait for further ones. The first delta of each run of text or of reasoning does
/// not wait, so that merging does not delay the beginning of an answer.
#[derive(Debug, Default)]
pub(super) struct DeltaMerger {
    /// The kind of the last event; None: it was no delta.
    run: Option<DeltaKind>,
    /// Merged deltas of this kind, and when they are due.
    waiting: Option<(String, Instant)>,
}

/// Events that are due, in their order.
type DueEvents = std::iter::Flatten<std::array::IntoIter<Option<Event>, 2>>;

/// The kind of a delta. Only deltas of one kind are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Reasoning,
}

impl DeltaMerger {
    /// Adds the next event, which arrived at `now`. Returns the events that are due.
    pub(super) fn push(&mut self, event: Event, now: Instant) -> DueEvents {
        let (kind, text) = match event {
            Event::TextDelta(text) => (DeltaKind::Text, text),
            Event::ReasoningDelta(text) => (DeltaKind::Reasoning, text),
            other => return self.start_run(None, other),
        };
        if self.run != Some(kind) {
            return self.start_run(Some(kind), kind.event(text));
        }
        let (merged, _) = self
            .waiting
            .get_or_insert_with(|| (String::new(), now + MERGE_WINDOW));
        merged.push_str(&text);
        let is_full = merged.len() >= MAX_WAITING_BYTES;
        let due = if is_full { self.take_waiting() } else { None };
        [due, None].into_iter().flatten()
    }

    /// When the waiting deltas are due. None: none waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|(_, due)| *due)
    }

    /// Takes the waiting deltas as one event. None: none waits.
    pub(super) fn take_waiting(&mut self) -> Option<Event> {
        let (merged, _) = self.waiting.take()?;
        self.run.map(|kind| kind.event(merged))
    }

    /// Ends the current run. Returns its waiting deltas and the first event of the next run.
    fn start_run(&mut self, run: Option<DeltaKind>, first: Event) -> DueEvents {
        let waiting = self.take_waiting();
        self.run = run;
        [waiting, Some(first)].into_iter().flatten()
    }
}

impl DeltaKind {
    fn event(self, text: String) -> Event {
        match self {
            Self::Text => Event::TextDelta(text),
            Self::Reasoning => Event::ReasoningDelta(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use anneal_proto::v1::{
        ReasoningPart, ToolUsePart,
        chat_response::{Attempt, Done},
    };

    use super::*;

    fn text(text: &str) -> Event {
        Event::TextDelta(text.to_owned())
    }

    fn reasoning(text: &str) -> Event {
        Event::ReasoningDelta(text.to_owned())
    }

    fn push(merger: &mut DeltaMerger, event: Event, now: Instant) -> Vec<Event> {
        merger.push(event, now).collect()
    }

    #[test]
    fn the_first_delta_is_due_at_once_and_those_after_it_together() {
        let (mut merger, start) = (DeltaMerger::default(), Instant::now());
        assert_eq!(push(&mut merger, text("one "), start), [text("one ")]);
        assert_eq!(merger.due(), None);
        let millis = |millis| start + Duration::from_millis(millis);
        for (word, at) in [("two ", 5), ("three ", 10), ("four", 24)] {
            assert!(push(&mut merger, text(word), millis(at)).is_empty());
            assert_eq!(
                merger.due(),
                Some(millis(25)),
                "20 ms after the first delta that waits"
            );
        }
        assert_eq!(merger.take_waiting(), Some(text("two three four")));
        assert_eq!((merger.due(), merger.take_waiting()), (None, None));
        assert!(push(&mut merger, text("five"), millis(40)).is_empty());
        assert_eq!(merger.due(), Some(millis(60)));
    }

    #[test]
    fn text_and_reasoning_are_not_merged_and_keep_their_order() {
        let (mut merger, now) = (DeltaMerger::default(), Instant::now());
        let mut due = Vec::new();
        for event in [
            reasoning("a"),
            reasoning("b"),
            reasoning("c"),
            text("d"),
            text("e"),
            reasoning("f"),
        ] {
            due.extend(merger.push(event, now));
        }
        assert_eq!(
            due,
            [
                reasoning("a"),
                reasoning("bc"),
                text("d"),
                text("e"),
                reasoning("f")
            ]
        );
        assert_eq!(merger.take_waiting(), None);
    }

    #[test]
    fn waiting_deltas_precede_every_other_event() {
        for other in [
            Event::ToolCall(ToolUsePart::default()),
            Event::ReasoningEnd(ReasoningPart::default()),
            Event::Attempt(Attempt::default()),
            Event::Done(Done::default()),
        ] {
            let (mut merger, now) = (DeltaMerger::default(), Instant::now());
            push(&mut merger, text("a"), now);
            push(&mut merger, text("b"), now);
            assert_eq!(
                push(&mut merger, other.clone(), now),
                [text("b"), other.clone()]
            );
            assert_eq!(
                push(&mut merger, text("c"), now),
                [text("c")],
                "the first delta after another event is due at once"
            );
        }
    }

    #[test]
    fn many_bytes_do_not_wait() {
        let (mut merger, now) = (DeltaMerger::default(), Instant::now());
        let half = "x".repeat(MAX_WAITING_BYTES / 2);
        push(&mut merger, text("a"), now);
        assert!(push(&mut merger, text(&half), now).is_empty());
        assert_eq!(push(&mut merger, text(&half), now), [text(&half.repeat(2))]);
        assert_eq!(merger.due(), None);
    }
}
