//! Cases of edits, of versions of messages, and of lists of what no longer stands. Those that are
//! answered change nothing, because other cases use the same conversation.

use std::collections::HashMap;

use anneal_testkit::{assistant, call, pb, result, text, user};

use crate::hostile::{
    ask_about,
    case::{
        Case, ETAG_MISMATCH, GrpcRequest, INVALID, LAST_MESSAGE_MISMATCH, LIMIT, NO_CONVERSATION,
        NO_MESSAGE, NO_VERSION, VERSION_MISMATCH, answered, refused,
    },
    conversations::UNKNOWN,
};

/// An edit of a message by this new one.
pub(crate) fn edit(id: &str, message_id: i64, message: pb::NewMessage) -> GrpcRequest {
    ask_about!(
        id,
        EditMessageRequest {
            message_id: message_id,
            message: message
        }
    )
}

/// Cases of EditMessage. The first two messages of the conversation are a user's and an
/// assistant's, and it has fewer than 9,000.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn edits(id: &str) -> Vec<Case> {
    let expecting = |version: i32| {
        ask_about!(
            id,
            EditMessageRequest {
                message_id: 1,
                message: user("edited"),
                expected_version: version
            }
        )
    };
    let with_etag = |etag: &str| {
        ask_about!(
            id,
            EditMessageRequest {
                message_id: 1,
                message: user("edited"),
                etag: etag
            }
        )
    };
    let labelled = |key: &str, value: &str| pb::NewMessage {
        metadata: HashMap::from([(key.to_owned(), value.to_owned())]),
        ..user("edited")
    };
    let of_parts = |count: usize| pb::NewMessage {
        parts: user("x").parts.into_iter().cycle().take(count).collect(),
        ..user("x")
    };
    vec![
        refused(
            "nothing new",
            ask_about!(id, EditMessageRequest { message_id: 1 }),
            INVALID,
            "message",
        ),
        refused(
            "no part",
            edit(id, 1, of_parts(0)),
            INVALID,
            "message.parts",
        ),
        refused(
            "257 parts",
            edit(id, 1, of_parts(257)),
            LIMIT,
            "message.parts",
        ),
        refused(
            "a part of no kind",
            edit(
                id,
                1,
                pb::NewMessage {
                    parts: vec![pb::Part::default()],
                    ..user("x")
                },
            ),
            INVALID,
            "message.parts[0]",
        ),
        refused(
            "no role",
            edit(id, 1, text(pb::Role::Unspecified, "edited")),
            INVALID,
            "message.role",
        ),
        refused(
            "another role",
            edit(id, 1, assistant("edited")),
            INVALID,
            "message.role",
        ),
        refused(
            "a tool result for a question",
            edit(id, 1, result("c", "edited")),
            INVALID,
            "message.role",
        ),
        refused(
            "a call that the message does not have",
            edit(id, 2, call("c", "{}")),
            INVALID,
            "message.parts",
        ),
        refused(
            "a label with NUL",
            edit(id, 1, labelled("a", "\0")),
            INVALID,
            "message.metadata",
        ),
        refused(
            "labels of 5,000 bytes",
            edit(id, 1, labelled("a", &"b".repeat(5_000))),
            LIMIT,
            "message.metadata",
        ),
        refused(
            "message 0 is edited",
            edit(id, 0, user("x")),
            INVALID,
            "message_id",
        ),
        refused(
            "message -1 is edited",
            edit(id, -1, user("x")),
            INVALID,
            "message_id",
        ),
        refused(
            "message i64::MIN is edited",
            edit(id, i64::MIN, user("x")),
            INVALID,
            "message_id",
        ),
        refused(
            "message i64::MAX is edited",
            edit(id, i64::MAX, user("x")),
            NO_MESSAGE,
            "message_id",
        ),
        refused(
            "an unknown message is edited",
            edit(id, 9_000, user("x")),
            NO_MESSAGE,
            "message_id",
        ),
        refused(
            "version 0 is expected",
            expecting(0),
            INVALID,
            "expected_version",
        ),
        refused(
            "version i32::MIN is expected",
            expecting(i32::MIN),
            INVALID,
            "expected_version",
        ),
        refused(
            "version 99 is expected",
            expecting(99),
            VERSION_MISMATCH,
            "",
        ),
        refused(
            "version i32::MAX is expected",
            expecting(i32::MAX),
            VERSION_MISMATCH,
            "",
        ),
        refused(
            "an edit with an etag in words",
            with_etag("x"),
            INVALID,
            "etag",
        ),
        refused(
            "an edit with another etag",
            with_etag("987654321"),
            ETAG_MISMATCH,
            "",
        ),
        refused(
            "an edit after another message than expected",
            ask_about!(
                id,
                EditMessageRequest {
                    message_id: 1,
                    message: user("edited"),
                    expected_last_message_id: 987_654_i64
                }
            ),
            LAST_MESSAGE_MISMATCH,
            "",
        ),
        refused(
            "an edit with a request id of 129 bytes",
            ask_about!(
                id,
                EditMessageRequest {
                    message_id: 1,
                    message: user("edited"),
                    request_id: "r".repeat(129)
                }
            ),
            LIMIT,
            "request_id",
        ),
        refused(
            "an edit in an unknown conversation",
            edit(UNKNOWN, 1, user("x")),
            NO_CONVERSATION,
            "",
        ),
    ]
}

/// Cases of versions, and of lists of what no longer stands. The first message of the conversation
/// was never edited, and it has fewer than 9,000.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn history(id: &str) -> Vec<Case> {
    let get = |message_id: i64, version: i32| {
        ask_about!(
            id,
            GetMessageRequest {
                message_id: message_id,
                version: version
            }
        )
    };
    let part = |version: i32, offset: i64| {
        ask_about!(
            id,
            GetMessageRequest {
                message_id: 1,
                version: version,
                range: pb::ByteRange { offset, length: 9 }
            }
        )
    };
    let versions = |message_id: i64| {
        ask_about!(
            id,
            ListMessageVersionsRequest {
                message_id: message_id
            }
        )
    };
    vec![
        answered("the first version", get(1, 1)),
        refused("version -1", get(1, -1), INVALID, "version"),
        refused("version i32::MIN", get(1, i32::MIN), INVALID, "version"),
        refused("an unknown version", get(1, 2), NO_VERSION, ""),
        refused("version i32::MAX", get(1, i32::MAX), NO_VERSION, ""),
        refused("a version of message 0", get(0, 1), INVALID, "message_id"),
        refused(
            "a version of an unknown message",
            get(9_000, 1),
            NO_MESSAGE,
            "",
        ),
        refused(
            "a version of message i64::MAX",
            get(i64::MAX, i32::MAX),
            NO_MESSAGE,
            "",
        ),
        answered("a range of a version", part(1, 1)),
        answered("a range after the end of a version", part(1, i64::MAX)),
        refused(
            "a range of a version from -1",
            part(1, -1),
            INVALID,
            "range.offset",
        ),
        refused("a range of an unknown version", part(9, 0), NO_VERSION, ""),
        answered("versions of a message", versions(1)),
        refused("versions of message 0", versions(0), INVALID, "message_id"),
        refused(
            "versions of message -1",
            versions(-1),
            INVALID,
            "message_id",
        ),
        refused(
            "versions of an unknown message",
            versions(9_000),
            NO_MESSAGE,
            "",
        ),
        refused(
            "versions of message i64::MAX",
            versions(i64::MAX),
            NO_MESSAGE,
            "",
        ),
        refused(
            "a page of -1 versions",
            ask_about!(
                id,
                ListMessageVersionsRequest {
                    message_id: 1,
                    page_size: -1
                }
            ),
            INVALID,
            "page_size",
        ),
        refused(
            "versions after a token of nothing",
            ask_about!(
                id,
                ListMessageVersionsRequest {
                    message_id: 1,
                    page_token: "bm90IGpzb24"
                }
            ),
            INVALID,
            "page_token",
        ),
        refused(
            "versions in an unknown conversation",
            ask_about!(UNKNOWN, ListMessageVersionsRequest { message_id: 1 }),
            NO_CONVERSATION,
            "",
        ),
        answered(
            "withdrawn messages, too",
            ask_about!(
                id,
                ListMessagesRequest {
                    include_withdrawn: true
                }
            ),
        ),
        answered(
            "withdrawn messages after i64::MAX",
            ask_about!(
                id,
                ListMessagesRequest {
                    include_withdrawn: true,
                    after_message_id: i64::MAX
                }
            ),
        ),
        refused(
            "withdrawn messages, newest first",
            ask_about!(
                id,
                ListMessagesRequest {
                    include_withdrawn: true,
                    newest_first: true
                }
            ),
            INVALID,
            "include_withdrawn",
        ),
        refused(
            "withdrawn messages of an unknown conversation",
            ask_about!(
                UNKNOWN,
                ListMessagesRequest {
                    include_withdrawn: true
                }
            ),
            NO_CONVERSATION,
            "",
        ),
        answered(
            "void checkpoints, too",
            ask_about!(id, ListCheckpointsRequest { include_void: true }),
        ),
        refused(
            "void checkpoints of an unknown conversation",
            ask_about!(UNKNOWN, ListCheckpointsRequest { include_void: true }),
            NO_CONVERSATION,
            "",
        ),
    ]
}
