//! What a change of a conversation causes: the jobs to queue.

use crate::{
    cut::{self, TailSize},
    job::JobKind,
    message::MessageId,
    policy::Policy,
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
    /// The tail's figures.
    pub size: TailSize,
    /// Large messages of the tail that have no summary.
    pub unsummarized: u64,
}

/// The jobs that the state of a tail calls for. A compaction that made no progress waits for new messages.
pub fn jobs(state: &TailState) -> Vec<JobKind> {
    let mut jobs = Vec::new();
    if cut::due(state.size, &state.policy).is_some() && state.stalled < state.last_message_id {
        jobs.push(JobKind::Checkpoint);
    }
    if state.unsummarized > 0 {
        jobs.push(JobKind::SummarizeMessages);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Tokens;

    fn state(tokens: u64, stalled: i64) -> TailState {
        TailState {
            policy: Policy { token_threshold: Tokens::new(100), ..Policy::default() },
            last_message_id: MessageId(9),
            stalled: MessageId(stalled),
            size: TailSize { tokens: Tokens::new(tokens), messages: 9 },
            unsummarized: 0,
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
}
