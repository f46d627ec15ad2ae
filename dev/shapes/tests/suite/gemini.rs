//! Tests of the checker for `generateContent`: bodies that it refuses and bodies that it accepts.

use crate::broken::{before, said, set, without};
use anneal_shapes::gemini_contents;
use serde_json::{Value, json};

/// A valid conversation that contains everything: media, thoughts, parallel calls, a response with
/// an image, text after responses.
fn good() -> Value {
    serde_json::from_str(include_str!("good/gemini.json")).expect("the file is JSON")
}

#[track_caller]
fn refused(body: &Value, expected: &[(&str, &str)]) {
    assert_eq!(said(&gemini_contents(body)), expected);
}

/// Checks that replacing one value of the valid body causes exactly one refusal, with this rule and
/// place.
#[track_caller]
fn breaks(at: &str, value: Value, rule: &str, place: &str) {
    refused(&set(good(), at, value), &[(rule, place)]);
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
    refused(&good(), &[]);
    refused(
        &json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        &[],
    );
    refused(
        &set(good(), "/systemInstruction/role", json!("system")),
        &[],
    );
    refused(&without(good(), "/contents/3"), &[]);
    refused(&with_ids(["a", "b"], ["a", "b"]), &[]);
}

#[test]
fn calls_may_follow_responses() {
    let mut body = good();
    let again = [body["contents"][1].clone(), body["contents"][2].clone()];
    body["contents"]
        .as_array_mut()
        .expect("a list")
        .splice(3..3, again);
    refused(&body, &[]);
}

#[test]
fn the_body_holds_an_instruction_and_contents() {
    refused(&json!(1), &[("type", "")]);
    refused(&json!({}), &[("missing", "")]);
    refused(&json!({"contents": "hi"}), &[("type", "/contents")]);
    refused(&json!({"contents": []}), &[("contents-empty", "/contents")]);
    breaks(
        "/generationConfig",
        json!({}),
        "unknown-key",
        "/generationConfig",
    );
}

#[test]
fn an_instruction_is_text() {
    breaks(
        "/systemInstruction",
        json!("x"),
        "type",
        "/systemInstruction",
    );
    breaks(
        "/systemInstruction/parts",
        json!([]),
        "parts-empty",
        "/systemInstruction",
    );
    breaks(
        "/systemInstruction/parts/0/text",
        json!(""),
        "text-empty",
        "/systemInstruction/parts/0",
    );
    breaks(
        "/systemInstruction/role",
        json!("model"),
        "system-role",
        "/systemInstruction/role",
    );
    let image = good()["contents"][0]["parts"][1].clone();
    breaks(
        "/systemInstruction/parts/0",
        image,
        "system-part",
        "/systemInstruction/parts/0",
    );
    breaks(
        "/systemInstruction/parts/0/thought",
        json!(true),
        "unknown-key",
        "/systemInstruction/parts/0/thought",
    );
}

#[test]
fn roles_are_user_and_model() {
    breaks(
        "/contents/4/role",
        json!("assistant"),
        "role",
        "/contents/4",
    );
    refused(
        &without(good(), "/contents/4/role"),
        &[("missing", "/contents/4")],
    );
    breaks(
        "/contents/4/name",
        json!("ada"),
        "unknown-key",
        "/contents/4/name",
    );
}

#[test]
fn parts_have_exactly_one_data_field() {
    breaks("/contents/0/parts", json!([]), "parts-empty", "/contents/0");
    refused(
        &without(good(), "/contents/0/parts"),
        &[("missing", "/contents/0")],
    );
    breaks(
        "/contents/0/parts/0",
        json!({}),
        "part-data",
        "/contents/0/parts/0",
    );
    breaks(
        "/contents/0/parts/1/text",
        json!("this"),
        "part-data",
        "/contents/0/parts/1",
    );
    breaks(
        "/contents/0/parts/0/type",
        json!("text"),
        "unknown-key",
        "/contents/0/parts/0/type",
    );
    breaks(
        "/contents/0/parts/0",
        json!("hi"),
        "type",
        "/contents/0/parts/0",
    );
    breaks(
        "/contents/0/parts/0/text",
        json!(""),
        "text-empty",
        "/contents/0/parts/0",
    );
    breaks(
        "/contents/0/parts/0/text",
        json!(1),
        "type",
        "/contents/0/parts/0/text",
    );
}

#[test]
fn calls_are_the_models_and_responses_the_users() {
    let call = json!({"functionCall": {"name": "f"}});
    breaks(
        "/contents/0/parts/0",
        call,
        "part-role",
        "/contents/0/parts/0/functionCall",
    );
    let response = json!({"functionResponse": {"name": "f", "response": {}}});
    breaks(
        "/contents/4/parts/0",
        response,
        "part-role",
        "/contents/4/parts/0/functionResponse",
    );
}

#[test]
fn thoughts_are_the_models_and_their_signatures_base64() {
    breaks(
        "/contents/0/parts/0/thought",
        json!(true),
        "thought-role",
        "/contents/0/parts/0",
    );
    breaks(
        "/contents/0/parts/0/thoughtSignature",
        json!("c2ln"),
        "thought-role",
        "/contents/0/parts/0",
    );
    breaks(
        "/contents/1/parts/0/thought",
        json!(1),
        "type",
        "/contents/1/parts/0/thought",
    );
    for signature in ["", "not base64"] {
        let place = "/contents/1/parts/1/thoughtSignature";
        breaks(place, json!(signature), "signature", place);
    }
    refused(
        &set(
            good(),
            "/contents/1/parts/1/thoughtSignature",
            json!("skip_thought_signature_validator"),
        ),
        &[],
    );
}

#[test]
fn media_are_complete() {
    let inline = "/contents/0/parts/1/inlineData";
    for kind in ["", "png", "image/gif", "application/json", "text/"] {
        breaks(
            &format!("{inline}/mimeType"),
            json!(kind),
            "mime-type",
            inline,
        );
    }
    for data in ["", "QQ", "data:image/png;base64,QQ=="] {
        breaks(&format!("{inline}/data"), json!(data), "base64", inline);
    }
    breaks(
        &format!("{inline}/displayName"),
        json!("a"),
        "unknown-key",
        &format!("{inline}/displayName"),
    );
    let file = "/contents/0/parts/2/fileData";
    for uri in ["", "http://example.org/a.pdf", "files/abc"] {
        breaks(&format!("{file}/fileUri"), json!(uri), "file-uri", file);
    }
    refused(
        &without(good(), &format!("{file}/mimeType")),
        &[("missing", file)],
    );
}

#[test]
fn roles_alternate_from_user_to_user() {
    let said = |role: &str| json!({"role": role, "parts": [{"text": "hello"}]});
    refused(
        &before(good(), "/contents/0", said("model")),
        &[("first-role", "/contents/0")],
    );
    refused(
        &before(good(), "/contents/0", said("user")),
        &[("same-role", "/contents/1")],
    );
    refused(
        &before(good(), "/contents/4", said("model")),
        &[("same-role", "/contents/5")],
    );
    refused(
        &before(good(), "/contents/6", said("model")),
        &[("last-role", "/contents/6")],
    );
}

#[test]
fn only_one_content_of_the_user_follows_responses() {
    let more = json!({"role": "user", "parts": [{"text": "Well?"}]});
    refused(
        &before(good(), "/contents/4", more),
        &[("same-role", "/contents/4")],
    );
}

#[test]
fn calls_follow_the_user() {
    refused(
        &without(good(), "/contents/0"),
        &[("call-turn", "/contents/0")],
    );
    let said = json!({"role": "model", "parts": [{"text": "Well."}]});
    refused(
        &before(good(), "/contents/1", said),
        &[("call-turn", "/contents/2")],
    );
}

#[test]
fn calls_are_complete() {
    let call = "/contents/1/parts/1/functionCall";
    let response = "/contents/2/parts/0/functionResponse";
    for name in ["", "1st", "look up", &"f".repeat(65)] {
        let body = set(good(), &format!("{call}/name"), json!(name));
        let body = set(body, &format!("{response}/name"), json!(name));
        refused(
            &body,
            &[("function-name", call), ("function-name", response)],
        );
    }
    breaks(
        &format!("{call}/args"),
        json!("{}"),
        "args",
        &format!("{call}/args"),
    );
    breaks(
        &format!("{call}/arguments"),
        json!({}),
        "unknown-key",
        &format!("{call}/arguments"),
    );
    for output in [json!("a cat"), json!([]), Value::Null] {
        breaks(
            &format!("{response}/response"),
            output,
            "response",
            &format!("{response}/response"),
        );
    }
    refused(
        &without(good(), &format!("{response}/response")),
        &[("missing", response)],
    );
    breaks(
        &format!("{response}/parts/0"),
        json!({}),
        "response-part",
        &format!("{response}/parts/0"),
    );
    breaks(
        &format!("{response}/parts/0/inlineData/data"),
        json!("?"),
        "base64",
        &format!("{response}/parts/0/inlineData"),
    );
    let places = [format!("{call}/id"), format!("{response}/id")];
    refused(
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
    refused(
        &set(body, "/contents/2/parts/1/functionResponse/name", longest),
        &[],
    );
}

#[test]
fn a_call_turn_has_as_many_responses_as_calls_right_after_it() {
    let count = ("response-count", "/contents/1");
    refused(&without(good(), "/contents/2/parts/1"), &[count]);
    refused(&without(good(), "/contents/2"), &[count]);
    let third = json!({"functionResponse": {"name": "count", "response": {}}});
    refused(
        &before(good(), "/contents/2/parts/2", third.clone()),
        &[count],
    );
    let alone = json!({"role": "user", "parts": [third]});
    refused(
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
    refused(&body, &expected);
}

#[test]
fn a_response_answers_its_call() {
    let rule = "response-match";
    let (first, second) = (
        "/contents/2/parts/0/functionResponse",
        "/contents/2/parts/1/functionResponse",
    );
    breaks(
        "/contents/2/parts/1/functionResponse/name",
        json!("look.up"),
        rule,
        second,
    );
    breaks(
        "/contents/2/parts/1/functionResponse/id",
        json!("b"),
        rule,
        second,
    );
    refused(&with_ids(["a", "b"], ["a", "c"]), &[(rule, second)]);
    refused(&with_ids(["a", "b"], ["a", "a"]), &[(rule, second)]);
    let one_name = set(
        with_ids(["a", "b"], ["a", "a"]),
        "/contents/1/parts/2/functionCall/name",
        json!("look.up"),
    );
    refused(
        &set(
            one_name,
            "/contents/2/parts/1/functionResponse/name",
            json!("look.up"),
        ),
        &[(rule, second)],
    );
    refused(
        &with_ids(["a", "b"], ["b", "a"]),
        &[(rule, first), (rule, second)],
    );
    refused(
        &with_ids(["a", "a"], ["a", "a"]),
        &[("call-id-repeated", "/contents/1/parts/2/functionCall")],
    );
}

#[test]
fn responses_with_ids_may_come_in_any_order() {
    let mut body = with_ids(["a", "b"], ["a", "b"]);
    body["contents"][2]["parts"]
        .as_array_mut()
        .expect("a list")
        .reverse();
    refused(&body, &[]);
    let half = without(
        with_ids(["a", "b"], ["a", "b"]),
        "/contents/1/parts/1/functionCall/id",
    );
    let half = without(half, "/contents/2/parts/0/functionResponse/id");
    refused(&half, &[]);
    for mut body in [good(), half] {
        body["contents"][2]["parts"]
            .as_array_mut()
            .expect("a list")
            .reverse();
        let places = [0, 1].map(|index| format!("/contents/2/parts/{index}/functionResponse"));
        refused(
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
        refused(
            &before(good(), "/contents/2/parts/2", more.clone()),
            &[("response-mixed", "/contents/2")],
        );
        refused(
            &before(good(), "/contents/2/parts/0", more),
            &[("response-mixed", "/contents/2")],
        );
    }
}
