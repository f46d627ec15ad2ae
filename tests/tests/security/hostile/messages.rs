//! Cases of the RPCs about messages: appends, parts and positions in a conversation.

use anneal_testkit::{pb, user};
use pb::{Role, part::Part};

use crate::hostile::{
    ask_about,
    case::{
        Case, GrpcRequest, INVALID, LAST_MESSAGE_MISMATCH, LIMIT, NO_MESSAGE, NO_SEPARATOR,
        answered, refused,
    },
};

pub(crate) fn message(role: Role, part: Part) -> pb::NewMessage {
    anneal_testkit::message(role, vec![part])
}

fn text(text: &str) -> Part {
    Part::Text(pb::TextPart { text: text.into() })
}

fn tool_use(id: &str, name: &str) -> Part {
    Part::ToolUse(pb::ToolUsePart {
        id: id.into(),
        name: name.into(),
        input: "{}".into(),
    })
}

fn tool_result(id: &str) -> Part {
    Part::ToolResult(pb::ToolResultPart {
        tool_use_id: id.into(),
        ..Default::default()
    })
}

pub(crate) fn media(uri: &str, media_type: &str) -> Part {
    Part::Media(pb::MediaPart {
        uri: uri.into(),
        media_type: media_type.into(),
        ..Default::default()
    })
}

fn reasoning(provider: &str) -> Part {
    Part::Reasoning(pb::ReasoningPart {
        text: "hm".into(),
        provider: provider.into(),
        ..Default::default()
    })
}

fn labeled(labels: impl IntoIterator<Item = (String, String)>) -> pb::NewMessage {
    pb::NewMessage {
        metadata: labels.into_iter().collect(),
        ..user("a")
    }
}

fn append(id: &str, messages: Vec<pb::NewMessage>) -> GrpcRequest {
    ask_about!(id, AppendMessagesRequest { messages: messages })
}

/// Cases of `AppendMessages`.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn appends(id: &str) -> Vec<Case> {
    let one = |message: pb::NewMessage| append(id, vec![message]);
    let role = |role: i32| one(pb::NewMessage { role, ..user("a") });
    let empty = pb::Part { part: None };
    let parts = |count| {
        one(pb::NewMessage {
            parts: vec![
                pb::Part {
                    part: Some(text("a"))
                };
                count
            ],
            ..user("a")
        })
    };
    let last = |last: i64| {
        ask_about!(
            id,
            AppendMessagesRequest {
                messages: vec![user("a")],
                expected_last_message_id: last
            }
        )
    };
    let request = |request: &str| {
        ask_about!(
            id,
            AppendMessagesRequest {
                messages: vec![user("a")],
                request_id: request
            }
        )
    };
    let labels = |count: usize| one(labeled((0..count).map(|n| (n.to_string(), String::new()))));
    let label = |key: &str, value: &str| one(labeled([(key.to_owned(), value.to_owned())]));
    vec![
        refused("no message", append(id, vec![]), INVALID, "messages"),
        refused(
            "101 messages",
            append(id, vec![user("a"); 101]),
            LIMIT,
            "messages",
        ),
        refused(
            "10,000 messages",
            append(id, vec![user("a"); 10_000]),
            LIMIT,
            "messages",
        ),
        refused(
            "10,000 empty messages",
            append(id, vec![pb::NewMessage::default(); 10_000]),
            LIMIT,
            "messages",
        ),
        refused(
            "100,000 empty messages",
            append(id, vec![pb::NewMessage::default(); 100_000]),
            LIMIT,
            "request",
        ),
        refused("role 0", role(0), INVALID, "messages[0].role"),
        refused("role 99", role(99), INVALID, "messages[0].role"),
        refused("role -1", role(-1), INVALID, "messages[0].role"),
        refused("role i32::MIN", role(i32::MIN), INVALID, "messages[0].role"),
        refused(
            "an empty second message",
            append(id, vec![user("a"), pb::NewMessage::default()]),
            INVALID,
            "messages[1].role",
        ),
        refused(
            "no part",
            one(pb::NewMessage {
                parts: vec![],
                ..user("a")
            }),
            INVALID,
            "messages[0].parts",
        ),
        refused(
            "an empty part",
            one(pb::NewMessage {
                parts: vec![empty],
                ..user("a")
            }),
            INVALID,
            "messages[0].parts[0]",
        ),
        refused("257 parts", parts(257), LIMIT, "messages[0].parts"),
        refused("10,000 parts", parts(10_000), LIMIT, "messages[0].parts"),
        refused("33 labels", labels(33), LIMIT, "messages[0].metadata"),
        refused(
            "labels of 4,097 bytes",
            label("k", &"v".repeat(4_096)),
            LIMIT,
            "messages[0].metadata",
        ),
        refused(
            "NUL in a label's name",
            label("k\0", "v"),
            INVALID,
            "messages[0].metadata",
        ),
        refused(
            "NUL in a label",
            label("k", "\0"),
            INVALID,
            "messages[0].metadata",
        ),
        refused("NUL in a request id", request("r\0"), INVALID, "request_id"),
        refused(
            "a request id of 129 bytes",
            request(&"r".repeat(129)),
            LIMIT,
            "request_id",
        ),
        answered(
            "a request id with bidirectional marks",
            request("\u{202e}\u{2066}r"),
        ),
        refused(
            "-1 as the expected last message",
            last(-1),
            INVALID,
            "expected_last_message_id",
        ),
        refused(
            "i64::MIN as the expected last message",
            last(i64::MIN),
            INVALID,
            "expected_last_message_id",
        ),
        refused(
            "i64::MAX as the expected last message",
            last(i64::MAX),
            LAST_MESSAGE_MISMATCH,
            "",
        ),
        refused(
            "a text of 4 MiB",
            one(user(&"a".repeat(4 * 1024 * 1024))),
            LIMIT,
            "request",
        ),
        answered(
            "a text of nearly 4 MiB",
            one(user(&"a".repeat(4 * 1024 * 1024 - 100))),
        ),
        answered("100 messages", append(id, vec![user("a"); 100])),
        answered("256 parts", parts(256)),
        answered("32 labels", labels(32)),
        answered("labels of 4,096 bytes", label("k", &"v".repeat(4_095))),
    ]
}

/// Parts that their role does not allow, and invalid fields of parts.
pub(crate) fn parts(id: &str) -> Vec<Case> {
    let path = "messages[0].parts[0]";
    let append_part = |role, part| append(id, vec![message(role, part)]);
    let mut cases: Vec<Case> = [
        ("a user's call", Role::User, tool_use("c", "look")),
        ("a user's result", Role::User, tool_result("c")),
        ("a user's reasoning", Role::User, reasoning("")),
        ("the model's result", Role::Assistant, tool_result("c")),
        ("a tool's text", Role::Tool, text("a")),
        ("a tool's call", Role::Tool, tool_use("c", "look")),
        ("a tool's picture", Role::Tool, media("s3://a", "image/png")),
        ("a tool's reasoning", Role::Tool, reasoning("")),
        (
            "the application's call",
            Role::System,
            tool_use("c", "look"),
        ),
        ("the application's result", Role::System, tool_result("c")),
        (
            "the application's picture",
            Role::System,
            media("s3://a", "image/png"),
        ),
        ("the application's reasoning", Role::System, reasoning("")),
    ]
    .into_iter()
    .map(|(name, role, part)| refused(name, append_part(role, part), INVALID, path))
    .collect();
    let long = "i".repeat(129);
    for (what, bad, refusal) in [
        ("an empty text", "", INVALID),
        ("NUL", "a\0", INVALID),
        ("129 bytes", long.as_str(), LIMIT),
    ] {
        let refused_part = |role, part, field: &str| {
            refused(
                format!("{what} as {field}"),
                append_part(role, part),
                refusal,
                format!("{path}.{field}"),
            )
        };
        cases.push(refused_part(
            Role::Assistant,
            tool_use(bad, "look"),
            "tool_use.id",
        ));
        cases.push(refused_part(
            Role::Assistant,
            tool_use("c", bad),
            "tool_use.name",
        ));
        cases.push(refused_part(
            Role::Tool,
            tool_result(bad),
            "tool_result.tool_use_id",
        ));
        cases.push(refused_part(
            Role::User,
            media("s3://a", bad),
            "media.media_type",
        ));
        if !bad.is_empty() {
            cases.push(refused_part(
                Role::Assistant,
                reasoning(bad),
                "reasoning.provider",
            ));
        }
    }
    let uri = format!("{path}.media.uri");
    let with_uri = |uri: &str| append_part(Role::User, media(uri, "image/png"));
    let picture = pb::MediaPart {
        uri: "s3://a".into(),
        media_type: "image/png".into(),
        ..Default::default()
    };
    let result = |media| {
        Part::ToolResult(pb::ToolResultPart {
            tool_use_id: "c".into(),
            media,
            ..Default::default()
        })
    };
    let without_uri = pb::MediaPart {
        uri: String::new(),
        ..picture.clone()
    };
    cases.extend([
        refused("no URI", with_uri(""), INVALID, uri.as_str()),
        refused("NUL in a URI", with_uri("a\0"), INVALID, uri.as_str()),
        refused(
            "a URI of 2,049 bytes",
            with_uri(&"u".repeat(2_049)),
            LIMIT,
            uri.as_str(),
        ),
        refused(
            "NUL in a data URI",
            with_uri("data:image/png;base64,\0"),
            INVALID,
            uri.as_str(),
        ),
        refused(
            "33 pictures",
            append_part(Role::Tool, result(vec![picture; 33])),
            LIMIT,
            format!("{path}.tool_result.media"),
        ),
        refused(
            "a picture without a URI",
            append_part(Role::Tool, result(vec![without_uri])),
            INVALID,
            format!("{path}.tool_result.media[0].uri"),
        ),
    ]);
    cases
}

/// Cases of positions, most of which do not exist.
// tidy: allow(long-function): a table of cases
pub(crate) fn positions(id: &str) -> Vec<Case> {
    let get = |message_id: i64| {
        ask_about!(
            id,
            GetMessageRequest {
                message_id: message_id
            }
        )
    };
    let range = |offset, length| {
        ask_about!(
            id,
            GetMessageRequest {
                message_id: 1,
                range: pb::ByteRange { offset, length }
            }
        )
    };
    let list = |after: i64| {
        ask_about!(
            id,
            ListMessagesRequest {
                after_message_id: after
            }
        )
    };
    let delete_separator = |after: i64| {
        ask_about!(
            id,
            DeleteSeparatorRequest {
                after_message_id: after
            }
        )
    };
    let insert_separator = |last: i64| {
        ask_about!(
            id,
            InsertSeparatorRequest {
                expected_last_message_id: last
            }
        )
    };
    let watch = |after: i64| {
        ask_about!(
            id,
            WatchConversationRequest {
                after_message_id: after
            }
        )
    };
    let position = |position: &str| ask_about!(id, WatchConversationRequest { position: position });
    vec![
        refused("message 0", get(0), INVALID, "message_id"),
        refused("message -1", get(-1), INVALID, "message_id"),
        refused("message i64::MIN", get(i64::MIN), INVALID, "message_id"),
        refused("message i64::MAX", get(i64::MAX), NO_MESSAGE, ""),
        refused("from byte -1", range(-1, 1), INVALID, "range.offset"),
        refused(
            "from byte i64::MIN",
            range(i64::MIN, 1),
            INVALID,
            "range.offset",
        ),
        refused("-1 bytes", range(0, -1), INVALID, "range.length"),
        refused("2^63 - 1 bytes", range(0, i64::MAX), LIMIT, "range.length"),
        answered("bytes beyond the end", range(i64::MAX, 1)),
        answered("an end beyond i64", range(i64::MAX, 4 * 1024 * 1024)),
        refused("messages after -1", list(-1), INVALID, "after_message_id"),
        refused(
            "messages after i64::MIN",
            list(i64::MIN),
            INVALID,
            "after_message_id",
        ),
        answered("messages after i64::MAX", list(i64::MAX)),
        refused(
            "a separator after -1",
            delete_separator(-1),
            INVALID,
            "after_message_id",
        ),
        refused(
            "a separator after i64::MAX",
            delete_separator(i64::MAX),
            NO_SEPARATOR,
            "",
        ),
        refused(
            "a separator with -1 as the expected last message",
            insert_separator(-1),
            INVALID,
            "expected_last_message_id",
        ),
        refused(
            "a separator with i64::MAX as the expected last message",
            insert_separator(i64::MAX),
            LAST_MESSAGE_MISMATCH,
            "",
        ),
        refused("watched from -1", watch(-1), INVALID, "after_message_id"),
        refused(
            "watched from i64::MAX",
            watch(i64::MAX),
            INVALID,
            "after_message_id",
        ),
        refused(
            "a meaningless position",
            position("AAAA"),
            INVALID,
            "position",
        ),
        refused("a position with NUL", position("\0"), INVALID, "position"),
        refused(
            "a position of 1 MiB",
            position(&"A".repeat(1 << 20)),
            INVALID,
            "position",
        ),
        answered("watched from the start", watch(0)),
    ]
}
