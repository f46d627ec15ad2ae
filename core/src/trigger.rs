//! What a change of a conversation causes: the jobs to queue.

use crate::{
    cut,
    job::JobKind,
    message::MessageId,
    policy::{LargeSummaries, Policy, ThresholdContext},
    tokens::Tokens,
};

/// What the triggers look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailState {
    /// The settings in force.
    pub policy: Policy,
    /// The newest message.
    pub last_message_id: MessageId,
    /// The newest message when compaction last made no progress; [`MessageId::NONE`] if it never did.
    pub stalled: MessageId,
    /// The conversation's figures, cool large messages taken with their summaries' size.
    pub figures: ThresholdContext,
    /// Large messages of the tail that have no summary.
    pub unsummarized: u64,
    /// Those among them that are cool, or will be within a turn or two model calls.
    pub nearly_cool: u64,
}

impl TailState {
    /// Which large messages are to be summarised now.
    pub fn summarize(&self) -> Summarize {
        let half_full = || self.figures.tail.get() >= self.policy.threshold(&self.figures).get() / 2;
        if self.policy.large_summaries == LargeSummaries::Eager || half_full() {
            Summarize::All
        } else {
            Summarize::NearlyCool
        }
    }
}

/// Which large messages are to be summarised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Summarize {
    /// Every one of the tail.
    All,
    /// Those that are cool, or soon will be.
    NearlyCool,
}

/// How far appends and counts alone can take a conversation before a trigger may be reached: until then nobody needs to look at
/// its tail. Whatever else changes it (settings, a separator, a checkpoint) ends this. When this or what it goes by changes,
/// so must `VERSION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    /// The newest message must stay before this one.
    pub message: MessageId,
    /// Tokens of all messages must stay below this.
    pub total: Tokens,
    /// No message that is counted meanwhile may have more tokens.
    pub large: Tokens,
}

/// The version of these rules: what an older one has worked out is not believed.
pub(crate) const VERSION: u64 = 1;

impl Quiet {
    /// Whether it still holds: the newest message, the tokens of all, those of the largest that was counted.
    pub fn holds(&self, last: MessageId, total: Tokens, largest: Tokens) -> bool {
        last < self.message && total < self.total && largest <= self.large
    }
}

impl TailState {
    /// How far it is to the next trigger, where all messages count `total` and those up to `counted` will count no other than
    /// that. None where it is not known, or no way: large messages wait, or the next message may reach a threshold.
    pub fn quiet(&self, counted: MessageId, total: Tokens) -> Option<Quiet> {
        // What is counted before the tail moves the total, and not the tail.
        let boundary = MessageId(self.last_message_id.0.saturating_sub_unsigned(self.figures.messages));
        // Which large message is nearly cool changes with every turn and call.
        if counted < boundary || self.unsummarized > 0 || cut::due(&self.figures, &self.policy).is_some() {
            return None;
        }
        let left = self.policy.least_threshold(self.figures.head).less(self.figures.tail);
        if left == Tokens::ZERO {
            return None;
        }
        let message = match self.policy.max_message_count {
            0 => MessageId(i64::MAX),
            most => MessageId(boundary.0 + i64::from(most)),
        };
        let total = Tokens::new(total.get().saturating_add(left.get()).min(i64::MAX as u64));
        let large = self.policy.large_message_threshold;
        (self.last_message_id.next() < message).then_some(Quiet { message, total, large })
    }
}

/// The jobs that the state of a tail calls for. A compaction that made no progress waits for new messages.
pub fn jobs(state: &TailState) -> Vec<JobKind> {
    let mut jobs = Vec::new();
    if cut::due(&state.figures, &state.policy).is_some() && state.stalled < state.last_message_id {
        jobs.push(JobKind::Checkpoint);
    }
    let wanted = match state.summarize() {
        Summarize::All => state.unsummarized,
        Summarize::NearlyCool => state.nearly_cool,
    };
    if wanted > 0 {
        jobs.push(JobKind::SummarizeMessages);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{KeepRecent, TokenThreshold};

    fn state(tokens: u64, stalled: i64) -> TailState {
        TailState {
            policy: Policy { token_threshold: TokenThreshold::Tokens(Tokens::new(100)), ..Policy::default() },
            last_message_id: MessageId(9),
            stalled: MessageId(stalled),
            figures: ThresholdContext { tail: Tokens::new(tokens), messages: 9, ..ThresholdContext::default() },
            unsummarized: 0,
            nearly_cool: 0,
        }
    }

    #[test]
    fn a_full_tail_causes_a_checkpoint() {
        assert_eq!(jobs(&state(100, 0)), [JobKind::Checkpoint]);
        assert_eq!(jobs(&state(99, 0)), []);
    }

    #[test]
    fn a_compaction_without_progress_waits_for_new_messages() {
        assert_eq!(jobs(&state(100, 9)), []);
        assert_eq!(jobs(&state(100, 8)), [JobKind::Checkpoint]);
    }

    #[test]
    fn a_large_message_without_summary_is_summarised() {
        assert_eq!(jobs(&TailState { unsummarized: 1, ..state(0, 0) }), [JobKind::SummarizeMessages]);
    }

    #[test]
    fn a_lazy_summary_waits_until_its_message_nears_cool_or_the_tail_is_half_full() {
        let policy = Policy { large_summaries: LargeSummaries::Lazy, ..state(0, 0).policy };
        let lazy = |tokens, nearly_cool| TailState { policy, unsummarized: 1, nearly_cool, ..state(tokens, 0) };
        assert_eq!(jobs(&lazy(49, 0)), []);
        assert_eq!(jobs(&lazy(50, 0)), [JobKind::SummarizeMessages]);
        assert_eq!(jobs(&lazy(0, 1)), [JobKind::SummarizeMessages]);
    }

    /// A state in which `messages` of 10 tokens were appended to `state`, every other one a call, every fifth a turn.
    fn grown(state: &TailState, messages: u64) -> TailState {
        let figures = ThresholdContext {
            tail: state.figures.tail + Tokens::new(messages * 10),
            messages: state.figures.messages + messages,
            calls: state.figures.calls + messages / 2,
            turns: state.figures.turns + messages / 5,
            ..state.figures
        };
        let last_message_id = MessageId(state.last_message_id.0 + messages as i64);
        TailState { last_message_id, figures, ..*state }
    }

    #[test]
    fn while_it_is_quiet_no_trigger_is_reached() {
        let keeps = [KeepRecent::Tokens(Tokens::new(300)), KeepRecent::Turns(5), KeepRecent::Share(50)];
        let thresholds = [
            TokenThreshold::Tokens(Tokens::new(1_000)),
            TokenThreshold::Auto,
            TokenThreshold::BelowWindow(Tokens::new(3_000)),
        ];
        let mut quiet_for = 0;
        for (keep_recent, token_threshold) in
            keeps.into_iter().flat_map(|keep| thresholds.map(|threshold| (keep, threshold)))
        {
            for (max_message_count, head) in [(0, 0), (0, 500), (40, 500)] {
                let window = Tokens::new(5_000);
                let policy = Policy { token_threshold, max_message_count, keep_recent, window, ..Policy::default() };
                let first = TailState { policy, ..state(90, 0) };
                let first =
                    TailState { figures: ThresholdContext { head: Tokens::new(head), ..first.figures }, ..first };
                let Some(quiet) = first.quiet(MessageId(9), Tokens::new(7_000)) else { continue };
                for messages in 0..1_000 {
                    let later = grown(&first, messages);
                    let total = Tokens::new(7_000 + messages * 10);
                    if quiet.holds(later.last_message_id, total, Tokens::new(10)) {
                        assert_eq!(jobs(&later), [], "{policy:?} after {messages} messages");
                        quiet_for += 1;
                    }
                }
            }
        }
        assert!(quiet_for > 1_000, "quiet for {quiet_for} messages in all");
    }

    #[test]
    fn the_message_that_reaches_a_trigger_ends_the_quiet() {
        let policy = Policy { max_message_count: 12, ..state(90, 0).policy };
        let quiet = TailState { policy, ..state(90, 0) }.quiet(MessageId(9), Tokens::new(90)).unwrap();
        let large = policy.large_message_threshold;
        assert!(quiet.holds(MessageId(11), Tokens::new(99), large));
        assert!(!quiet.holds(MessageId(12), Tokens::new(99), large), "as many messages as the threshold");
        assert!(!quiet.holds(MessageId(11), Tokens::new(100), large), "as many tokens as the threshold");
        assert!(!quiet.holds(MessageId(11), Tokens::new(99), large + Tokens::new(1)), "a large message");
    }

    #[test]
    fn what_waits_for_a_summary_or_a_checkpoint_is_not_quiet() {
        assert_eq!(TailState { unsummarized: 1, ..state(0, 0) }.quiet(MessageId(9), Tokens::ZERO), None);
        assert_eq!(state(100, 9).quiet(MessageId(9), Tokens::new(100)), None);
        let policy = Policy { max_message_count: 10, ..state(0, 0).policy };
        assert_eq!(
            TailState { policy, ..state(0, 0) }.quiet(MessageId(9), Tokens::ZERO),
            None,
            "the next is the tenth"
        );
    }

    #[test]
    fn nothing_is_known_while_messages_before_the_tail_are_not_counted() {
        let state = TailState { last_message_id: MessageId(20), ..state(90, 0) };
        assert!(state.quiet(MessageId(11), Tokens::new(200)).is_some(), "the tail's nine may wait");
        assert_eq!(state.quiet(MessageId(10), Tokens::new(200)), None);
    }
}
