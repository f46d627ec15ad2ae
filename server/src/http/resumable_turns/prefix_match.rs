//! Decides whether a log begins with the part of the answer that a reader has received before. Each
//! byte of the log is compared once.

use super::{
    resume_point::{DeliveredPrefix, HashedPrefix},
    turn_log::TurnEnd,
};

/// How much of a log a reader skips, because it was delivered before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Skip {
    /// Bytes of text.
    pub(super) text: u64,
    /// Bytes of reasoning.
    pub(super) reasoning: u64,
    /// Number of tool calls.
    pub(super) calls: u64,
}

/// Whether a log continues the answer that was delivered in part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MatchOutcome {
    /// The log has the same answer. The reader skips this much of it.
    Continues(Skip),
    /// The log has another answer.
    Differs,
    /// The log is too short to tell.
    Unknown,
}

/// The prefix of an answer that was delivered before, and the prefix of the log that was compared
/// with it so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixMatch {
    delivered: DeliveredPrefix,
    /// The prefix of the log. Of each kind it has as much as was delivered, or less if the log has
    /// less.
    log_prefix: DeliveredPrefix,
    /// Amounts of the log that were pushed: bytes of text, bytes of reasoning, tool calls.
    pushed: [u64; 3],
}

impl PrefixMatch {
    /// A match that has compared nothing of the log yet.
    pub(super) fn new(delivered: DeliveredPrefix) -> Self {
        Self {
            delivered,
            log_prefix: DeliveredPrefix::default(),
            pushed: [0; 3],
        }
    }

    /// The prefix of the answer that was delivered before.
    pub(super) const fn delivered(&self) -> DeliveredPrefix {
        self.delivered
    }

    /// The delivered prefix in a form that can be extended, once the log is known to continue it.
    /// The prefix of an event id has only a short check (24 bits), to which nothing can be added.
    /// So this returns the equal prefix of the log. If the log lacks the delivered reasoning, this
    /// returns the reasoning of the event id: it need not be extended, because no more reasoning
    /// will be sent.
    pub(super) const fn continued(&self) -> DeliveredPrefix {
        let Self {
            delivered,
            log_prefix,
            ..
        } = self;
        DeliveredPrefix {
            text: log_prefix.text,
            reasoning: if log_prefix.reasoning.matches(delivered.reasoning) {
                log_prefix.reasoning
            } else {
                delivered.reasoning
            },
            calls: log_prefix.calls,
        }
    }

    /// Compares more text of the log.
    pub(super) fn push_text(&mut self, text: &str) {
        self.pushed[0] += text.len() as u64;
        extend(&mut self.log_prefix.text, text, self.delivered.text);
    }

    /// Compares more reasoning of the log.
    pub(super) fn push_reasoning(&mut self, text: &str) {
        self.pushed[1] += text.len() as u64;
        extend(
            &mut self.log_prefix.reasoning,
            text,
            self.delivered.reasoning,
        );
    }

    /// Compares a tool call of the log: its id, name and input.
    pub(super) fn push_call(&mut self, fields: [&str; 3]) {
        self.pushed[2] += 1;
        if self.log_prefix.calls.amount() < self.delivered.calls.amount() {
            self.log_prefix.calls.push_call(fields);
        }
    }

    /// The result, once everything in the log was pushed. `is_live`: a model is generating the
    /// answer now. If the reasoning of a live answer differs, it is another answer, and the reader
    /// need not wait for its end. A stored answer may lack its reasoning: if its text and calls
    /// match, the delivered reasoning stays valid.
    pub(super) fn outcome(&self, end: Option<&TurnEnd>, is_live: bool) -> MatchOutcome {
        let Self {
            delivered,
            log_prefix,
            ..
        } = self;
        let (is_done, is_replay) = match end {
            Some(TurnEnd::Done(done)) => (true, done.replayed),
            Some(TurnEnd::Failed(_) | TurnEnd::Discarded) | None => (false, false),
        };
        let differs = |delivered: HashedPrefix, log_prefix: HashedPrefix| {
            log_prefix.amount() == delivered.amount() && !log_prefix.matches(delivered)
        };
        if differs(delivered.text, log_prefix.text) || differs(delivered.calls, log_prefix.calls) {
            return MatchOutcome::Differs;
        }
        if is_live && (differs(delivered.reasoning, log_prefix.reasoning) || self.has_diverged()) {
            return MatchOutcome::Differs;
        }
        if !log_prefix.text.matches(delivered.text) || !log_prefix.calls.matches(delivered.calls) {
            return if is_done {
                MatchOutcome::Differs
            } else {
                MatchOutcome::Unknown
            };
        }
        let skip = Skip {
            text: delivered.text.amount(),
            reasoning: delivered.reasoning.amount(),
            calls: delivered.calls.amount(),
        };
        match (log_prefix.reasoning.matches(delivered.reasoning), is_done) {
            (true, _) => MatchOutcome::Continues(skip),
            (false, false) => MatchOutcome::Unknown,
            // The reader skips whatever reasoning the replay has.
            (false, true) if is_replay => MatchOutcome::Continues(Skip {
                reasoning: u64::MAX,
                ..skip
            }),
            (false, true) => MatchOutcome::Differs,
        }
    }

    /// Whether the log has more of one kind than was delivered and less of another. Then it has
    /// another answer: a log of the same answer holds, at one moment, exactly what was delivered.
    fn has_diverged(&self) -> bool {
        let amounts = |prefix: &DeliveredPrefix| {
            [
                prefix.text.amount(),
                prefix.reasoning.amount(),
                prefix.calls.amount(),
            ]
        };
        let delivered = amounts(&self.delivered);
        let is_ahead = self
            .pushed
            .iter()
            .zip(&delivered)
            .any(|(pushed, delivered)| pushed > delivered);
        is_ahead
            && amounts(&self.log_prefix)
                .iter()
                .zip(&delivered)
                .any(|(log_prefix, delivered)| log_prefix < delivered)
    }
}

/// Adds text to the prefix of the log, until the prefix has as many bytes as `limit`.
fn extend(log_prefix: &mut HashedPrefix, text: &str, limit: HashedPrefix) {
    let bytes_left = limit.amount().saturating_sub(log_prefix.amount());
    let bytes_left = usize::try_from(bytes_left).unwrap_or(usize::MAX);
    log_prefix.push_bytes(&text.as_bytes()[..bytes_left.min(text.len())]);
}

#[cfg(test)]
mod tests {
    use anneal_core::message::MessageId;
    use anneal_proto::v1::chat_response::Done;
    use anneal_store::{ShortConversationId, TurnKey};

    use super::*;
    use crate::http::resumable_turns::resume_point::ResumePoint;

    fn prefix(text: &str, reasoning: &str) -> DeliveredPrefix {
        let mut prefix = DeliveredPrefix::default();
        prefix.text.push_bytes(text.as_bytes());
        prefix.reasoning.push_bytes(reasoning.as_bytes());
        prefix
    }

    #[test]
    fn an_equal_prefix_continues_after_the_delivered_part() {
        let mut prefix_match = PrefixMatch::new(prefix("one two", "hm"));
        prefix_match.push_reasoning("hmm");
        prefix_match.push_text("one");
        assert_eq!(prefix_match.outcome(None, false), MatchOutcome::Unknown);
        prefix_match.push_text(" two three");
        assert_eq!(
            prefix_match.outcome(None, true),
            MatchOutcome::Continues(Skip {
                text: 7,
                reasoning: 2,
                calls: 0
            })
        );
    }

    #[test]
    fn a_different_prefix_is_another_answer() {
        let mut prefix_match = PrefixMatch::new(prefix("one two", ""));
        prefix_match.push_text("one, two");
        assert_eq!(prefix_match.outcome(None, false), MatchOutcome::Differs);
        let mut prefix_match = PrefixMatch::new(prefix("one", "hm"));
        prefix_match.push_text("one two");
        assert_eq!(
            prefix_match.outcome(None, true),
            MatchOutcome::Differs,
            "the log has more text than was delivered, but not the reasoning"
        );
        assert_eq!(
            prefix_match.outcome(None, false),
            MatchOutcome::Unknown,
            "a stored answer may lack its reasoning"
        );
    }

    /// The prefix as it comes back in an event id.
    fn sent_back(delivered: DeliveredPrefix) -> DeliveredPrefix {
        let sent = ResumePoint {
            session: ShortConversationId([0; 8]),
            turn: TurnKey::Message(MessageId(1)),
            attempt: 0,
            delivered,
            is_end: false,
        };
        let parsed = ResumePoint::parse(sent.event_id().as_bytes());
        parsed.expect("the server issues such ids").delivered
    }

    #[test]
    fn a_reader_that_came_back_has_the_position_of_one_that_stayed() {
        let mut prefix_match = PrefixMatch::new(sent_back(prefix("one", "hm")));
        prefix_match.push_reasoning("hm");
        prefix_match.push_text("one two");
        assert!(matches!(
            prefix_match.outcome(None, true),
            MatchOutcome::Continues(_)
        ));
        let (mut back, mut stayed) = (prefix_match.continued(), prefix("one", "hm"));
        back.text.push_bytes(b" two");
        stayed.text.push_bytes(b" two");
        assert_eq!(back, stayed);
    }

    #[test]
    fn reasoning_that_a_replay_lacks_stays_in_the_position() {
        let delivered = sent_back(prefix("one", "hm"));
        let mut prefix_match = PrefixMatch::new(delivered);
        prefix_match.push_text("one two");
        let done = Done {
            replayed: true,
            ..Done::default()
        };
        assert_eq!(
            prefix_match.outcome(Some(&TurnEnd::Done(done.into())), false),
            MatchOutcome::Continues(Skip {
                text: 3,
                reasoning: u64::MAX,
                calls: 0
            })
        );
        assert_eq!(prefix_match.continued().reasoning, delivered.reasoning);
    }
}
