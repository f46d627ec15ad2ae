//! Cases of forks, and of lists of them.

use crate::hostile::{
    ask, ask_about,
    case::{Case, INVALID, LIMIT, NO_CONVERSATION, NO_MESSAGE, answered, refused},
    conversations::{UNKNOWN, labels, many_labels},
};

/// Cases of ForkConversation. The conversation has at least four messages, and fewer than 9,000.
pub(crate) fn forks(id: &str) -> Vec<Case> {
    macro_rules! fork {
        ($($field:ident: $value:expr),*) => {
            ask_about!(id, ForkConversationRequest { $($field: $value),* })
        };
    }
    let at = |message: i64| fork!(message_id: message);
    vec![
        refused("a fork at -1", at(-1), INVALID, "message_id"),
        refused("a fork at i64::MIN", at(i64::MIN), INVALID, "message_id"),
        refused("a fork beyond the end", at(9_000), NO_MESSAGE, "message_id"),
        refused("a fork at i64::MAX", at(i64::MAX), NO_MESSAGE, "message_id"),
        answered("a fork at the first message", at(1)),
        answered(
            "a fork with an odd title",
            fork!(title: String::from("\u{202e}\u{1b}[31m\u{10ffff}")),
        ),
        answered(
            "a fork with labels of 4,096 bytes",
            fork!(metadata: labels("k", &"v".repeat(4_095))),
        ),
        refused(
            "a fork with NUL in its title",
            fork!(title: String::from("a\0")),
            INVALID,
            "title",
        ),
        refused(
            "a fork with a title of 513 bytes",
            fork!(title: "a".repeat(513)),
            LIMIT,
            "title",
        ),
        refused(
            "a fork with NUL in a label",
            fork!(metadata: labels("k", "\0")),
            INVALID,
            "metadata",
        ),
        refused(
            "a fork with 33 labels",
            fork!(metadata: many_labels(33)),
            LIMIT,
            "metadata",
        ),
        refused(
            "a fork with a request id of 129 bytes",
            fork!(request_id: "r".repeat(129)),
            LIMIT,
            "request_id",
        ),
        refused(
            "a fork with NUL in its request id",
            fork!(request_id: "\0"),
            INVALID,
            "request_id",
        ),
        refused(
            "a fork of an unknown conversation",
            ask_about!(UNKNOWN, ForkConversationRequest {}),
            NO_CONVERSATION,
            "",
        ),
        refused(
            "a fork of no conversation",
            ask_about!("", ForkConversationRequest {}),
            INVALID,
            "conversation_id",
        ),
    ]
}

/// Cases of lists of forks.
pub(crate) fn lists_of_forks(id: &str) -> Vec<Case> {
    macro_rules! list {
        ($($field:ident: $value:expr),*) => {
            ask!(ListConversationsRequest { $($field: $value),* })
        };
    }
    let source = "forked_from_conversation_id";
    vec![
        answered(
            "forks of an unknown conversation",
            list!(forked_from_conversation_id: UNKNOWN),
        ),
        refused(
            "forks of half an id",
            list!(forked_from_conversation_id: &id[..18]),
            INVALID,
            source,
        ),
        refused(
            "forks of an id without dashes",
            list!(forked_from_conversation_id: id.replace('-', "")),
            INVALID,
            source,
        ),
        refused(
            "forks of an id of 1 MiB",
            list!(forked_from_conversation_id: "a".repeat(1 << 20)),
            INVALID,
            source,
        ),
        refused(
            "forks of an agent",
            list!(forked_from_conversation_id: id, agent_id: "a"),
            INVALID,
            source,
        ),
        refused(
            "forks of a user",
            list!(forked_from_conversation_id: id, user_id: "u"),
            INVALID,
            source,
        ),
        refused(
            "archived forks",
            list!(forked_from_conversation_id: id, status: 2),
            INVALID,
            source,
        ),
        refused(
            "forks by their title",
            list!(forked_from_conversation_id: id, title_prefix: "t"),
            INVALID,
            source,
        ),
    ]
}
