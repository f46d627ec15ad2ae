//! Tests of the checker of the conversation in a body for `generateContent`: `systemInstruction`
//! and `contents`. Everything else (`tools`, `generationConfig`) belongs to the caller and is
//! refused here.

use crate::broken::{insert, rules_and_places, set, without};
use anneal_shapes::gemini_contents;
use serde_json::{Value, json};

/// A valid conversation that contains everything: media, thoughts, parallel calls, a response with
/// an image, text after responses.
fn good() -> Value {
    serde_json::from_str(include_str!("good/gemini.json")).expect("the file is JSON")
}

/// Checks that the body causes exactly these refusals, each given as rule and place.
#[track_caller]
fn assert_refusals(body: &Value, expected: &[(&str, &str)]) {
    assert_eq!(rules_and_places(&gemini_contents(body)), expected);
}

/// Checks that replacing one value of the valid body causes exactly one refusal, with this rule and
/// place.
#[track_caller]
fn assert_one_refusal(at: &str, value: Value, rule: &str, place: &str) {
    assert_refusals(&set(good(), at, value), &[(rule, place)]);
}

/// The valid body with ids in its calls and responses.
fn with_ids(calls: [&str; 2], responses: [&str; 2]) -> Value {
    let body = set(
        good(),
        "/contents/1/parts/1/functionCall/id",
        json!(calls[0]),
    );
    let body = set(body, "/contents/1/parts/2/functionCall/id", json!(calls[1]));
    let body = set(
        body,
        "/contents/2/parts/0/functionResponse/id",
        json!(responses[0]),
    );
    set(
        body,
        "/contents/2/parts/1/functionResponse/id",
        json!(responses[1]),
    )
}

#[test]
fn valid_conversations_pass() {
    assert_refusals(&good(), &[]);
    assert_refusals(
        &json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        &[],
    );
    assert_refusals(
        &set(good(), "/systemInstruction/role", json!("system")),
        &[],
    );
    assert_refusals(&without(good(), "/contents/3"), &[]);
    assert_refusals(&with_ids(["a", "b"], ["a", "b"]), &[]);
}

#[test]
fn calls_may_follow_responses() {
    let mut body = good();
    let calls_and_responses = [body["contents"][1].clone(), body["contents"][2].clone()];
    body["contents"]
        .as_array_mut()
        .expect("a list")
        .splice(3..3, calls_and_responses);
    assert_refusals(&body, &[]);
}

#[test]
fn a_body_is_an_object_with_at_least_one_content() {
    assert_refusals(&json!(1), &[("type", "")]);
    assert_refusals(&json!({}), &[("missing", "")]);
    assert_refusals(&json!({"contents": "hi"}), &[("type", "/contents")]);
    assert_refusals(&json!({"contents": []}), &[("contents-empty", "/contents")]);
}

#[test]
fn keys_that_belong_to_the_caller_are_refused() {
    for key in ["/tools", "/generationConfig"] {
        assert_one_refusal(key, json!({}), "unknown-key", key);
    }
}

#[test]
fn a_system_instruction_is_non_empty_text() {
    assert_one_refusal(
        "/systemInstruction",
        json!("x"),
        "type",
        "/systemInstruction",
    );
    assert_one_refusal(
        "/systemInstruction/parts",
        json!([]),
        "parts-empty",
        "/systemInstruction",
    );
    assert_one_refusal(
        "/systemInstruction/parts/0/text",
        json!(""),
        "text-empty",
        "/systemInstruction/parts/0",
    );
    assert_one_refusal(
        "/systemInstruction/role",
        json!("model"),
        "system-role",
        "/systemInstruction/role",
    );
    let image = good()["contents"][0]["parts"][1].clone();
    assert_one_refusal(
        "/systemInstruction/parts/0",
        image,
        "system-part",
        "/systemInstruction/parts/0",
    );
    assert_one_refusal(
        "/systemInstruction/parts/0/thought",
        json!(true),
        "unknown-key",
        "/systemInstruction/parts/0/thought",
    );
}

#[test]
fn contents_have_a_known_role_and_no_unknown_key() {
    assert_one_refusal(
        "/contents/4/role",
        json!("assistant"),
        "role",
        "/contents/4",
    );
    assert_refusals(
        &without(good(), "/contents/4/role"),
        &[("missing", "/contents/4")],
    );
    assert_one_refusal(
        "/contents/4/name",
        json!("ada"),
        "unknown-key",
        "/contents/4/name",
    );
}

#[test]
fn parts_have_exactly_one_data_field() {
    assert_one_refusal("/contents/0/parts", json!([]), "parts-empty", "/contents/0");
    assert_refusals(
        &without(good(), "/contents/0/parts"),
        &[("missing", "/contents/0")],
    );
    assert_one_refusal(
        "/contents/0/parts/0",
        json!({}),
        "part-data",
        "/contents/0/parts/0",
    );
    assert_one_refusal(
        "/contents/0/parts/1/text",
        json!("this"),
        "part-data",
        "/contents/0/parts/1",
    );
    assert_one_refusal(
        "/contents/0/parts/0/type",
        json!("text"),
        "unknown-key",
        "/contents/0/parts/0/type",
    );
    assert_one_refusal(
        "/contents/0/parts/0",
        json!("hi"),
        "type",
        "/contents/0/parts/0",
    );
    assert_one_refusal(
        "/contents/0/parts/0/text",
        json!(""),
        "text-empty",
        "/contents/0/parts/0",
    );
    assert_one_refusal(
        "/contents/0/parts/0/text",
        json!(1),
        "type",
        "/contents/0/parts/0/text",
    );
}

#[test]
fn only_the_model_calls_and_only_the_user_responds() {
    let call = json!({"functionCall": {"name": "f"}});
    assert_one_refusal(
        "/contents/0/parts/0",
        call,
        "part-role",
        "/contents/0/parts/0/functionCall",
    );
    let response = json!({"functionResponse": {"name": "f", "response": {}}});
    assert_one_refusal(
        "/contents/4/parts/0",
        response,
        "part-role",
        "/contents/4/parts/0/functionResponse",
    );
}

#[test]
fn only_the_model_has_thoughts_and_signatures_are_base64() {
    assert_one_refusal(
        "/contents/0/parts/0/thought",
        json!(true),
        "thought-role",
        "/contents/0/parts/0",
    );
    assert_one_refusal(
        "/contents/0/parts/0/thoughtSignature",
        json!("c2ln"),
        "thought-role",
        "/contents/0/parts/0",
    );
    assert_one_refusal(
        "/contents/1/parts/0/thought",
        json!(1),
        "type",
        "/contents/1/parts/0/thought",
    );
    for signature in ["", "not base64"] {
        let place = "/contents/1/parts/1/thoughtSignature";
        assert_one_refusal(place, json!(signature), "signature", place);
    }
    assert_refusals(
        &set(
            good(),
            "/contents/1/parts/1/thoughtSignature",
            json!("skip_thought_signature_validator"),
        ),
        &[],
    );
}

#[test]
fn media_need_an_accepted_type_valid_data_and_an_https_or_gs_uri() {
    let inline = "/contents/0/parts/1/inlineData";
    for kind in ["", "png", "image/gif", "application/json", "text/"] {
        assert_one_refusal(
            &format!("{inline}/mimeType"),
            json!(kind),
            "mime-type",
            inline,
        );
    }
    for data in ["", "QQ", "data:image/png;base64,QQ=="] {
        assert_one_refusal(&format!("{inline}/data"), json!(data), "base64", inline);
    }
    assert_one_refusal(
        &format!("{inline}/displayName"),
        json!("a"),
        "unknown-key",
        &format!("{inline}/displayName"),
    );
    let file = "/contents/0/parts/2/fileData";
    for uri in ["", "http://example.org/a.pdf", "files/abc"] {
        assert_one_refusal(&format!("{file}/fileUri"), json!(uri), "file-uri", file);
    }
    assert_refusals(
        &without(good(), &format!("{file}/mimeType")),
        &[("missing", file)],
    );
}

#[test]
fn roles_alternate_and_the_user_is_first_and_last() {
    let hello = |role: &str| json!({"role": role, "parts": [{"text": "hello"}]});
    assert_refusals(
        &insert(good(), "/contents/0", hello("model")),
        &[("first-role", "/contents/0")],
    );
    assert_refusals(
        &insert(good(), "/contents/0", hello("user")),
        &[("same-role", "/contents/1")],
    );
    assert_refusals(
        &insert(good(), "/contents/4", hello("model")),
        &[("same-role", "/contents/5")],
    );
    assert_refusals(
        &insert(good(), "/contents/6", hello("model")),
        &[("last-role", "/contents/6")],
    );
}

#[test]
fn at_most_one_content_of_the_user_follows_responses() {
    let more = json!({"role": "user", "parts": [{"text": "Well?"}]});
    assert_refusals(
        &insert(good(), "/contents/4", more),
        &[("same-role", "/contents/4")],
    );
}

#[test]
fn calls_come_directly_after_a_content_of_the_user() {
    assert_refusals(
        &without(good(), "/contents/0"),
        &[("call-turn", "/contents/0")],
    );
    let text = json!({"role": "model", "parts": [{"text": "Well."}]});
    assert_refusals(
        &insert(good(), "/contents/1", text),
        &[("call-turn", "/contents/2")],
    );
}

#[test]
fn calls_and_responses_need_valid_names_ids_and_objects() {
    let call = "/contents/1/parts/1/functionCall";
    let response = "/contents/2/parts/0/functionResponse";
    for name in ["", "1st", "look up", &"f".repeat(65)] {
        let body = set(good(), &format!("{call}/name"), json!(name));
        let body = set(body, &format!("{response}/name"), json!(name));
        assert_refusals(
            &body,
            &[("function-name", call), ("function-name", response)],
        );
    }
    assert_one_refusal(
        &format!("{call}/args"),
        json!("{}"),
        "args",
        &format!("{call}/args"),
    );
    assert_one_refusal(
        &format!("{call}/arguments"),
        json!({}),
        "unknown-key",
        &format!("{call}/arguments"),
    );
    for output in [json!("a cat"), json!([]), Value::Null] {
        assert_one_refusal(
            &format!("{response}/response"),
            output,
            "response",
            &format!("{response}/response"),
        );
    }
    assert_refusals(
        &without(good(), &format!("{response}/response")),
        &[("missing", response)],
    );
    assert_one_refusal(
        &format!("{response}/parts/0"),
        json!({}),
        "response-part",
        &format!("{response}/parts/0"),
    );
    assert_one_refusal(
        &format!("{response}/parts/0/inlineData/data"),
        json!("?"),
        "base64",
        &format!("{response}/parts/0/inlineData"),
    );
    let places = [format!("{call}/id"), format!("{response}/id")];
    assert_refusals(
        &with_ids(["", "b"], ["", "b"]),
        &[("call-id", &places[0]), ("call-id", &places[1])],
    );
}

#[test]
fn names_of_64_characters_pass() {
    let longest = json!("_".repeat(64));
    let body = set(
        good(),
        "/contents/1/parts/2/functionCall/name",
        longest.clone(),
    );
    assert_refusals(
        &set(body, "/contents/2/parts/1/functionResponse/name", longest),
        &[],
    );
}

#[test]
fn a_call_turn_has_as_many_responses_as_calls_right_after_it() {
    let count = ("response-count", "/contents/1");
    assert_refusals(&without(good(), "/contents/2/parts/1"), &[count]);
    assert_refusals(&without(good(), "/contents/2"), &[count]);
    let third = json!({"functionResponse": {"name": "count", "response": {}}});
    assert_refusals(
        &insert(good(), "/contents/2/parts/2", third.clone()),
        &[count],
    );
    let alone = json!({"role": "user", "parts": [third]});
    assert_refusals(
        &set(good(), "/contents/5", alone),
        &[("response-turn", "/contents/5")],
    );
}

#[test]
fn responses_in_two_contents_are_refused() {
    let mut body = without(good(), "/contents/2/parts/1");
    body["contents"][3]["parts"][0] =
        json!({"functionResponse": {"name": "count", "response": {}}});
    let expected = [
        ("same-role", "/contents/3"),
        ("response-count", "/contents/1"),
        ("response-turn", "/contents/3"),
    ];
    assert_refusals(&body, &expected);
}

#[test]
fn a_response_has_the_name_and_id_of_its_call() {
    let rule = "response-match";
    let (first, second) = (
        "/contents/2/parts/0/functionResponse",
        "/contents/2/parts/1/functionResponse",
    );
    assert_one_refusal(
        "/contents/2/parts/1/functionResponse/name",
        json!("look.up"),
        rule,
        second,
    );
    assert_one_refusal(
        "/contents/2/parts/1/functionResponse/id",
        json!("b"),
        rule,
        second,
    );
    assert_refusals(&with_ids(["a", "b"], ["a", "c"]), &[(rule, second)]);
    assert_refusals(&with_ids(["a", "b"], ["a", "a"]), &[(rule, second)]);
    let one_name = set(
        with_ids(["a", "b"], ["a", "a"]),
        "/contents/1/parts/2/functionCall/name",
        json!("look.up"),
    );
    assert_refusals(
        &set(
            one_name,
            "/contents/2/parts/1/functionResponse/name",
            json!("look.up"),
        ),
        &[(rule, second)],
    );
    assert_refusals(
        &with_ids(["a", "b"], ["b", "a"]),
        &[(rule, first), (rule, second)],
    );
    assert_refusals(
        &with_ids(["a", "a"], ["a", "a"]),
        &[("call-id-repeated", "/contents/1/parts/2/functionCall")],
    );
}

#[test]
fn responses_may_come_in_any_order_only_if_all_calls_have_ids() {
    let mut body = with_ids(["a", "b"], ["a", "b"]);
    body["contents"][2]["parts"]
        .as_array_mut()
        .expect("a list")
        .reverse();
    assert_refusals(&body, &[]);
    let one_without_id = without(
        with_ids(["a", "b"], ["a", "b"]),
        "/contents/1/parts/1/functionCall/id",
    );
    let one_without_id = without(one_without_id, "/contents/2/parts/0/functionResponse/id");
    assert_refusals(&one_without_id, &[]);
    for mut body in [good(), one_without_id] {
        body["contents"][2]["parts"]
            .as_array_mut()
            .expect("a list")
            .reverse();
        let places = [0, 1].map(|index| format!("/contents/2/parts/{index}/functionResponse"));
        assert_refusals(
            &body,
            &[
                ("response-match", &places[0]),
                ("response-match", &places[1]),
            ],
        );
    }
}

#[test]
fn a_content_with_responses_holds_nothing_else() {
    let image = good()["contents"][0]["parts"][1].clone();
    for more in [json!({"text": "And?"}), image] {
        assert_refusals(
            &insert(good(), "/contents/2/parts/2", more.clone()),
            &[("response-mixed", "/contents/2")],
        );
        assert_refusals(
            &insert(good(), "/contents/2/parts/0", more),
            &[("response-mixed", "/contents/2")],
        );
    }
}
