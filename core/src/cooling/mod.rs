//! When a message is large, and when it is cool: so old that its summary may be sent in its place,
//! which is a swap. `stepped` decides when stepped cooling swaps.

mod stepped;

pub use stepped::{Candidate, SwapCost, step_is_due};

use crate::{
    message::Role,
    policy::{Cooling, Policy},
    tokens::Tokens,
};

/// Whether a message of `tokens` is large: more than the threshold.
pub fn is_large(tokens: Tokens, policy: &Policy) -> bool {
    tokens > policy.large_message_threshold
}

/// Whether a message of turn `turn` is cool in turn `current_turn` because of its age in turns,
/// which must be more than `hot_zone_radius`.
pub fn is_cool_by_turns(turn: i32, current_turn: i32, policy: &Policy) -> bool {
    i64::from(current_turn) - i64::from(turn) > i64::from(policy.hot_zone_radius)
}

/// Turn and role of a message of a tail. They decide when the messages become cool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailPosition {
    /// Its turn.
    pub turn: i32,
    /// Its role. Every assistant message is a model call.
    pub role: Role,
}

/// For each message of a tail: the number of model calls since it became cool; None while it is
/// hot.
///
/// A message is cool when it is more than `hot_zone_radius` turns old. With stepped cooling it is
/// also cool when more than `hot_zone_calls` model calls have followed it, because an agent may
/// make many tool calls within one turn.
pub fn calls_since_cool(
    tail: &[TailPosition],
    current_turn: i32,
    policy: &Policy,
) -> Vec<Option<u64>> {
    // For each index: the number of model calls from there on.
    let mut calls_from = vec![0_u64; tail.len() + 1];
    for (index, position) in tail.iter().enumerate().rev() {
        calls_from[index] = calls_from[index + 1] + u64::from(position.role == Role::Assistant);
    }
    let hot_calls = (policy.cooling == Cooling::Stepped && policy.hot_zone_calls > 0)
        .then_some(policy.hot_zone_calls);
    let calls_since_cool = tail.iter().enumerate().map(|(index, position)| {
        let by_turns = is_cool_by_turns(position.turn, current_turn, policy).then(|| {
            // The first message of a turn after `last_hot_turn` made the message cool.
            let last_hot_turn = i64::from(position.turn) + i64::from(policy.hot_zone_radius);
            calls_from[tail.partition_point(|later| i64::from(later.turn) <= last_hot_turn)]
        });
        // Call number `calls + 1` after the message made it cool. Only the calls after that count.
        let by_calls =
            hot_calls.and_then(|calls| calls_from[index + 1].checked_sub(u64::from(calls) + 1));
        // The larger count began earlier. `None` is less than any count.
        by_turns.max(by_calls)
    });
    calls_since_cool.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_exactly_five_turns_old_is_hot_and_six_is_cool() {
        let policy = Policy::default();
        assert!(!is_cool_by_turns(1, 6, &policy));
        assert!(is_cool_by_turns(1, 7, &policy));
    }

    #[test]
    fn a_message_exactly_at_the_threshold_is_not_large() {
        let policy = Policy {
            large_message_threshold: Tokens::new(4_000),
            ..Policy::default()
        };
        assert!(!is_large(Tokens::new(4_000), &policy));
        assert!(is_large(Tokens::new(4_001), &policy));
    }

    /// One turn: a question, then `calls` tool calls with their results.
    fn tool_run(calls: usize) -> Vec<TailPosition> {
        let mut tail = vec![TailPosition {
            turn: 1,
            role: Role::User,
        }];
        for _ in 0..calls {
            tail.extend([Role::Assistant, Role::Tool].map(|role| TailPosition { turn: 1, role }));
        }
        tail
    }

    #[test]
    fn only_with_stepped_cooling_is_a_message_cool_after_more_than_ten_model_calls() {
        let stepped = Policy {
            cooling: Cooling::Stepped,
            ..Policy::default()
        };
        let strict = Policy::default();
        let first = |calls, policy: &Policy| calls_since_cool(&tool_run(calls), 1, policy)[0];
        assert_eq!(first(10, &stepped), None);
        assert_eq!(first(11, &stepped), Some(0));
        assert_eq!(first(14, &stepped), Some(3));
        assert_eq!(first(14, &strict), None, "a tool run stays in one turn");
        let never = Policy {
            hot_zone_calls: 0,
            ..stepped
        };
        assert_eq!(first(14, &never), None);
    }

    #[test]
    fn calls_are_counted_from_when_a_message_first_became_cool() {
        let policy = Policy {
            cooling: Cooling::Stepped,
            ..Policy::default()
        };
        let chat: Vec<TailPosition> = (1..=8)
            .flat_map(|turn| [Role::User, Role::Assistant].map(|role| TailPosition { turn, role }))
            .collect();
        let calls = calls_since_cool(&chat, 8, &policy);
        assert_eq!(
            &calls[..6],
            [Some(2), Some(2), Some(1), Some(1), None, None],
            "messages of turn 1 are cool since turn 7, those of turn 2 since turn 8"
        );
        assert_eq!(
            calls_since_cool(&chat, 9, &policy)[4],
            Some(0),
            "a new turn has no call yet"
        );
    }
}
