//! Cases of the RPCs about conversations: creation, names, updates, ids and lists.

use std::collections::HashMap;

use anneal_testkit::pb;
use prost_types::FieldMask;

use crate::hostile::{
    ask, ask_about,
    case::{Case, ETAG_MISMATCH, GrpcRequest, INVALID, LIMIT, NO_CONVERSATION, answered, refused},
};

/// The id of a conversation that does not exist.
pub(crate) const UNKNOWN: &str = "0190aaaa-0000-7000-8000-000000000000";

pub(crate) fn labels(key: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value.to_owned())])
}

pub(crate) fn many_labels(count: usize) -> HashMap<String, String> {
    (0..count).map(|n| (n.to_string(), String::new())).collect()
}

/// A request to create a conversation with one field.
macro_rules! new {
    ($field:ident: $value:expr) => {
        ask!(CreateConversationRequest { $field: $value })
    };
}

/// Invalid fields of a new conversation.
pub(crate) fn creations() -> Vec<Case> {
    let long = || "a".repeat(129);
    let invalid = |name, request, field: &str| refused(name, request, INVALID, field);
    let limit = |name, request, field: &str| refused(name, request, LIMIT, field);
    vec![
        invalid("NUL in an agent", new!(agent_id: "a\0"), "agent_id"),
        invalid("NUL alone as a user", new!(user_id: "\0"), "user_id"),
        invalid("NUL in a title", new!(title: "a\0b"), "title"),
        invalid(
            "NUL in a prompt",
            new!(system_prompt: "\0"),
            "system_prompt",
        ),
        invalid("NUL in a request id", new!(request_id: "\0"), "request_id"),
        invalid("NUL in a model", new!(model: "\0"), "model"),
        invalid(
            "NUL in a label's name",
            new!(metadata: labels("k\0", "v")),
            "metadata",
        ),
        invalid(
            "NUL in a label",
            new!(metadata: labels("k", "v\0")),
            "metadata",
        ),
        invalid("an old encoding", new!(encoding: "p50k_base"), "encoding"),
        invalid(
            "an encoding with bidirectional marks",
            new!(encoding: "\u{202e}o200k_base"),
            "encoding",
        ),
        limit("an agent of 129 bytes", new!(agent_id: long()), "agent_id"),
        limit("a user of 129 bytes", new!(user_id: long()), "user_id"),
        limit(
            "43 characters of 129 bytes",
            new!(user_id: "冷".repeat(43)),
            "user_id",
        ),
        limit("a model of 129 bytes", new!(model: long()), "model"),
        limit(
            "a request id of 129 bytes",
            new!(request_id: long()),
            "request_id",
        ),
        limit(
            "a title of 513 bytes",
            new!(title: "a".repeat(513)),
            "title",
        ),
        limit(
            "a prompt above 256 KiB",
            new!(system_prompt: "a".repeat(256 * 1024 + 1)),
            "system_prompt",
        ),
        limit("33 labels", new!(metadata: many_labels(33)), "metadata"),
        limit(
            "10,000 labels",
            new!(metadata: many_labels(10_000)),
            "metadata",
        ),
        limit(
            "labels of 4,097 bytes",
            new!(metadata: labels("k", &"v".repeat(4_096))),
            "metadata",
        ),
    ]
}

/// Unusual names that are valid.
pub(crate) fn odd_names() -> Vec<Case> {
    vec![
        answered("nothing at all", ask!(CreateConversationRequest {})),
        answered(
            "labels of 4,096 bytes",
            new!(metadata: labels("k", &"v".repeat(4_095))),
        ),
        answered("a label without a name", new!(metadata: labels("", ""))),
        answered("an agent of 128 bytes", new!(agent_id: "a".repeat(128))),
        answered(
            "a title with bidirectional marks",
            new!(title: "\u{202e}eltit\u{202c}\u{2066}"),
        ),
        answered(
            "a title of combining marks",
            new!(title: format!("Z{}", "\u{35f}".repeat(200))),
        ),
        answered(
            "SQL as a user",
            new!(user_id: "'; drop table ai_message; --"),
        ),
        answered("a path as an agent", new!(agent_id: "../../etc/passwd%00")),
        answered(
            "controls as a title",
            new!(title: "\u{1b}[31m\u{7f}\u{85}\r\n\u{feff}"),
        ),
        answered(
            "the last characters",
            new!(title: "\u{fffe}\u{ffff}\u{10ffff}"),
        ),
        answered("a user in another normal form", new!(user_id: "e\u{301}")),
        answered(
            "zero-width blanks as an agent",
            new!(agent_id: "a\u{200b}\u{2060}"),
        ),
    ]
}

fn update(conversation: pb::Conversation, paths: &[&str]) -> GrpcRequest {
    let update_mask = FieldMask {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    ask!(UpdateConversationRequest {
        conversation: conversation,
        update_mask: update_mask
    })
}

/// Updates of a conversation.
// tidy: allow(long-function): a table of cases
#[expect(clippy::too_many_lines, reason = "a table of cases")]
pub(crate) fn updates(id: &str) -> Vec<Case> {
    // A conversation with nothing but its id.
    let bare = || pb::Conversation {
        conversation_id: id.to_owned(),
        ..Default::default()
    };
    let status = |status| pb::Conversation { status, ..bare() };
    // The server sets these times. The mask does not name them, so they are ignored.
    let times = |seconds, nanos| {
        let time = Some(prost_types::Timestamp { seconds, nanos });
        let conversation = pb::Conversation {
            title: "at odd times".into(),
            ..bare()
        };
        pb::Conversation {
            created_time: time,
            last_activity_time: time,
            ..conversation
        }
    };
    let titled = || pb::Conversation {
        title: "mine".into(),
        ..bare()
    };
    let etag = |etag: &str| {
        let update_mask = FieldMask {
            paths: vec!["title".into()],
        };
        ask!(UpdateConversationRequest {
            conversation: titled(),
            update_mask: update_mask,
            etag: etag
        })
    };
    vec![
        refused(
            "no conversation",
            ask!(UpdateConversationRequest {}),
            INVALID,
            "conversation",
        ),
        refused(
            "no mask",
            ask!(UpdateConversationRequest {
                conversation: bare()
            }),
            INVALID,
            "update_mask",
        ),
        refused("an empty mask", update(bare(), &[]), INVALID, "update_mask"),
        refused(
            "a mask with an empty path",
            update(bare(), &[""]),
            INVALID,
            "update_mask",
        ),
        refused(
            "a mask of everything",
            update(bare(), &["*"]),
            INVALID,
            "update_mask",
        ),
        refused(
            "a nested path",
            update(bare(), &["policy.token_threshold"]),
            INVALID,
            "update_mask",
        ),
        refused(
            "a field that the server sets",
            update(bare(), &["message_count"]),
            INVALID,
            "update_mask",
        ),
        refused(
            "the conversation's own id",
            update(bare(), &["conversation_id"]),
            INVALID,
            "update_mask",
        ),
        refused(
            "a path with NUL",
            update(bare(), &["title\0"]),
            INVALID,
            "update_mask",
        ),
        refused(
            "a path with bidirectional marks",
            update(bare(), &["\u{202e}eltit"]),
            INVALID,
            "update_mask",
        ),
        answered(
            "one path 50,000 times",
            update(titled(), &vec!["title"; 50_000]),
        ),
        refused(
            "one unknown path 50,000 times",
            update(titled(), &vec!["titles"; 50_000]),
            INVALID,
            "update_mask",
        ),
        refused(
            "status 0",
            update(status(0), &["status"]),
            INVALID,
            "conversation.status",
        ),
        refused(
            "status 99",
            update(status(99), &["status"]),
            INVALID,
            "conversation.status",
        ),
        refused(
            "status i32::MIN",
            update(status(i32::MIN), &["status"]),
            INVALID,
            "conversation.status",
        ),
        answered(
            "status 99, which the mask does not name",
            update(
                pb::Conversation {
                    status: 99,
                    ..titled()
                },
                &["title"],
            ),
        ),
        answered("the year 0", update(times(-62_167_219_200, 0), &["title"])),
        answered(
            "the year 10000",
            update(times(253_402_300_800, 0), &["title"]),
        ),
        answered(
            "nanoseconds out of range",
            update(times(0, i32::MIN), &["title"]),
        ),
        answered(
            "the last time of i64 seconds",
            update(times(i64::MAX, i32::MAX), &["title"]),
        ),
        refused(
            "an etag that is not a number",
            etag("\"1\""),
            INVALID,
            "etag",
        ),
        refused(
            "an etag above i64",
            etag("9223372036854775808"),
            INVALID,
            "etag",
        ),
        refused("an etag with NUL", etag("1\0"), INVALID, "etag"),
        refused("an etag in other digits", etag("１"), INVALID, "etag"),
        refused(
            "another etag",
            etag("-9223372036854775808"),
            ETAG_MISMATCH,
            "",
        ),
        refused(
            "a title of 513 bytes",
            update(
                pb::Conversation {
                    title: "t".repeat(513),
                    ..bare()
                },
                &["title"],
            ),
            LIMIT,
            "conversation.title",
        ),
        refused(
            "NUL in a label",
            update(
                pb::Conversation {
                    metadata: labels("k", "\0"),
                    ..bare()
                },
                &["metadata"],
            ),
            INVALID,
            "conversation.metadata",
        ),
        refused(
            "a prompt with NUL",
            update(
                pb::Conversation {
                    system_prompt: "\0".into(),
                    ..bare()
                },
                &["system_prompt"],
            ),
            INVALID,
            "system_prompt",
        ),
        answered("no policy", update(bare(), &["policy"])),
    ]
}

/// Conversation ids: malformed ones are refused, unknown ones are not found. Several malformed ones
/// have 36 bytes, as a UUID has.
pub(crate) fn ids(id: &str) -> Vec<Case> {
    let get = |id: &str| ask_about!(id, GetConversationRequest {});
    let missing = |name: &str, id: &str| refused(name, get(id), NO_CONVERSATION, "");
    let refused = |name: &str, id: &str| refused(name, get(id), INVALID, "conversation_id");
    vec![
        refused("no id", ""),
        refused("a number", "7"),
        refused("35 characters", &UNKNOWN[..35]),
        refused("37 characters", &format!("{UNKNOWN}0")),
        refused("braces", &format!("{{{}}}", &UNKNOWN[..34])),
        refused("without dashes", &UNKNOWN.replace('-', "")),
        refused("a URN", "urn:uuid:0190aaaa-0000-7000-8000-000"),
        refused("NUL for a dash", &UNKNOWN.replacen('-', "\0", 1)),
        refused("36 bytes of 12 characters", &"冷".repeat(12)),
        refused("digits of another script", &UNKNOWN.replacen('0', "٠", 1)),
        refused(
            "characters that look like dashes",
            &UNKNOWN.replace('-', "‐"),
        ),
        refused("a blank before the id", &format!(" {}", &UNKNOWN[..35])),
        refused(
            "a zero-width blank in the id",
            &format!("{}\u{200b}", &UNKNOWN[..33]),
        ),
        refused("36 wild cards", &"%".repeat(36)),
        refused("an id of 1 MB", &UNKNOWN.repeat(30_000)),
        missing("an unknown id", UNKNOWN),
        missing("the nil UUID", "00000000-0000-0000-0000-000000000000"),
        missing("the last UUID", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
        answered("upper case", get(&id.to_uppercase())),
    ]
}

/// Lists of conversations.
pub(crate) fn lists() -> Vec<Case> {
    macro_rules! list {
        ($field:ident: $value:expr) => {
            ask!(ListConversationsRequest { $field: $value })
        };
    }
    vec![
        refused(
            "NUL in an agent",
            list!(agent_id: "\0"),
            INVALID,
            "agent_id",
        ),
        refused("NUL in a user", list!(user_id: "\0"), INVALID, "user_id"),
        refused(
            "NUL in a prefix",
            list!(title_prefix: "\0"),
            INVALID,
            "title_prefix",
        ),
        refused(
            "a prefix of 513 bytes",
            list!(title_prefix: "t".repeat(513)),
            LIMIT,
            "title_prefix",
        ),
        refused(
            "NUL in a part of a title",
            list!(title_contains: "\0"),
            INVALID,
            "title_contains",
        ),
        refused(
            "a part of a title of 513 bytes",
            list!(title_contains: "t".repeat(513)),
            LIMIT,
            "title_contains",
        ),
        answered(
            "a part of a title of wild cards",
            list!(title_contains: "%_\\%"),
        ),
        refused("status 99", list!(status: 99), INVALID, "status"),
        refused("status -1", list!(status: -1), INVALID, "status"),
        answered("a prefix of wild cards", list!(title_prefix: "%_\\%")),
        answered(
            "a prefix that ends in the last character",
            list!(title_prefix: "\u{10ffff}"),
        ),
        answered("SQL as a user", list!(user_id: "' or true --")),
    ]
}
