//! When a message is large, when it has cooled, and when cool ones give way to their summaries.

mod stepped;

pub use stepped::{Candidate, Stepped, decide};

use crate::{
    message::Role,
    policy::{Cooling, Policy},
    tokens::Tokens,
};

/// Whether a message of `tokens` is large: strictly more than the threshold.
pub fn is_large(tokens: Tokens, policy: &Policy) -> bool {
    tokens > policy.large_message_threshold
}

/// Whether a message of `turn` is cool by its age in turns at `current_turn`: strictly more than the radius old.
pub fn is_cool_by_turns(turn: i32, current_turn: i32, policy: &Policy) -> bool {
    i64::from(current_turn) - i64::from(turn) > i64::from(policy.hot_zone_radius)
}

/// Where a message of the tail stands in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its turn.
    pub turn: i32,
    /// Who speaks: an assistant message is a model call.
    pub role: Role,
}

/// For each message of a tail: None while it is hot; once it is cool, how many model calls were made since.
///
/// Cool is what is more than `hot_zone_radius` turns old. With stepped cooling also what more than `hot_zone_calls` model
/// calls have followed: in tool runs turns stand still.
pub fn calls_since_cool(tail: &[Place], current_turn: i32, policy: &Policy) -> Vec<Option<u64>> {
    let mut calls_from = vec![0_u64; tail.len() + 1];
    for (index, place) in tail.iter().enumerate().rev() {
        calls_from[index] = calls_from[index + 1] + u64::from(place.role == Role::Assistant);
    }
    let by_calls = (policy.cooling == Cooling::Stepped && policy.hot_zone_calls > 0).then_some(policy.hot_zone_calls);
    let ages = tail.iter().enumerate().map(|(index, place)| {
        let by_turns = is_cool_by_turns(place.turn, current_turn, policy).then(|| {
            let cool_at = i64::from(place.turn) + i64::from(policy.hot_zone_radius);
            calls_from[tail.partition_point(|later| i64::from(later.turn) <= cool_at)]
        });
        let by_calls = by_calls.and_then(|calls| calls_from[index + 1].checked_sub(u64::from(calls) + 1));
        by_turns.max(by_calls)
    });
    ages.collect()
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
        let policy = Policy { large_message_threshold: Tokens::new(4_000), ..Policy::default() };
        assert!(!is_large(Tokens::new(4_000), &policy));
        assert!(is_large(Tokens::new(4_001), &policy));
    }

    fn tool_run(calls: usize) -> Vec<Place> {
        let mut tail = vec![Place { turn: 1, role: Role::User }];
        for _ in 0..calls {
            tail.extend([Role::Assistant, Role::Tool].map(|role| Place { turn: 1, role }));
        }
        tail
    }

    #[test]
    fn ten_model_calls_leave_a_message_hot_and_eleven_make_it_cool_in_steps_only() {
        let stepped = Policy { cooling: Cooling::Stepped, ..Policy::default() };
        let strict = Policy::default();
        let first = |calls, policy: &Policy| calls_since_cool(&tool_run(calls), 1, policy)[0];
        assert_eq!(first(10, &stepped), None);
        assert_eq!(first(11, &stepped), Some(0));
        assert_eq!(first(14, &stepped), Some(3));
        assert_eq!(first(14, &strict), None, "turns stand still in tool runs");
        let never = Policy { hot_zone_calls: 0, ..stepped };
        assert_eq!(first(14, &never), None);
    }

    #[test]
    fn calls_are_counted_since_whichever_age_came_first() {
        let policy = Policy { cooling: Cooling::Stepped, ..Policy::default() };
        let chat: Vec<Place> =
            (1..=8).flat_map(|turn| [Role::User, Role::Assistant].map(|role| Place { turn, role })).collect();
        let ages = calls_since_cool(&chat, 8, &policy);
        assert_eq!(&ages[..6], [Some(2), Some(2), Some(1), Some(1), None, None], "cool since turns 7 and 8");
        assert_eq!(calls_since_cool(&chat, 9, &policy)[4], Some(0), "a new turn has no call yet");
    }
}
