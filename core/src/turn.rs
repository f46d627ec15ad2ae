//! Where turns start.

use crate::message::Role;

/// Whether a message starts a turn: a user message whose predecessor is not a user message.
pub fn starts(role: Role, predecessor: Option<Role>) -> bool {
    role == Role::User && predecessor != Some(Role::User)
}

/// The last turn after messages with these roles are appended to a conversation whose last turn is
/// `turn` and whose last message has the role `predecessor`.
pub fn after(turn: i32, predecessor: Option<Role>, roles: impl IntoIterator<Item = Role>) -> i32 {
    let mut turn = turn;
    let mut predecessor = predecessor;
    for role in roles {
        turn += i32::from(starts(role, predecessor));
        predecessor = Some(role);
    }
    turn
}

#[cfg(test)]
mod tests {
    use super::*;
    use Role::{Assistant, System, Tool, User};

    #[test]
    fn a_turn_starts_at_a_user_message_after_anything_but_a_user_message() {
        assert_eq!(after(0, None, [User]), 1);
        assert_eq!(after(0, None, [User, User]), 1);
        assert_eq!(after(0, None, [User, Assistant, Tool, Assistant, User]), 2);
        assert_eq!(
            after(0, None, [Assistant, System]),
            0,
            "messages before the first user message belong to turn 0"
        );
        assert_eq!(after(3, Some(User), [User, Assistant]), 3);
        assert_eq!(after(3, Some(Tool), [User]), 4);
    }
}
