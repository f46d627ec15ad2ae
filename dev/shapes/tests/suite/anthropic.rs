//! Tests of the checker for `/v1/messages`: bodies that it refuses and bodies that it accepts.

use crate::broken::{before, said, set, without};
use anneal_shapes::anthropic_messages;
use serde_json::{Value, json};

/// A valid conversation that contains everything: media, thinking, parallel calls, results with an
/// image, one with an error, four cache marks.
fn good() -> Value {
    serde_json::from_str(include_str!("good/anthropic.json")).expect("the file is JSON")
}

#[track_caller]
fn refused(body: &Value, expected: &[(&str, &str)]) {
    assert_eq!(said(&anthropic_messages(body)), expected);
}

/// Checks that replacing one value of the valid body causes exactly one refusal, with this rule and
/// place.
#[track_caller]
fn breaks(at: &str, value: Value, rule: &str, place: &str) {
    refused(&set(good(), at, value), &[(rule, place)]);
}

#[test]
fn valid_conversations_pass() {
    refused(&good(), &[]);
    refused(
        &json!({"messages": [{"role": "user", "content": "hi"}]}),
        &[],
    );
    refused(
        &json!({"system": "x", "messages": [{"role": "user", "content": "hi"}]}),
        &[],
    );
    refused(&without(good(), "/messages/2/content/1/content"), &[]);
    refused(
        &set(good(), "/messages/2/content/1/content", json!("")),
        &[],
    );
    let thought = json!({"type": "thinking", "thinking": "then", "signature": "c2ln"});
    refused(&before(good(), "/messages/1/content/3", thought), &[]);
}

#[test]
fn the_body_holds_a_system_prompt_and_messages() {
    refused(&json!("x"), &[("type", "")]);
    refused(&json!({"system": "x"}), &[("missing", "")]);
    refused(&json!({"messages": {}}), &[("type", "/messages")]);
    refused(&json!({"messages": []}), &[("messages-empty", "/messages")]);
    breaks("/max_tokens", json!(1), "unknown-key", "/max_tokens");
}

#[test]
fn a_system_prompt_is_non_empty_text() {
    breaks("/system", json!(""), "system-empty", "/system");
    breaks("/system", json!([]), "system-empty", "/system");
    breaks("/system", json!(" \n"), "text-blank", "/system");
    breaks("/system", Value::Null, "type", "/system");
    breaks(
        "/system/0",
        json!({"type": "text", "text": ""}),
        "text-empty",
        "/system/0",
    );
    let image = good()["messages"][0]["content"][2].clone();
    breaks("/system/0", image, "block-type", "/system/0/type");
}

#[test]
fn roles_are_user_and_assistant() {
    breaks("/messages/3/role", json!("system"), "role", "/messages/3");
    breaks(
        "/messages/3/name",
        json!("ada"),
        "unknown-key",
        "/messages/3/name",
    );
    refused(
        &without(good(), "/messages/3/role"),
        &[("missing", "/messages/3")],
    );
    refused(
        &without(good(), "/messages/3/content"),
        &[("missing", "/messages/3")],
    );
}

#[test]
fn roles_alternate_from_user_to_user() {
    let hello = |role: &str| json!({"role": role, "content": "hello"});
    refused(
        &before(good(), "/messages/0", hello("assistant")),
        &[("first-role", "/messages/0")],
    );
    refused(
        &before(good(), "/messages/0", hello("user")),
        &[("same-role", "/messages/1")],
    );
    refused(
        &before(good(), "/messages/3", hello("assistant")),
        &[("same-role", "/messages/4")],
    );
    refused(
        &before(good(), "/messages/5", hello("assistant")),
        &[("last-role", "/messages/5")],
    );
    let spaced = json!({"role": "assistant", "content": [{"type": "text", "text": "{ "}]});
    let expected = [
        ("last-role", "/messages/5"),
        ("trailing-space", "/messages/5"),
    ];
    refused(&before(good(), "/messages/5", spaced), &expected);
}

#[test]
fn content_is_not_empty() {
    breaks(
        "/messages/4/content",
        json!(""),
        "content-empty",
        "/messages/4/content",
    );
    breaks(
        "/messages/4/content",
        json!([]),
        "content-empty",
        "/messages/4/content",
    );
    breaks(
        "/messages/4/content",
        json!(" "),
        "text-blank",
        "/messages/4/content",
    );
    breaks(
        "/messages/4/content",
        json!({}),
        "type",
        "/messages/4/content",
    );
    breaks(
        "/messages/0/content/0/text",
        json!(""),
        "text-empty",
        "/messages/0/content/0",
    );
    breaks(
        "/messages/0/content/0/text",
        json!("\t\n "),
        "text-blank",
        "/messages/0/content/0",
    );
    breaks(
        "/messages/2/content/1/content/0",
        json!({"type": "text", "text": ""}),
        "text-empty",
        "/messages/2/content/1/content/0",
    );
}

#[test]
fn blocks_belong_to_their_role() {
    let image = good()["messages"][0]["content"][1].clone();
    breaks(
        "/messages/1/content/2",
        image,
        "block-type",
        "/messages/1/content/2/type",
    );
    let thought = good()["messages"][1]["content"][0].clone();
    breaks(
        "/messages/0/content/0",
        thought,
        "block-type",
        "/messages/0/content/0/type",
    );
    let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    breaks(
        "/messages/0/content/0",
        call,
        "block-type",
        "/messages/0/content/0/type",
    );
    let result = json!({"type": "tool_result", "tool_use_id": "a"});
    breaks(
        "/messages/2/content/1/content/0",
        result,
        "block-type",
        "/messages/2/content/1/content/0/type",
    );
    breaks(
        "/messages/0/content/0/type",
        json!("input_text"),
        "block-type",
        "/messages/0/content/0/type",
    );
    breaks(
        "/messages/0/content/0",
        json!("text"),
        "type",
        "/messages/0/content/0",
    );
    breaks(
        "/messages/0/content/0/citations",
        json!([]),
        "unknown-key",
        "/messages/0/content/0/citations",
    );
}

#[test]
fn media_are_complete() {
    let image = "/messages/0/content/1/source";
    breaks(
        &format!("{image}/media_type"),
        json!("image/tiff"),
        "media-type",
        image,
    );
    for data in ["", "a", "data:image/png;base64,QQ=="] {
        breaks(&format!("{image}/data"), json!(data), "base64", image);
    }
    breaks(
        image,
        json!({"type": "file", "file_id": "f"}),
        "source-type",
        &format!("{image}/type"),
    );
    for url in ["", "http://example.org/a.png", "gs://a/b"] {
        breaks(
            "/messages/0/content/2/source/url",
            json!(url),
            "url",
            "/messages/0/content/2/source",
        );
    }
    breaks(
        "/messages/0/content/3/source/media_type",
        json!("text/html"),
        "media-type",
        "/messages/0/content/3/source",
    );
    breaks(
        "/messages/0/content/3/title",
        json!(1),
        "type",
        "/messages/0/content/3/title",
    );
    breaks(
        "/messages/0/content/4/source/data",
        json!(" "),
        "document-text",
        "/messages/0/content/4/source",
    );
    breaks(
        "/messages/2/content/1/content/1/source/data",
        json!("?"),
        "base64",
        "/messages/2/content/1/content/1/source",
    );
}

#[test]
fn thinking_comes_first_signed_and_not_last() {
    let content = "/messages/1/content";
    let swapped = before(
        good(),
        &format!("{content}/0"),
        json!({"type": "text", "text": "Well."}),
    );
    refused(&swapped, &[("thinking-first", content)]);
    let thought = json!({"type": "thinking", "thinking": "so", "signature": "c2ln"});
    refused(
        &set(good(), "/messages/3/content", json!([thought])),
        &[("thinking-last", "/messages/3/content")],
    );
    breaks(
        &format!("{content}/0/signature"),
        json!(""),
        "signature",
        &format!("{content}/0"),
    );
    refused(
        &without(good(), &format!("{content}/0/signature")),
        &[("missing", "/messages/1/content/0")],
    );
    refused(
        &without(good(), &format!("{content}/0/thinking")),
        &[("missing", "/messages/1/content/0")],
    );
    breaks(
        &format!("{content}/1/data"),
        json!(""),
        "redacted-data",
        &format!("{content}/1"),
    );
}

#[test]
fn calls_are_complete() {
    let call = "/messages/1/content/3";
    for name in ["", "look.up", &"f".repeat(65)] {
        breaks(&format!("{call}/name"), json!(name), "tool-name", call);
    }
    for input in [json!("{}"), json!([]), Value::Null] {
        breaks(&format!("{call}/input"), input, "input", call);
    }
    for id in ["", "functions.look:1", &"t".repeat(65)] {
        let body = set(good(), &format!("{call}/id"), json!(id));
        refused(
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
    refused(
        &set(body, "/messages/2/content/1/tool_use_id", longest),
        &[],
    );
}

#[test]
fn ids_are_unique_in_the_whole_request() {
    let mut body = good();
    let again = [body["messages"][1].clone(), body["messages"][2].clone()];
    body["messages"][1] = json!({"role": "assistant", "content": [again[0]["content"][3]]});
    body["messages"][2] =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]});
    body["messages"]
        .as_array_mut()
        .expect("a list")
        .splice(3..3, again);
    refused(&body, &[("call-id-repeated", "/messages/3/content/3")]);
}

#[test]
fn every_call_has_its_result_in_the_next_message() {
    let lost = without(good(), "/messages/2/content/0");
    refused(&lost, &[("call-without-result", "/messages/1/content/4")]);
    let mut cut = good();
    cut["messages"].as_array_mut().expect("a list").truncate(2);
    let calls = [
        ("call-without-result", "/messages/1/content/3"),
        ("call-without-result", "/messages/1/content/4"),
    ];
    refused(&cut, &[("last-role", "/messages/1"), calls[0], calls[1]]);
}

#[test]
fn every_result_has_a_call_in_the_message_before() {
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id});
    let (none, repeated) = ("result-without-call", "result-repeated");
    refused(
        &before(good(), "/messages/2/content/0", result("toolu_3")),
        &[(none, "/messages/2/content/0")],
    );
    refused(
        &before(good(), "/messages/4/content/0", result("toolu_1")),
        &[(none, "/messages/4/content/0")],
    );
    refused(
        &before(good(), "/messages/0/content/0", result("toolu_1")),
        &[(none, "/messages/0/content/0")],
    );
    refused(
        &before(good(), "/messages/2/content/2", result("toolu_1")),
        &[(repeated, "/messages/2/content/2")],
    );
}

#[test]
fn results_precede_text() {
    let text = json!({"type": "text", "text": "Here:"});
    let body = before(good(), "/messages/2/content/1", text);
    refused(&body, &[("results-first", "/messages/2/content/2")]);
}

#[test]
fn an_error_contains_non_empty_text() {
    let result = "/messages/2/content/0";
    breaks(
        &format!("{result}/content"),
        json!(""),
        "error-empty",
        result,
    );
    breaks(
        &format!("{result}/content"),
        json!([]),
        "error-empty",
        result,
    );
    refused(
        &without(good(), &format!("{result}/content")),
        &[("error-empty", result)],
    );
    breaks(
        "/messages/2/content/1/is_error",
        json!(true),
        "error-content",
        "/messages/2/content/1",
    );
    breaks(
        &format!("{result}/is_error"),
        json!("true"),
        "type",
        &format!("{result}/is_error"),
    );
    breaks(
        "/messages/2/content/1/content",
        json!([]),
        "result-empty",
        "/messages/2/content/1",
    );
    breaks(
        "/messages/2/content/1/content",
        json!({}),
        "type",
        "/messages/2/content/1/content",
    );
}

#[test]
fn at_most_four_cache_marks_on_blocks_that_allow_them() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let fifth = "/messages/4/content/0/cache_control";
    breaks(
        "/messages/0/content/0/cache_control",
        mark.clone(),
        "cache-count",
        fifth,
    );
    let thinking = "/messages/1/content/0/cache_control";
    refused(
        &set(without(good(), fifth), thinking, mark),
        &[("unknown-key", thinking)],
    );
    breaks(
        &format!("{fifth}/type"),
        json!("persistent"),
        "cache-type",
        fifth,
    );
    breaks(&format!("{fifth}/ttl"), json!("1d"), "cache-ttl", fifth);
    breaks(&format!("{fifth}/ttl"), json!("1h"), "cache-order", fifth);
    breaks(
        "/messages/4/content/0/text",
        json!(""),
        "cache-on-empty",
        "/messages/4/content/0",
    );
}
