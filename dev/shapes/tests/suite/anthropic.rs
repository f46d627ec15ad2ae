//! Tests of the checker of the conversation in a body for `/v1/messages`: `system` and `messages`.
//! Everything else (`model`, `tools`, `max_tokens`) belongs to the caller and is refused here.

use crate::broken::{insert, rules_and_places, set, without};
use anneal_shapes::anthropic_messages;
use serde_json::{Value, json};

/// A valid conversation that contains everything: media, thinking, parallel calls, a result with
/// an image and one with an error, four cache marks.
fn good() -> Value {
    serde_json::from_str(include_str!("good/anthropic.json")).expect("the file is JSON")
}

/// Checks that the body causes exactly these refusals, each given as rule and place.
#[track_caller]
fn assert_refusals(body: &Value, expected: &[(&str, &str)]) {
    assert_eq!(rules_and_places(&anthropic_messages(body)), expected);
}

/// Checks that replacing one value of the valid body causes exactly one refusal, with this rule and
/// place.
#[track_caller]
fn assert_one_refusal(at: &str, value: Value, rule: &str, place: &str) {
    assert_refusals(&set(good(), at, value), &[(rule, place)]);
}

#[test]
fn valid_conversations_pass() {
    assert_refusals(&good(), &[]);
    assert_refusals(
        &json!({"messages": [{"role": "user", "content": "hi"}]}),
        &[],
    );
    assert_refusals(
        &json!({"system": "x", "messages": [{"role": "user", "content": "hi"}]}),
        &[],
    );
    assert_refusals(&without(good(), "/messages/2/content/1/content"), &[]);
    assert_refusals(
        &set(good(), "/messages/2/content/1/content", json!("")),
        &[],
    );
    let thought = json!({"type": "thinking", "thinking": "then", "signature": "c2ln"});
    assert_refusals(&insert(good(), "/messages/1/content/3", thought), &[]);
}

#[test]
fn a_body_is_an_object_with_at_least_one_message() {
    assert_refusals(&json!("x"), &[("type", "")]);
    assert_refusals(&json!({"system": "x"}), &[("missing", "")]);
    assert_refusals(&json!({"messages": {}}), &[("type", "/messages")]);
    assert_refusals(&json!({"messages": []}), &[("messages-empty", "/messages")]);
}

#[test]
fn keys_that_belong_to_the_caller_are_refused() {
    for key in ["/model", "/tools", "/max_tokens"] {
        assert_one_refusal(key, json!(1), "unknown-key", key);
    }
}

#[test]
fn a_system_prompt_is_non_empty_text() {
    assert_one_refusal("/system", json!(""), "system-empty", "/system");
    assert_one_refusal("/system", json!([]), "system-empty", "/system");
    assert_one_refusal("/system", json!(" \n"), "text-blank", "/system");
    assert_one_refusal("/system", Value::Null, "type", "/system");
    assert_one_refusal(
        "/system/0",
        json!({"type": "text", "text": ""}),
        "text-empty",
        "/system/0",
    );
    let image = good()["messages"][0]["content"][2].clone();
    assert_one_refusal("/system/0", image, "block-type", "/system/0/type");
}

#[test]
fn messages_have_a_known_role_content_and_no_other_key() {
    assert_one_refusal("/messages/3/role", json!("system"), "role", "/messages/3");
    assert_one_refusal(
        "/messages/3/name",
        json!("ada"),
        "unknown-key",
        "/messages/3/name",
    );
    assert_refusals(
        &without(good(), "/messages/3/role"),
        &[("missing", "/messages/3")],
    );
    assert_refusals(
        &without(good(), "/messages/3/content"),
        &[("missing", "/messages/3")],
    );
}

#[test]
fn roles_alternate_and_the_user_is_first_and_last() {
    let hello = |role: &str| json!({"role": role, "content": "hello"});
    assert_refusals(
        &insert(good(), "/messages/0", hello("assistant")),
        &[("first-role", "/messages/0")],
    );
    assert_refusals(
        &insert(good(), "/messages/0", hello("user")),
        &[("same-role", "/messages/1")],
    );
    assert_refusals(
        &insert(good(), "/messages/3", hello("assistant")),
        &[("same-role", "/messages/4")],
    );
    assert_refusals(
        &insert(good(), "/messages/5", hello("assistant")),
        &[("last-role", "/messages/5")],
    );
    let spaced = json!({"role": "assistant", "content": [{"type": "text", "text": "{ "}]});
    let expected = [
        ("last-role", "/messages/5"),
        ("trailing-space", "/messages/5"),
    ];
    assert_refusals(&insert(good(), "/messages/5", spaced), &expected);
}

#[test]
fn content_is_not_empty() {
    assert_one_refusal(
        "/messages/4/content",
        json!(""),
        "content-empty",
        "/messages/4/content",
    );
    assert_one_refusal(
        "/messages/4/content",
        json!([]),
        "content-empty",
        "/messages/4/content",
    );
    assert_one_refusal(
        "/messages/4/content",
        json!(" "),
        "text-blank",
        "/messages/4/content",
    );
    assert_one_refusal(
        "/messages/4/content",
        json!({}),
        "type",
        "/messages/4/content",
    );
    assert_one_refusal(
        "/messages/0/content/0/text",
        json!(""),
        "text-empty",
        "/messages/0/content/0",
    );
    assert_one_refusal(
        "/messages/0/content/0/text",
        json!("\t\n "),
        "text-blank",
        "/messages/0/content/0",
    );
    assert_one_refusal(
        "/messages/2/content/1/content/0",
        json!({"type": "text", "text": ""}),
        "text-empty",
        "/messages/2/content/1/content/0",
    );
}

#[test]
fn blocks_are_refused_in_a_role_that_may_not_have_them() {
    let image = good()["messages"][0]["content"][1].clone();
    assert_one_refusal(
        "/messages/1/content/2",
        image,
        "block-type",
        "/messages/1/content/2/type",
    );
    let thought = good()["messages"][1]["content"][0].clone();
    assert_one_refusal(
        "/messages/0/content/0",
        thought,
        "block-type",
        "/messages/0/content/0/type",
    );
    let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    assert_one_refusal(
        "/messages/0/content/0",
        call,
        "block-type",
        "/messages/0/content/0/type",
    );
    let result = json!({"type": "tool_result", "tool_use_id": "a"});
    assert_one_refusal(
        "/messages/2/content/1/content/0",
        result,
        "block-type",
        "/messages/2/content/1/content/0/type",
    );
    assert_one_refusal(
        "/messages/0/content/0/type",
        json!("input_text"),
        "block-type",
        "/messages/0/content/0/type",
    );
    assert_one_refusal(
        "/messages/0/content/0",
        json!("text"),
        "type",
        "/messages/0/content/0",
    );
    assert_one_refusal(
        "/messages/0/content/0/citations",
        json!([]),
        "unknown-key",
        "/messages/0/content/0/citations",
    );
}

#[test]
fn media_need_an_accepted_type_valid_data_and_an_https_url() {
    let image = "/messages/0/content/1/source";
    assert_one_refusal(
        &format!("{image}/media_type"),
        json!("image/tiff"),
        "media-type",
        image,
    );
    for data in ["", "a", "data:image/png;base64,QQ=="] {
        assert_one_refusal(&format!("{image}/data"), json!(data), "base64", image);
    }
    assert_one_refusal(
        image,
        json!({"type": "file", "file_id": "f"}),
        "source-type",
        &format!("{image}/type"),
    );
    for url in ["", "http://example.org/a.png", "gs://a/b"] {
        assert_one_refusal(
            "/messages/0/content/2/source/url",
            json!(url),
            "url",
            "/messages/0/content/2/source",
        );
    }
    assert_one_refusal(
        "/messages/0/content/3/source/media_type",
        json!("text/html"),
        "media-type",
        "/messages/0/content/3/source",
    );
    assert_one_refusal(
        "/messages/0/content/3/title",
        json!(1),
        "type",
        "/messages/0/content/3/title",
    );
    assert_one_refusal(
        "/messages/0/content/4/source/data",
        json!(" "),
        "document-text",
        "/messages/0/content/4/source",
    );
    assert_one_refusal(
        "/messages/2/content/1/content/1/source/data",
        json!("?"),
        "base64",
        "/messages/2/content/1/content/1/source",
    );
}

#[test]
fn thinking_is_signed_and_comes_first_and_not_last() {
    let content = "/messages/1/content";
    let preceded = insert(
        good(),
        &format!("{content}/0"),
        json!({"type": "text", "text": "Well."}),
    );
    assert_refusals(&preceded, &[("thinking-first", content)]);
    let thought = json!({"type": "thinking", "thinking": "so", "signature": "c2ln"});
    assert_refusals(
        &set(good(), "/messages/3/content", json!([thought])),
        &[("thinking-last", "/messages/3/content")],
    );
    assert_one_refusal(
        &format!("{content}/0/signature"),
        json!(""),
        "signature",
        &format!("{content}/0"),
    );
    assert_refusals(
        &without(good(), &format!("{content}/0/signature")),
        &[("missing", "/messages/1/content/0")],
    );
    assert_refusals(
        &without(good(), &format!("{content}/0/thinking")),
        &[("missing", "/messages/1/content/0")],
    );
    assert_one_refusal(
        &format!("{content}/1/data"),
        json!(""),
        "redacted-data",
        &format!("{content}/1"),
    );
}

#[test]
fn calls_need_a_valid_name_id_and_input() {
    let call = "/messages/1/content/3";
    for name in ["", "look.up", &"f".repeat(65)] {
        assert_one_refusal(&format!("{call}/name"), json!(name), "tool-name", call);
    }
    for input in [json!("{}"), json!([]), Value::Null] {
        assert_one_refusal(&format!("{call}/input"), input, "input", call);
    }
    for id in ["", "functions.look:1", &"t".repeat(65)] {
        let body = set(good(), &format!("{call}/id"), json!(id));
        assert_refusals(
            &set(body, "/messages/2/content/1/tool_use_id", json!(id)),
            &[("call-id", call)],
        );
    }
}

#[test]
fn names_and_ids_of_64_characters_pass() {
    let longest = json!("a".repeat(64));
    let body = set(good(), "/messages/1/content/3/name", longest.clone());
    let body = set(body, "/messages/1/content/3/id", longest.clone());
    assert_refusals(
        &set(body, "/messages/2/content/1/tool_use_id", longest),
        &[],
    );
}

#[test]
fn ids_are_unique_in_the_whole_request() {
    let mut body = good();
    let original = [body["messages"][1].clone(), body["messages"][2].clone()];
    body["messages"][1] = json!({"role": "assistant", "content": [original[0]["content"][3]]});
    body["messages"][2] =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]});
    body["messages"]
        .as_array_mut()
        .expect("a list")
        .splice(3..3, original);
    assert_refusals(&body, &[("call-id-repeated", "/messages/3/content/3")]);
}

#[test]
fn every_call_has_its_result_in_the_next_message() {
    let lost = without(good(), "/messages/2/content/0");
    assert_refusals(&lost, &[("call-without-result", "/messages/1/content/4")]);
    let mut cut = good();
    cut["messages"].as_array_mut().expect("a list").truncate(2);
    let expected = [
        ("last-role", "/messages/1"),
        ("call-without-result", "/messages/1/content/3"),
        ("call-without-result", "/messages/1/content/4"),
    ];
    assert_refusals(&cut, &expected);
}

#[test]
fn every_result_has_a_call_in_the_message_before() {
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id});
    let (without_call, repeated) = ("result-without-call", "result-repeated");
    assert_refusals(
        &insert(good(), "/messages/2/content/0", result("toolu_3")),
        &[(without_call, "/messages/2/content/0")],
    );
    assert_refusals(
        &insert(good(), "/messages/4/content/0", result("toolu_1")),
        &[(without_call, "/messages/4/content/0")],
    );
    assert_refusals(
        &insert(good(), "/messages/0/content/0", result("toolu_1")),
        &[(without_call, "/messages/0/content/0")],
    );
    assert_refusals(
        &insert(good(), "/messages/2/content/2", result("toolu_1")),
        &[(repeated, "/messages/2/content/2")],
    );
}

#[test]
fn results_precede_text() {
    let text = json!({"type": "text", "text": "Here:"});
    let body = insert(good(), "/messages/2/content/1", text);
    assert_refusals(&body, &[("results-first", "/messages/2/content/2")]);
}

#[test]
fn results_have_valid_content_and_errors_have_text() {
    let error = "/messages/2/content/0";
    assert_one_refusal(&format!("{error}/content"), json!(""), "error-empty", error);
    assert_one_refusal(&format!("{error}/content"), json!([]), "error-empty", error);
    assert_refusals(
        &without(good(), &format!("{error}/content")),
        &[("error-empty", error)],
    );
    assert_one_refusal(
        "/messages/2/content/1/is_error",
        json!(true),
        "error-content",
        "/messages/2/content/1",
    );
    assert_one_refusal(
        &format!("{error}/is_error"),
        json!("true"),
        "type",
        &format!("{error}/is_error"),
    );
    assert_one_refusal(
        "/messages/2/content/1/content",
        json!([]),
        "result-empty",
        "/messages/2/content/1",
    );
    assert_one_refusal(
        "/messages/2/content/1/content",
        json!({}),
        "type",
        "/messages/2/content/1/content",
    );
}

#[test]
fn four_cache_marks_are_allowed_but_none_on_thinking_or_empty_text() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let last_mark = "/messages/4/content/0/cache_control";
    assert_one_refusal(
        "/messages/0/content/0/cache_control",
        mark.clone(),
        "cache-count",
        last_mark,
    );
    let thinking = "/messages/1/content/0/cache_control";
    assert_refusals(
        &set(without(good(), last_mark), thinking, mark),
        &[("unknown-key", thinking)],
    );
    assert_one_refusal(
        &format!("{last_mark}/type"),
        json!("persistent"),
        "cache-type",
        last_mark,
    );
    assert_one_refusal(
        &format!("{last_mark}/ttl"),
        json!("1d"),
        "cache-ttl",
        last_mark,
    );
    assert_one_refusal(
        &format!("{last_mark}/ttl"),
        json!("1h"),
        "cache-order",
        last_mark,
    );
    assert_one_refusal(
        "/messages/4/content/0/text",
        json!(""),
        "cache-on-empty",
        "/messages/4/content/0",
    );
}
