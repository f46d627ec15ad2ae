//! What a change of a conversation causes: the jobs to queue.

use crate::{
    cut,
    job::JobKind,
    message::MessageId,
    policy::{LargeSummaries, Policy, ThresholdContext},
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
    use crate::{policy::TokenThreshold, tokens::Tokens};

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
}
