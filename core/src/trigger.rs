//! Triggers: which jobs are due in the state of a conversation's tail.

use crate::{
    cut,
    job::JobKind,
    message::MessageId,
    policy::{IdleCheckpoints, LargeSummaries, Policy, TailFigures},
    tokens::Tokens,
};

/// The state of a tail from which the due jobs are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailState {
    /// The settings in force for the conversation.
    pub policy: Policy,
    /// The newest message of the conversation.
    pub last_message_id: MessageId,
    /// Triggers cause no compaction until a message after this one is the newest: the newest
    /// message when a compaction made no progress, or one that is to come, if a compaction was
    /// given up. [`MessageId::NONE`]: neither has happened.
    pub stalled_message_id: MessageId,
    /// The tail's figures. Cool large messages count with the size of their summaries.
    pub figures: TailFigures,
    /// Large messages of the tail that have no summary.
    pub unsummarized: u64,
    /// Those of them that are cool, or become cool with the next turn or within two model calls.
    pub nearly_cool: u64,
    /// The summary for the checkpoint after the present boundary: not tried, failed, or prepared.
    pub preparation: Preparation,
}

/// Whether the summary of the next checkpoint is prepared ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparation {
    /// None is prepared.
    Missing,
    /// None could be prepared. That is not tried again until a message after `until` is the newest.
    Failed {
        /// The last message before the next try.
        until: MessageId,
    },
    /// One is prepared.
    Done,
}

impl TailState {
    /// The last message before a compaction or a preparation is tried again that was given up: the
    /// tail must have grown by more than a quarter of its messages, and by more than
    /// `MIN_GROWTH`.
    pub fn last_before_next_try(&self) -> MessageId {
        let growth = (self.figures.messages / 4).max(MIN_GROWTH);
        MessageId(self.last_message_id.0.saturating_add_unsigned(growth))
    }

    /// Which large messages to summarize now.
    pub fn summary_scope(&self) -> SummaryScope {
        let is_eager = self.policy.large_summaries == LargeSummaries::Eager;
        if is_eager || is_half_full(&self.figures, &self.policy) {
            SummaryScope::All
        } else {
            SummaryScope::NearlyCool
        }
    }

    /// Whether a checkpoint job has something to do: a threshold is reached, or a summary is to be
    /// prepared.
    fn is_checkpoint_due(&self) -> bool {
        cut::due_trigger(&self.figures, &self.policy).is_some()
            || (self.is_to_prepare() && prepares_checkpoint(&self.figures, &self.policy))
    }

    /// Whether the summary of the next checkpoint is still to be prepared, once the tail is long
    /// enough.
    fn is_to_prepare(&self) -> bool {
        let is_missing = match self.preparation {
            Preparation::Missing => true,
            Preparation::Failed { until } => until < self.last_message_id,
            Preparation::Done => false,
        };
        is_missing && self.policy.idle_checkpoints == IdleCheckpoints::Prepared
    }
}

/// Whether a tail has half of the token threshold.
fn is_half_full(figures: &TailFigures, policy: &Policy) -> bool {
    figures.tail.get() >= policy.threshold(figures).get() / 2
}

/// Whether the summary of the next checkpoint is prepared ahead now, unless it is prepared already.
pub fn prepares_checkpoint(figures: &TailFigures, policy: &Policy) -> bool {
    policy.idle_checkpoints == IdleCheckpoints::Prepared
        && figures.messages > 0
        && is_half_full(figures, policy)
}

/// Least number of messages that must follow before a compaction or a preparation is tried again
/// that was given up.
const MIN_GROWTH: u64 = 16;

/// Which large messages to summarize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryScope {
    /// Every large message of the tail.
    All,
    /// Large messages that are cool or nearly cool.
    NearlyCool,
}

/// Bounds for the newest message and for token counts. While they hold, no trigger is reached, so
/// the tail need not be read. Any other change of the conversation (settings, a separator, a
/// checkpoint) invalidates them; the store then clears them. A change of this type, or of the rules
/// that it is computed from, requires a new `TRIGGER_RULES_VERSION` (`policy::session_settings`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggerBounds {
    /// The newest message must be before this one.
    pub message: MessageId,
    /// The tokens of all messages together must be below this.
    pub total: Tokens,
    /// No message that is counted while the bounds hold may have more tokens.
    pub large: Tokens,
}

impl TriggerBounds {
    /// Whether the bounds hold for this newest message, token total, and largest counted message.
    pub fn holds(&self, last: MessageId, total: Tokens, largest: Tokens) -> bool {
        last < self.message && total < self.total && largest <= self.large
    }
}

impl TailState {
    /// The bounds up to the next trigger. `total` is the token count of all messages; the counts of
    /// messages up to `counted` are final. None if counts before the tail are not final, if large
    /// messages wait for a summary, or if a threshold is reached or the next message may reach it.
    pub fn trigger_bounds(&self, counted: MessageId, total: Tokens) -> Option<TriggerBounds> {
        // The last message before the tail. If a message up to it is counted later, the total
        // changes, but not the tail.
        let boundary = MessageId(
            self.last_message_id
                .0
                .saturating_sub_unsigned(self.figures.messages),
        );
        // While large messages have no summary, the next turn or call may make one nearly cool.
        if counted < boundary || self.unsummarized > 0 || self.is_checkpoint_due() {
            return None;
        }
        let threshold = self.policy.min_threshold(self.figures.head);
        let first_threshold = if self.is_to_prepare() {
            Tokens::new(threshold.get() / 2)
        } else {
            threshold
        };
        let tokens_to_threshold = first_threshold.less(self.figures.tail);
        if tokens_to_threshold == Tokens::ZERO {
            return None;
        }
        let message = match self.policy.max_message_count {
            0 => MessageId(i64::MAX),
            most => MessageId(boundary.0 + i64::from(most)),
        };
        let message = match self.preparation {
            // The next try is due then.
            Preparation::Failed { until } if until >= self.last_message_id => {
                message.min(until.next())
            }
            _ => message,
        };
        let total_bound = total.get().saturating_add(tokens_to_threshold.get());
        let total = Tokens::new(total_bound.min(i64::MAX as u64));
        let large = self.policy.large_message_threshold;
        (self.last_message_id.next() < message).then_some(TriggerBounds {
            message,
            total,
            large,
        })
    }
}

/// The jobs that are due in the state of a tail. A compaction that made no progress is not repeated
/// until there are new messages.
pub fn due_jobs(state: &TailState) -> Vec<JobKind> {
    let mut jobs = Vec::new();
    if state.is_checkpoint_due() && state.stalled_message_id < state.last_message_id {
        jobs.push(JobKind::Checkpoint);
    }
    let wanted = match state.summary_scope() {
        SummaryScope::All => state.unsummarized,
        SummaryScope::NearlyCool => state.nearly_cool,
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
            policy: Policy {
                token_threshold: TokenThreshold::Tokens(Tokens::new(100)),
                ..Policy::default()
            },
            last_message_id: MessageId(9),
            stalled_message_id: MessageId(stalled),
            figures: TailFigures {
                tail: Tokens::new(tokens),
                messages: 9,
                ..TailFigures::default()
            },
            unsummarized: 0,
            nearly_cool: 0,
            preparation: Preparation::Missing,
        }
    }

    /// A tail of so many tokens, under a policy that prepares summaries.
    fn preparing(tokens: u64, preparation: Preparation) -> TailState {
        let state = state(tokens, 0);
        let policy = Policy {
            idle_checkpoints: IdleCheckpoints::Prepared,
            ..state.policy
        };
        TailState {
            policy,
            preparation,
            ..state
        }
    }

    #[test]
    fn a_summary_is_prepared_once_when_the_tail_has_half_of_the_threshold() {
        let (missing, done) = (Preparation::Missing, Preparation::Done);
        assert_eq!(due_jobs(&preparing(49, missing)), []);
        assert_eq!(due_jobs(&preparing(50, missing)), [JobKind::Checkpoint]);
        assert_eq!(due_jobs(&preparing(50, done)), [], "it is prepared");
        assert_eq!(due_jobs(&preparing(100, done)), [JobKind::Checkpoint]);
        assert_eq!(due_jobs(&state(50, 0)), [], "the policy prepares nothing");
        let bounds = |tokens, preparation| {
            preparing(tokens, preparation).trigger_bounds(MessageId(9), Tokens::new(tokens))
        };
        let total = |tokens, preparation| bounds(tokens, preparation).map(|bounds| bounds.total);
        assert_eq!(total(40, missing), Some(Tokens::new(50)));
        assert_eq!(total(40, done), Some(Tokens::new(100)));
        assert_eq!(bounds(50, missing), None, "the job is due");
    }

    #[test]
    fn a_failed_preparation_waits_for_growth_and_delays_no_checkpoint() {
        let failed = |until| Preparation::Failed {
            until: MessageId(until),
        };
        // The newest message is 9.
        assert_eq!(due_jobs(&preparing(50, failed(9))), []);
        assert_eq!(due_jobs(&preparing(50, failed(25))), []);
        assert_eq!(due_jobs(&preparing(50, failed(8))), [JobKind::Checkpoint]);
        assert_eq!(
            due_jobs(&preparing(100, failed(25))),
            [JobKind::Checkpoint],
            "the threshold is reached"
        );
        let bounds =
            |preparation| preparing(60, preparation).trigger_bounds(MessageId(9), Tokens::new(60));
        let waiting = bounds(failed(25)).expect("nothing is due before message 26");
        assert_eq!(
            (waiting.message, waiting.total),
            (MessageId(26), Tokens::new(100))
        );
        assert_eq!(bounds(failed(9)), None, "the next message may cause a job");
        assert_eq!(bounds(failed(8)), None, "the job is due");
    }

    #[test]
    fn a_tail_that_reaches_the_token_threshold_causes_a_checkpoint() {
        assert_eq!(due_jobs(&state(100, 0)), [JobKind::Checkpoint]);
        assert_eq!(due_jobs(&state(99, 0)), []);
    }

    #[test]
    fn a_compaction_without_progress_waits_for_new_messages() {
        assert_eq!(due_jobs(&state(100, 9)), []);
        assert_eq!(due_jobs(&state(100, 8)), [JobKind::Checkpoint]);
    }

    #[test]
    fn a_compaction_that_was_given_up_waits_for_a_quarter_of_growth() {
        let small = state(100, 0);
        assert_eq!(small.last_before_next_try(), MessageId(9 + 16));
        let mut large = state(100, 0);
        large.last_message_id = MessageId(1_000);
        large.figures.messages = 400;
        assert_eq!(large.last_before_next_try(), MessageId(1_100));
        large.stalled_message_id = large.last_before_next_try();
        for (newest, due) in [(1_100, vec![]), (1_101, vec![JobKind::Checkpoint])] {
            large.last_message_id = MessageId(newest);
            assert_eq!(due_jobs(&large), due);
        }
    }

    #[test]
    fn a_large_message_without_summary_is_summarized() {
        assert_eq!(
            due_jobs(&TailState {
                unsummarized: 1,
                ..state(0, 0)
            }),
            [JobKind::SummarizeMessages]
        );
    }

    #[test]
    fn a_lazy_summary_waits_until_its_message_is_nearly_cool_or_the_tail_is_half_full() {
        let policy = Policy {
            large_summaries: LargeSummaries::Lazy,
            ..state(0, 0).policy
        };
        let lazy = |tokens, nearly_cool| TailState {
            policy,
            unsummarized: 1,
            nearly_cool,
            ..state(tokens, 0)
        };
        assert_eq!(due_jobs(&lazy(49, 0)), []);
        assert_eq!(due_jobs(&lazy(50, 0)), [JobKind::SummarizeMessages]);
        assert_eq!(due_jobs(&lazy(0, 1)), [JobKind::SummarizeMessages]);
    }

    /// The state after `messages` messages of 10 tokens were appended to `state`: every second one
    /// is a model call, every fifth one starts a turn.
    fn grown(state: &TailState, messages: u64) -> TailState {
        let figures = TailFigures {
            tail: state.figures.tail + Tokens::new(messages * 10),
            messages: state.figures.messages + messages,
            calls: state.figures.calls + messages / 2,
            turns: state.figures.turns + messages / 5,
            ..state.figures
        };
        let last_message_id = MessageId(state.last_message_id.0 + messages as i64);
        TailState {
            last_message_id,
            figures,
            ..*state
        }
    }

    #[test]
    fn while_the_bounds_hold_no_trigger_is_reached() {
        let keeps = [
            KeepRecent::Tokens(Tokens::new(300)),
            KeepRecent::Turns(5),
            KeepRecent::Share(50),
        ];
        let thresholds = [
            TokenThreshold::Tokens(Tokens::new(1_000)),
            TokenThreshold::Auto,
            TokenThreshold::BelowWindow(Tokens::new(3_000)),
        ];
        let mut checked = 0;
        for (keep_recent, token_threshold) in keeps
            .into_iter()
            .flat_map(|keep| thresholds.map(|threshold| (keep, threshold)))
        {
            for (max_message_count, head) in [(0, 0), (0, 500), (40, 500)] {
                let window = Tokens::new(5_000);
                let policy = Policy {
                    token_threshold,
                    max_message_count,
                    keep_recent,
                    window,
                    ..Policy::default()
                };
                let first = TailState {
                    policy,
                    ..state(90, 0)
                };
                let first = TailState {
                    figures: TailFigures {
                        head: Tokens::new(head),
                        ..first.figures
                    },
                    ..first
                };
                let Some(bounds) = first.trigger_bounds(MessageId(9), Tokens::new(7_000)) else {
                    continue;
                };
                for messages in 0..1_000 {
                    let later = grown(&first, messages);
                    let total = Tokens::new(7_000 + messages * 10);
                    if bounds.holds(later.last_message_id, total, Tokens::new(10)) {
                        assert_eq!(due_jobs(&later), [], "{policy:?} after {messages} messages");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 1_000, "checked only {checked} states");
    }

    #[test]
    fn the_message_that_reaches_a_trigger_exceeds_the_bounds() {
        let policy = Policy {
            max_message_count: 12,
            ..state(90, 0).policy
        };
        let bounds = TailState {
            policy,
            ..state(90, 0)
        }
        .trigger_bounds(MessageId(9), Tokens::new(90))
        .unwrap();
        let large = policy.large_message_threshold;
        assert!(bounds.holds(MessageId(11), Tokens::new(99), large));
        assert!(
            !bounds.holds(MessageId(12), Tokens::new(99), large),
            "as many messages as the threshold"
        );
        assert!(
            !bounds.holds(MessageId(11), Tokens::new(100), large),
            "as many tokens as the threshold"
        );
        assert!(
            !bounds.holds(MessageId(11), Tokens::new(99), large + Tokens::new(1)),
            "a large message"
        );
    }

    #[test]
    fn there_are_no_bounds_while_a_job_is_due_or_the_next_message_may_cause_one() {
        assert_eq!(
            TailState {
                unsummarized: 1,
                ..state(0, 0)
            }
            .trigger_bounds(MessageId(9), Tokens::ZERO),
            None
        );
        assert_eq!(
            state(100, 9).trigger_bounds(MessageId(9), Tokens::new(100)),
            None
        );
        let policy = Policy {
            max_message_count: 10,
            ..state(0, 0).policy
        };
        assert_eq!(
            TailState {
                policy,
                ..state(0, 0)
            }
            .trigger_bounds(MessageId(9), Tokens::ZERO),
            None,
            "the next message is the tenth"
        );
    }

    #[test]
    fn there_are_no_bounds_while_messages_before_the_tail_are_not_counted() {
        let state = TailState {
            last_message_id: MessageId(20),
            ..state(90, 0)
        };
        assert!(
            state
                .trigger_bounds(MessageId(11), Tokens::new(200))
                .is_some(),
            "the tail's nine messages may be uncounted"
        );
        assert_eq!(state.trigger_bounds(MessageId(10), Tokens::new(200)), None);
    }
}
