//! Whether what a reader has had before is how a log begins. Each byte of the log is looked at once, as the reader comes by.

use super::{
    log::Ended,
    place::{Delivered, Trail},
};

/// What is passed over of each kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) text: u64,
    pub(super) reasoning: u64,
    pub(super) calls: u64,
}

/// Whether a telling goes on from what was delivered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It does: so much of it is passed over.
    Continues(Skip),
    /// It is another answer.
    Differs,
    /// It is not far enough to tell.
    Unknown,
}

/// What was delivered before, beside the beginning of a log as far as it was looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comparison {
    delivered: Trail,
    /// The trail of the log's beginning: of each kind as much as was delivered, or as there is.
    begun: Trail,
    /// How much there is of each kind: bytes of text and of thoughts, and calls.
    seen: [u64; 3],
}

impl Comparison {
    /// What was delivered, beside nothing.
    pub(super) fn new(delivered: Trail) -> Self {
        Self { delivered, begun: Trail::default(), seen: [0; 3] }
    }

    /// What was delivered.
    pub(super) const fn delivered(&self) -> Trail {
        self.delivered
    }

    /// Looks at more text.
    pub(super) fn text(&mut self, text: &str) {
        self.seen[0] += text.len() as u64;
        extend(&mut self.begun.text, text, self.delivered.text);
    }

    /// Looks at more thoughts.
    pub(super) fn reasoning(&mut self, text: &str) {
        self.seen[1] += text.len() as u64;
        extend(&mut self.begun.reasoning, text, self.delivered.reasoning);
    }

    /// Looks at a call of a tool: its id, name and input.
    pub(super) fn call(&mut self, fields: [&str; 3]) {
        self.seen[2] += 1;
        if self.begun.calls.0 < self.delivered.calls.0 {
            self.begun.calls.call(fields);
        }
    }

    /// What comes of it, once everything was looked at that the log holds by now. Thoughts that are not kept cannot be told
    /// again: where a stored answer has the same words, what was delivered of its thoughts stands. An answer that is made now
    /// differs as soon as its thoughts do, and need not be told whole before that is known.
    pub(super) fn fit(&self, end: Option<&Ended>, is_live: bool) -> Fit {
        let Self { delivered, begun, .. } = self;
        let (is_over, is_replay) = match end {
            Some(Ended::Done(done)) => (true, done.replayed),
            Some(Ended::Failed(_) | Ended::Forgotten) | None => (false, false),
        };
        let differs = |delivered: Delivered, begun: Delivered| begun.0 == delivered.0 && begun != delivered;
        if differs(delivered.text, begun.text) || differs(delivered.calls, begun.calls) {
            return Fit::Differs;
        }
        if is_live && (differs(delivered.reasoning, begun.reasoning) || self.has_gone_another_way()) {
            return Fit::Differs;
        }
        if begun.text != delivered.text || begun.calls != delivered.calls {
            return if is_over { Fit::Differs } else { Fit::Unknown };
        }
        let skip = Skip { text: delivered.text.0, reasoning: delivered.reasoning.0, calls: delivered.calls.0 };
        match (begun.reasoning == delivered.reasoning, is_over) {
            (true, _) => Fit::Continues(skip),
            (false, false) => Fit::Unknown,
            (false, true) if is_replay => Fit::Continues(Skip { reasoning: u64::MAX, ..skip }),
            (false, true) => Fit::Differs,
        }
    }

    /// Whether there is more of one kind than was delivered and less of another: what tells the same passes through what was
    /// delivered.
    fn has_gone_another_way(&self) -> bool {
        let counts = |trail: &Trail| [trail.text.0, trail.reasoning.0, trail.calls.0];
        let had = counts(&self.delivered);
        let is_ahead = self.seen.iter().zip(&had).any(|(seen, had)| seen > had);
        is_ahead && counts(&self.begun).iter().zip(&had).any(|(begun, had)| begun < had)
    }
}

fn extend(begun: &mut Delivered, text: &str, until: Delivered) {
    let room = usize::try_from(until.0.saturating_sub(begun.0)).unwrap_or(usize::MAX);
    begun.bytes(&text.as_bytes()[..room.min(text.len())]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(text: &str, reasoning: &str) -> Trail {
        let mut trail = Trail::default();
        trail.text.bytes(text.as_bytes());
        trail.reasoning.bytes(reasoning.as_bytes());
        trail
    }

    #[test]
    fn what_begins_as_it_was_delivered_goes_on_from_there() {
        let mut comparison = Comparison::new(trail("one two", "hm"));
        comparison.reasoning("hmm");
        comparison.text("one");
        assert_eq!(comparison.fit(None, false), Fit::Unknown);
        comparison.text(" two three");
        assert_eq!(comparison.fit(None, true), Fit::Continues(Skip { text: 7, reasoning: 2, calls: 0 }));
    }

    #[test]
    fn what_begins_otherwise_is_another_answer() {
        let mut comparison = Comparison::new(trail("one two", ""));
        comparison.text("one, two");
        assert_eq!(comparison.fit(None, false), Fit::Differs);
        let mut comparison = Comparison::new(trail("one", "hm"));
        comparison.text("one two");
        assert_eq!(comparison.fit(None, true), Fit::Differs, "more words without the thoughts");
        assert_eq!(comparison.fit(None, false), Fit::Unknown, "a stored answer may lack its thoughts");
    }
}
