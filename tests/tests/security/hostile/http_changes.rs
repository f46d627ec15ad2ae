//! Cases over HTTP of changes of messages, forks, stops, earlier answers and edits, in a session
//! that does not exist.

use crate::hostile::http::{HttpCase, JSON, MALFORMED, MISSING, get, invalid, post};

/// The answer if the session does not exist.
const NO_SESSION: (u16, &str, &str) = (404, "CONVERSATION_NOT_FOUND", "");

/// Withdrawals, rewinds, restorations, forks and stops.
pub(crate) fn changes() -> Vec<HttpCase> {
    let delete = |name: &str, message: &str, expected| HttpCase {
        method: "DELETE",
        ..get(name, &format!("{MISSING}/messages/{message}"), expected)
    };
    let change = |name: &str, path: &str, body: &str, expected| HttpCase {
        path: format!("{MISSING}/{path}"),
        ..post(name, JSON, body, expected)
    };
    let stop = |name: &str, query: &str, expected| HttpCase {
        method: "DELETE",
        ..get(name, &format!("{MISSING}/turn{query}"), expected)
    };
    let many_ids = format!(r#"{{"messageIds":[{}1]}}"#, "1,".repeat(500_000));
    vec![
        delete("a message in words", "one", invalid("messageId")),
        delete(
            "a message above i64",
            "9223372036854775808",
            invalid("messageId"),
        ),
        delete("a message that is a path", "..%2f1", invalid("messageId")),
        delete("a message that is not UTF-8", "%ff", MALFORMED),
        delete("an unknown parameter", "1?erased=true", invalid("erased")),
        delete(
            "a parameter in words",
            "1?keepToolPairsApart=maybe",
            invalid("keepToolPairsApart"),
        ),
        delete("a message of an unknown session", "1", NO_SESSION),
        HttpCase {
            body: b"{".to_vec(),
            ..delete("a deletion with a body", "1", NO_SESSION)
        },
        change(
            "a rewind to nowhere",
            "rewind",
            "",
            invalid("afterMessageId"),
        ),
        change(
            "a rewind to a text",
            "rewind",
            r#"{"afterMessageId":"1"}"#,
            invalid("afterMessageId"),
        ),
        change(
            "a rewind to half a message",
            "rewind",
            r#"{"afterMessageId":1.5}"#,
            invalid("afterMessageId"),
        ),
        change(
            "a rewind with an unknown field",
            "rewind",
            r#"{"afterMessageId":1,"force":true}"#,
            invalid("force"),
        ),
        change(
            "an unknown session is rewound",
            "rewind",
            r#"{"afterMessageId":0}"#,
            NO_SESSION,
        ),
        change("a list is restored", "restore", "[1]", MALFORMED),
        change(
            "a message in words is restored",
            "restore",
            r#"{"messageIds":[1,"two"]}"#,
            invalid("messageIds[1]"),
        ),
        change(
            "half a range is restored",
            "restore",
            r#"{"range":{"firstMessageId":1}}"#,
            invalid("range"),
        ),
        change("half a million ids", "restore", &many_ids, NO_SESSION),
        change(
            "a fork at a text",
            "fork",
            r#"{"messageId":"1"}"#,
            invalid("messageId"),
        ),
        change(
            "a fork with a number for a label",
            "fork",
            r#"{"metadata":{"k":1}}"#,
            invalid("metadata.k"),
        ),
        change(
            "a fork with an unknown field",
            "fork",
            r#"{"agentId":"b"}"#,
            invalid("agentId"),
        ),
        change("an unknown session is forked", "fork", "", NO_SESSION),
        stop("a turn of an unknown session is stopped", "", NO_SESSION),
        stop("a stop that keeps in words", "?keep=maybe", invalid("keep")),
        stop("a stop that waits for -1 s", "?wait=-1", invalid("wait")),
        stop(
            "a stop with an unknown parameter",
            "?turn=r",
            invalid("turn"),
        ),
        stop("two stops in one", "?keep=true&keep=false", MALFORMED),
    ]
}

/// Earlier answers to a message.
pub(crate) fn alternatives() -> Vec<HttpCase> {
    let list = |name: &str, message: &str, expected| {
        let path = format!("{MISSING}/messages/{message}/alternatives");
        get(name, &path, expected)
    };
    let choose = |name: &str, choice: &str, body: &str, expected| HttpCase {
        path: format!("{MISSING}/messages/{choice}/choose"),
        ..post(name, JSON, body, expected)
    };
    vec![
        list("answers to a message in words", "one", invalid("messageId")),
        list("answers to message 0", "0", invalid("messageId")),
        list(
            "answers to a message above i64",
            "9223372036854775808",
            invalid("messageId"),
        ),
        list(
            "answers to a message that is a path",
            "..%2f1",
            invalid("messageId"),
        ),
        list("answers to a message that is not UTF-8", "%ff", MALFORMED),
        list("answers in an unknown session", "1", NO_SESSION),
        choose(
            "an answer in words is chosen",
            "1/alternatives/first",
            "",
            invalid("number"),
        ),
        choose(
            "an answer above i32 is chosen",
            "1/alternatives/2147483648",
            "",
            invalid("number"),
        ),
        choose(
            "an answer to a message in words is chosen",
            "one/alternatives/1",
            "",
            invalid("messageId"),
        ),
        choose(
            "a choice with a number for a request",
            "1/alternatives/1",
            r#"{"requestId":7}"#,
            invalid("requestId"),
        ),
        choose(
            "a choice with the number in the body",
            "1/alternatives/1",
            r#"{"number":2}"#,
            invalid("number"),
        ),
        choose("a list is chosen", "1/alternatives/1", "[1]", MALFORMED),
        choose(
            "a choice in an unknown session",
            "1/alternatives/1",
            "",
            NO_SESSION,
        ),
    ]
}

/// Edits of messages.
pub(crate) fn edits() -> Vec<HttpCase> {
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
