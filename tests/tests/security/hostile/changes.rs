//! Cases of changes of messages: which messages, under which conditions. Those that are answered
//! change nothing, because other cases use the same conversation.

use anneal_testkit::{id_range, pb};

use crate::hostile::{
    ask_about,
    case::{
        Case, ETAG_MISMATCH, INVALID, LAST_MESSAGE_MISMATCH, LIMIT, NO_CONVERSATION, NO_MESSAGE,
        answered, refused,
    },
    conversations::UNKNOWN,
};

/// Cases of WithdrawMessages. The conversation has at least four messages, and fewer than 9,000.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn withdrawals(id: &str) -> Vec<Case> {
    let named = |message_ids: &[i64]| {
        ask_about!(
            id,
            WithdrawMessagesRequest {
                message_ids: message_ids
            }
        )
    };
    let range = |first, last| {
        ask_about!(
            id,
            WithdrawMessagesRequest {
                range: id_range(first, last)
            }
        )
    };
    let with_etag = |etag: &str| {
        ask_about!(
            id,
            WithdrawMessagesRequest {
                message_ids: [1],
                etag: etag
            }
        )
    };
    vec![
        refused("no message", named(&[]), INVALID, "message_ids"),
        refused("message 0", named(&[1, 0]), INVALID, "message_ids[1]"),
        refused("message -1", named(&[-1]), INVALID, "message_ids[0]"),
        refused(
            "message i64::MIN",
            named(&[i64::MIN]),
            INVALID,
            "message_ids[0]",
        ),
        refused(
            "message i64::MAX",
            named(&[1, i64::MAX]),
            NO_MESSAGE,
            "message_ids[1]",
        ),
        refused(
            "an unknown message twice",
            named(&[9_000, 9_000]),
            NO_MESSAGE,
            "message_ids[0]",
        ),
        refused("501 messages", named(&[1; 501]), LIMIT, "message_ids"),
        refused(
            "a range backwards",
            range(3, 2),
            INVALID,
            "range.last_message_id",
        ),
        refused(
            "a range from 0",
            range(0, 2),
            INVALID,
            "range.first_message_id",
        ),
        refused(
            "a range to -1",
            range(1, -1),
            INVALID,
            "range.last_message_id",
        ),
        refused(
            "a range beyond the end",
            range(1, 9_000),
            NO_MESSAGE,
            "range.last_message_id",
        ),
        refused(
            "a range that begins beyond the end",
            range(9_000, 9_500),
            NO_MESSAGE,
            "range.first_message_id",
        ),
        refused("a range of 10,001", range(1, 10_001), LIMIT, "range"),
        refused("a range to i64::MAX", range(1, i64::MAX), LIMIT, "range"),
        refused(
            "ids and a range",
            ask_about!(
                id,
                WithdrawMessagesRequest {
                    message_ids: [1],
                    range: id_range(1, 1)
                }
            ),
            INVALID,
            "range",
        ),
        refused("an etag that is no number", with_etag("x"), INVALID, "etag"),
        refused("an etag with NUL", with_etag("1\0"), INVALID, "etag"),
        refused(
            "an etag of 1 MB",
            with_etag(&"1".repeat(1 << 20)),
            INVALID,
            "etag",
        ),
        refused(
            "the etag of another conversation",
            with_etag("987654321"),
            ETAG_MISMATCH,
            "",
        ),
        refused(
            "-1 as the expected last message",
            ask_about!(
                id,
                WithdrawMessagesRequest {
                    message_ids: [1],
                    expected_last_message_id: -1_i64
                }
            ),
            INVALID,
            "expected_last_message_id",
        ),
        refused(
            "i64::MAX as the expected last message",
            ask_about!(
                id,
                WithdrawMessagesRequest {
                    message_ids: [1],
                    expected_last_message_id: i64::MAX
                }
            ),
            LAST_MESSAGE_MISMATCH,
            "",
        ),
        refused(
            "a request id of 129 bytes",
            ask_about!(
                id,
                WithdrawMessagesRequest {
                    message_ids: [1],
                    request_id: "r".repeat(129)
                }
            ),
            LIMIT,
            "request_id",
        ),
        refused(
            "an unknown conversation",
            ask_about!(UNKNOWN, WithdrawMessagesRequest { message_ids: [1] }),
            NO_CONVERSATION,
            "",
        ),
    ]
}

/// Cases of Rewind and RestoreMessages. The conversation has at least four messages, and fewer than
/// 9,000.
pub(crate) fn rewinds_and_restores(id: &str) -> Vec<Case> {
    let rewind = |after: i64| {
        ask_about!(
            id,
            RewindRequest {
                after_message_id: after
            }
        )
    };
    let restore = |message_ids: &[i64]| {
        ask_about!(
            id,
            RestoreMessagesRequest {
                message_ids: message_ids
            }
        )
    };
    let restore_range = |first, last| {
        ask_about!(
            id,
            RestoreMessagesRequest {
                range: id_range(first, last)
            }
        )
    };
    vec![
        refused("a rewind to -1", rewind(-1), INVALID, "after_message_id"),
        refused(
            "a rewind to i64::MIN",
            rewind(i64::MIN),
            INVALID,
            "after_message_id",
        ),
        refused(
            "a rewind to i64::MAX",
            rewind(i64::MAX),
            NO_MESSAGE,
            "after_message_id",
        ),
        refused(
            "a rewind with another etag",
            ask_about!(id, RewindRequest { etag: "987654321" }),
            ETAG_MISMATCH,
            "",
        ),
        refused(
            "a rewind after another message than expected",
            ask_about!(
                id,
                RewindRequest {
                    expected_last_message_id: 987_654_i64
                }
            ),
            LAST_MESSAGE_MISMATCH,
            "",
        ),
        refused(
            "a rewind of an unknown conversation",
            ask_about!(UNKNOWN, RewindRequest {}),
            NO_CONVERSATION,
            "",
        ),
        refused("nothing to restore", restore(&[]), INVALID, "message_ids"),
        answered("messages that stand are restored", restore(&[2, 1, 2])),
        refused(
            "an unknown message is restored",
            restore(&[1, 9_000]),
            NO_MESSAGE,
            "message_ids[1]",
        ),
        refused("501 are restored", restore(&[1; 501]), LIMIT, "message_ids"),
        answered("a range that stands is restored", restore_range(1, 4)),
        refused(
            "a range backwards is restored",
            restore_range(2, 1),
            INVALID,
            "range.last_message_id",
        ),
        refused(
            "a range beyond the end is restored",
            restore_range(1, 9_000),
            NO_MESSAGE,
            "range.last_message_id",
        ),
        refused(
            "ids and a range are restored",
            ask_about!(
                id,
                RestoreMessagesRequest {
                    message_ids: [1],
                    range: pb::IdRange::default()
                }
            ),
            INVALID,
            "range",
        ),
        refused(
            "messages of an unknown conversation are restored",
            ask_about!(UNKNOWN, RestoreMessagesRequest { message_ids: [1] }),
            NO_CONVERSATION,
            "",
        ),
    ]
}

/// Cases of ChooseAlternative. No question of the conversation was answered anew.
pub(crate) fn choices(id: &str) -> Vec<Case> {
    let choose = |question: i64, number: i32| {
        ask_about!(
            id,
            ChooseAlternativeRequest {
                question_message_id: question,
                number: number
            }
        )
    };
    vec![
        answered("the answer that stands is chosen", choose(1, 1)),
        refused(
            "an answer that is missing",
            choose(1, 2),
            NO_MESSAGE,
            "number",
        ),
        refused("an answer 0", choose(1, 0), INVALID, "number"),
        refused("an answer i32::MIN", choose(1, i32::MIN), INVALID, "number"),
        refused(
            "an answer i32::MAX",
            choose(1, i32::MAX),
            NO_MESSAGE,
            "number",
        ),
        refused("a question 0", choose(0, 1), INVALID, "question_message_id"),
        refused(
            "a question i64::MAX",
            choose(i64::MAX, 1),
            NO_MESSAGE,
            "question_message_id",
        ),
        refused(
            "a choice with another etag",
            ask_about!(
                id,
                ChooseAlternativeRequest {
                    question_message_id: 1,
                    number: 1,
                    etag: "987654321"
                }
            ),
            ETAG_MISMATCH,
            "",
        ),
        refused(
            "a choice in an unknown conversation",
            ask_about!(
                UNKNOWN,
                ChooseAlternativeRequest {
                    question_message_id: 1,
                    number: 1
                }
            ),
            NO_CONVERSATION,
            "",
        ),
    ]
}
