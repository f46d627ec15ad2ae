//! Tests of the checker of the conversation in a body for `/v1/chat/completions`: `messages`.
//! Everything else (`model`, `tools`, `max_tokens`) belongs to the caller and is refused here.

use crate::broken::{insert, rules_and_places, set, without};
use anneal_shapes::openai_chat;
use serde_json::{Value, json};

/// A valid conversation that contains everything: instructions, media, parallel calls, their
/// results.
fn good() -> Value {
    serde_json::from_str(include_str!("good/openai.json")).expect("the file is JSON")
}

/// Checks that the body causes exactly these refusals, each given as rule and place.
#[track_caller]
fn assert_refusals(body: &Value, expected: &[(&str, &str)]) {
    assert_eq!(rules_and_places(&openai_chat(body)), expected);
}

/// Checks that replacing one value of the valid body causes exactly one refusal, with this rule and
/// place.
#[track_caller]
fn assert_one_refusal(at: &str, value: Value, rule: &str, place: &str) {
    assert_refusals(&set(good(), at, value), &[(rule, place)]);
}

/// Checks that a body with these messages is accepted.
#[track_caller]
fn assert_accepted(messages: Value) {
    assert_refusals(&set(json!({}), "/messages", messages), &[]);
}

#[test]
fn valid_conversations_pass() {
    assert_refusals(&good(), &[]);
    assert_accepted(json!([{"role": "user", "content": "hi"}]));
    assert_accepted(
        json!([{"role": "developer", "content": [{"type": "text", "text": "x"}]}, {"role": "user", "content": "hi"}]),
    );
    assert_accepted(
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}]),
    );
    assert_accepted(
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": null, "refusal": "no"}]),
    );
    assert_accepted(json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]));
    let refusal = json!([{"type": "refusal", "refusal": "no"}]);
    assert_accepted(
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": refusal}]),
    );
    let image = json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}});
    assert_accepted(
        json!([{"role": "user", "content": [image, {"type": "file", "file": {"file_id": "file-1"}}]}]),
    );
}

#[test]
fn calls_may_be_answered_and_followed_by_further_calls() {
    let call = |id: &str| {
        let function = json!({"name": "f", "arguments": "{}"});
        json!({"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]})
    };
    let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "done"});
    assert_accepted(
        json!([{"role": "user", "content": "go"}, call("a"), answer("a"), call("b"), answer("b")]),
    );
    // The same id again, in another message.
    assert_accepted(
        json!([{"role": "user", "content": "go"}, call("a"), answer("a"), call("a"), answer("a")]),
    );
}

#[test]
fn a_body_is_an_object_with_a_message_that_is_no_instruction() {
    assert_refusals(&json!([]), &[("type", "")]);
    assert_refusals(&json!({}), &[("missing", "")]);
    assert_refusals(&json!({"messages": {}}), &[("type", "/messages")]);
    assert_refusals(&json!({"messages": []}), &[("messages-empty", "/messages")]);
    assert_refusals(
        &json!({"messages": [{"role": "system", "content": "x"}]}),
        &[("only-system", "/messages")],
    );
}

#[test]
fn keys_that_belong_to_the_caller_are_refused() {
    for key in ["/model", "/tools", "/max_tokens"] {
        assert_one_refusal(key, json!(1), "unknown-key", key);
    }
}

#[test]
fn unknown_roles_and_keys_and_invalid_author_names_are_refused() {
    assert_one_refusal(
        "/messages/0/role",
        json!("function"),
        "role",
        "/messages/0/role",
    );
    assert_one_refusal("/messages/0/role", json!(1), "type", "/messages/0/role");
    assert_refusals(
        &without(good(), "/messages/0/role"),
        &[("missing", "/messages/0")],
    );
    assert_one_refusal("/messages/6", json!("hi"), "type", "/messages/6");
    assert_one_refusal(
        "/messages/6/tool_calls",
        json!([]),
        "unknown-key",
        "/messages/6/tool_calls",
    );
    assert_one_refusal(
        "/messages/3/name",
        json!("f"),
        "unknown-key",
        "/messages/3/name",
    );
    for name in ["", "ada lovelace", "a/b", &"a".repeat(65)] {
        assert_one_refusal(
            "/messages/1/name",
            json!(name),
            "author",
            "/messages/1/name",
        );
    }
    assert_refusals(&set(good(), "/messages/1/name", json!("é".repeat(64))), &[]);
}

#[test]
fn only_an_assistant_may_lack_content() {
    for index in [0, 1, 4] {
        let place = format!("/messages/{index}");
        assert_one_refusal(
            &format!("{place}/content"),
            Value::Null,
            "content-missing",
            &place,
        );
        assert_refusals(
            &without(good(), &format!("{place}/content")),
            &[("content-missing", &place)],
        );
    }
    assert_refusals(&without(good(), "/messages/2/content"), &[]);
    assert_one_refusal(
        "/messages/5/content",
        Value::Null,
        "assistant-empty",
        "/messages/5",
    );
    assert_one_refusal(
        "/messages/5/content",
        json!(""),
        "assistant-empty",
        "/messages/5",
    );
}

#[test]
fn content_is_not_empty() {
    assert_one_refusal(
        "/messages/0/content",
        json!(""),
        "content-empty",
        "/messages/0/content",
    );
    assert_one_refusal(
        "/messages/6/content",
        json!(""),
        "content-empty",
        "/messages/6/content",
    );
    assert_one_refusal(
        "/messages/6/content",
        json!({}),
        "type",
        "/messages/6/content",
    );
    assert_one_refusal(
        "/messages/1/content",
        json!([]),
        "parts-empty",
        "/messages/1/content",
    );
    assert_one_refusal(
        "/messages/1/content/0/text",
        json!(""),
        "text-empty",
        "/messages/1/content/0",
    );
}

#[test]
fn parts_are_refused_in_a_role_that_may_not_have_them() {
    let image = good()["messages"][1]["content"][1].clone();
    for index in [0, 3, 5] {
        let place = format!("/messages/{index}/content/0/type");
        assert_one_refusal(
            &format!("/messages/{index}/content"),
            json!([image]),
            "part-type",
            &place,
        );
    }
    for index in [2, 3] {
        let part = good()["messages"][1]["content"][index].clone();
        assert_one_refusal(
            "/messages/3/content/0",
            part,
            "part-type",
            "/messages/3/content/0/type",
        );
    }
    assert_one_refusal(
        "/messages/1/content/0/type",
        json!("image"),
        "part-type",
        "/messages/1/content/0/type",
    );
    assert_one_refusal(
        "/messages/1/content/0",
        json!("text"),
        "type",
        "/messages/1/content/0",
    );
    assert_refusals(
        &without(good(), "/messages/1/content/0/type"),
        &[("missing", "/messages/1/content/0")],
    );
    assert_one_refusal(
        "/messages/1/content/0/cache_control",
        json!({}),
        "unknown-key",
        "/messages/1/content/0/cache_control",
    );
    let mixed = json!([{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "no"}]);
    assert_one_refusal(
        "/messages/5/content",
        mixed,
        "refusal-alone",
        "/messages/5/content",
    );
}

#[test]
fn images_audio_and_files_need_valid_data() {
    let image = "/messages/1/content/1/image_url";
    let urls = [
        "",
        "a.png",
        "ftp://a/b",
        "data:image/png;base64,",
        "data:image/png;base64,a",
        "data:image/tiff;base64,QQ==",
    ];
    for url in urls {
        assert_one_refusal(&format!("{image}/url"), json!(url), "image-url", image);
    }
    assert_one_refusal(
        &format!("{image}/detail"),
        json!("huge"),
        "image-detail",
        &format!("{image}/detail"),
    );
    let audio = "/messages/1/content/2/input_audio";
    assert_one_refusal(
        &format!("{audio}/data"),
        json!("data:audio/wav;base64,QQ=="),
        "audio-data",
        audio,
    );
    assert_one_refusal(
        &format!("{audio}/format"),
        json!("ogg"),
        "audio-format",
        audio,
    );
    let file = "/messages/1/content/3/file";
    assert_one_refusal(
        &format!("{file}/file_data"),
        json!("JVBERi0="),
        "file-data",
        file,
    );
    assert_one_refusal(
        &format!("{file}/file_id"),
        json!("file-1"),
        "file-source",
        file,
    );
    assert_one_refusal(&format!("{file}/filename"), json!(""), "file-source", file);
    assert_refusals(
        &without(good(), &format!("{file}/filename")),
        &[("file-source", file)],
    );
    assert_refusals(
        &without(good(), &format!("{file}/file_data")),
        &[("file-source", file)],
    );
}

#[test]
fn calls_need_a_valid_type_name_id_and_arguments() {
    let call = "/messages/2/tool_calls/0";
    assert_one_refusal(&format!("{call}/type"), json!("custom"), "call-type", call);
    assert_one_refusal(
        &format!("{call}/index"),
        json!(0),
        "unknown-key",
        &format!("{call}/index"),
    );
    for name in ["", "look.up", &"f".repeat(65)] {
        assert_one_refusal(
            &format!("{call}/function/name"),
            json!(name),
            "function-name",
            &format!("{call}/function"),
        );
    }
    for arguments in ["", "{", "[]", "null", "{} {}"] {
        assert_one_refusal(
            &format!("{call}/function/arguments"),
            json!(arguments),
            "arguments",
            &format!("{call}/function"),
        );
    }
    assert_one_refusal(
        &format!("{call}/function/arguments"),
        json!({}),
        "type",
        &format!("{call}/function/arguments"),
    );
    for id in ["", &"c".repeat(41)] {
        let body = set(good(), &format!("{call}/id"), json!(id));
        assert_refusals(
            &set(body, "/messages/4/tool_call_id", json!(id)),
            &[("call-id", call)],
        );
    }
    let longest = set(good(), &format!("{call}/id"), json!("c".repeat(40)));
    assert_refusals(
        &set(longest, "/messages/4/tool_call_id", json!("c".repeat(40))),
        &[],
    );
    assert_refusals(
        &set(
            good(),
            &format!("{call}/function/name"),
            json!("f".repeat(64)),
        ),
        &[],
    );
    assert_one_refusal(
        "/messages/5/tool_calls",
        json!([]),
        "tool-calls-empty",
        "/messages/5/tool_calls",
    );
    assert_one_refusal(
        "/messages/5/tool_calls",
        Value::Null,
        "type",
        "/messages/5/tool_calls",
    );
}

#[test]
fn ids_are_unique_within_their_message() {
    let body = set(good(), "/messages/2/tool_calls/1/id", json!("call_1"));
    assert_refusals(
        &without(body, "/messages/3"),
        &[("call-id-repeated", "/messages/2/tool_calls/1")],
    );
}

#[test]
fn every_call_is_answered_before_other_messages() {
    assert_refusals(
        &without(good(), "/messages/4"),
        &[("call-without-result", "/messages/2/tool_calls/0")],
    );
    let late = insert(
        good(),
        "/messages/4",
        json!({"role": "user", "content": "well?"}),
    );
    assert_refusals(
        &late,
        &[
            ("call-without-result", "/messages/2/tool_calls/0"),
            ("result-without-call", "/messages/5"),
        ],
    );
    let mut cut = good();
    cut["messages"].as_array_mut().expect("a list").truncate(4);
    assert_refusals(&cut, &[("call-without-result", "/messages/2/tool_calls/0")]);
}

#[test]
fn every_answer_belongs_to_an_open_call() {
    let answer = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    assert_refusals(
        &insert(good(), "/messages/5", answer("call_1")),
        &[("result-repeated", "/messages/5")],
    );
    assert_refusals(
        &insert(good(), "/messages/5", answer("call_3")),
        &[("result-without-call", "/messages/5")],
    );
    assert_refusals(
        &insert(good(), "/messages/6", answer("call_1")),
        &[("result-without-call", "/messages/6")],
    );
    assert_refusals(
        &insert(good(), "/messages/0", answer("call_1")),
        &[("result-without-call", "/messages/0")],
    );
}

#[test]
fn two_assistant_messages_at_the_end_are_refused() {
    assert_one_refusal(
        "/messages/6/role",
        json!("assistant"),
        "assistant-tail",
        "/messages/6",
    );
}
