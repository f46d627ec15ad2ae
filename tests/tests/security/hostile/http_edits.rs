//! The cases of the catalogue over HTTP that edit messages of a session.

use super::http::{HttpCase, JSON, MISSING, invalid, post};

/// Edits of messages of a session that does not exist.
pub(crate) fn edits() -> Vec<HttpCase> {
    const NO_SESSION: (u16, &str, &str) = (404, "CONVERSATION_NOT_FOUND", "");
    const EDIT: &str = r#"{"content":[{"type":"text","text":"x"}]}"#;
    let patch = |name: &str, message: &str, body: &str, expected| HttpCase {
        method: "PATCH",
        path: format!("{MISSING}/messages/{message}"),
        ..post(name, JSON, body, expected)
    };
    let many_blocks = format!(
        r#"{{"content":[{}{{"type":"text"}}]}}"#,
        r#"{"type":"text"},"#.repeat(200_000)
    );
    vec![
        patch("an edit without a body", "1", "", invalid("content")),
        patch("an edit of nothing", "1", "{}", invalid("content")),
        patch(
            "an edit by null",
            "1",
            r#"{"content":null}"#,
            invalid("content"),
        ),
        patch(
            "an edit by a text",
            "1",
            r#"{"content":"x"}"#,
            invalid("content"),
        ),
        patch(
            "an edit by a block that is a text",
            "1",
            r#"{"content":["x"]}"#,
            invalid("content[0]"),
        ),
        patch(
            "an edit by a block without a type",
            "1",
            r#"{"content":[{"text":"x"}]}"#,
            invalid("content[0].type"),
        ),
        patch(
            "an edit by a block of an unknown type",
            "1",
            r#"{"content":[{"type":"html"}]}"#,
            invalid("content[0].type"),
        ),
        patch(
            "an edit by a block with an unknown field",
            "1",
            r#"{"content":[{"type":"text","html":"x"}]}"#,
            invalid("content[0].html"),
        ),
        patch(
            "an edit by a block with a field of another type",
            "1",
            r#"{"content":[{"type":"text","text":"x"},{"type":"text","uri":"x"}]}"#,
            invalid("content[1].uri"),
        ),
        patch(
            "an edit by a half file",
            "1",
            r#"{"content":[{"type":"tool_result","media":[{"uri":1}]}]}"#,
            invalid("content[0].media[0].uri"),
        ),
        patch("an edit of parts", "1", r#"{"parts":[]}"#, invalid("parts")),
        patch("an edit of message 0", "0", EDIT, invalid("messageId")),
        patch(
            "an edit of a message in words",
            "one",
            EDIT,
            invalid("messageId"),
        ),
        patch(
            "an edit of half a version",
            "1",
            r#"{"content":[],"expectedVersion":1.5}"#,
            invalid("expectedVersion"),
        ),
        patch("an edit in an unknown session", "1", EDIT, NO_SESSION),
        patch("an edit by many blocks", "1", &many_blocks, NO_SESSION),
    ]
}
