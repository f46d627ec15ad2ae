//! When a message is large, and when it has cooled.

use crate::{policy::Policy, tokens::Tokens};

/// Whether a message of `tokens` is large: strictly more than the threshold.
pub fn is_large(tokens: Tokens, policy: &Policy) -> bool {
    tokens > policy.large_message_threshold
}

/// Whether a message of `turn` is cool at `current_turn`: strictly more than the radius old.
pub fn is_cool(turn: i32, current_turn: i32, policy: &Policy) -> bool {
    i64::from(current_turn) - i64::from(turn) > i64::from(policy.hot_zone_radius)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_exactly_five_turns_old_is_hot_and_six_is_cool() {
        let policy = Policy::default();
        assert!(!is_cool(1, 6, &policy));
        assert!(is_cool(1, 7, &policy));
    }

    #[test]
    fn a_message_exactly_at_the_threshold_is_not_large() {
        let policy = Policy { large_message_threshold: Tokens::new(4_000), ..Policy::default() };
        assert!(!is_large(Tokens::new(4_000), &policy));
        assert!(is_large(Tokens::new(4_001), &policy));
    }
}
