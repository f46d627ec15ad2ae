//! Cases of responses, of counts and of compactions of OpenAI's protocol.

use anneal_testkit::MODEL;
use serde_json::{Value, json};

use crate::hostile::{
    door_case::{DoorCase, Expected, broken_bodies, missing, post, refused, request},
    openai_conversations::broken_items,
    openai_response_parameters::parameters,
};

const RESPONSES: &str = "/v1/responses";
const INPUT_TOKENS: &str = "/v1/responses/input_tokens";
const COMPACT: &str = "/v1/responses/compact";

/// Bodies of creates and of counts.
pub(crate) fn bodies() -> Vec<DoorCase> {
    let valid = json!({"model": MODEL, "input": "a"});
    let mut cases = Vec::new();
    for path in [RESPONSES, INPUT_TOKENS, COMPACT] {
        cases.extend(broken_bodies(path, &valid));
        let unknown = json!({"model": "no-such-model", "input": "a"});
        let no_model = Expected::Error(404, "model".into(), "model_not_found");
        cases.push(post("an unknown model", path, &unknown, no_model));
        let ends = json!({"role": "user", "content": "a"});
        // The RPC checks these, whose fields are not those of the items.
        let items = broken_items().into_iter();
        let items = items.filter(|(name, ..)| !name.ends_with("id of a call"));
        for (name, item, param, code) in items {
            let body = json!({"model": MODEL, "input": [ends, item, ends]});
            cases.push(post(
                name,
                path,
                &body,
                refused(format!("input[1]{param}"), code),
            ));
        }
        for (name, input, param, code) in [
            ("a number for an input", json!(1), "input", "invalid_type"),
            ("an object for an input", json!({}), "input", "invalid_type"),
            ("an empty input", json!([]), "input", "empty_array"),
            (
                "10,001 items",
                json!(vec![json!({"role": "user", "content": "a"}); 10_001]),
                "input",
                "array_above_max_length",
            ),
        ] {
            let body = json!({"model": MODEL, "input": input});
            // Nothing counts nothing.
            if code != "empty_array" || path != INPUT_TOKENS {
                cases.push(post(name, path, &body, refused(param, code)));
            }
        }
        let item = json!({"type": "item_reference", "id": "msg_x"});
        let body = json!({"model": MODEL, "input": [item]});
        cases.push(post("a reference to nothing", path, &body, missing()));
    }
    for path in [RESPONSES, INPUT_TOKENS] {
        for (name, more, param, code) in parameters() {
            let mut body = valid.clone();
            for (name, value) in more.as_object().expect("an object") {
                body[name] = value.clone();
            }
            cases.push(post(name, path, &body, refused(param, code)));
        }
    }
    cases.push(post(
        "no input",
        RESPONSES,
        &json!({"model": MODEL}),
        refused("input", "missing_required_parameter"),
    ));
    cases
}

/// Ids in paths and bodies, queries of retrievals, methods. `stored`: a response that has ended.
pub(crate) fn ids(stored: &str) -> Vec<DoorCase> {
    let mut cases = Vec::new();
    for id in [
        format!("resp_{}", "0".repeat(32)),
        format!("resp_{}", "F".repeat(32)),
        format!("resp_{}", "0".repeat(33)),
        format!("conv_{}", "0".repeat(32)),
        "x".to_owned(),
        "%00".to_owned(),
        "..%2f..%2fetc".to_owned(),
        "0".repeat(8_000),
    ] {
        for (method, rest) in [
            ("GET", ""),
            ("GET", "?stream=true"),
            ("GET", "/input_items"),
            ("POST", "/cancel"),
            ("DELETE", ""),
        ] {
            let path = format!("{RESPONSES}/{id}{rest}");
            cases.push(request("no response", method, &path, missing()));
        }
    }
    for id in [
        "",
        "x",
        "\0",
        "resp_",
        &format!("conv_{}", "0".repeat(32)),
        &"0".repeat(100_000),
    ] {
        for path in [RESPONSES, INPUT_TOKENS] {
            let body = json!({"model": MODEL, "input": "a", "previous_response_id": id});
            let expected = Expected::Error(404, String::new(), "previous_response_not_found");
            cases.push(post("no previous response", path, &body, expected));
        }
    }
    let path = format!("{RESPONSES}/{stored}");
    for (name, query, param, code) in [
        ("a number for stream", "stream=1", "stream", "invalid_value"),
        (
            "a position below 0",
            "stream=true&starting_after=-1",
            "starting_after",
            "invalid_type",
        ),
        (
            "a position above i64",
            "stream=true&starting_after=9223372036854775808",
            "starting_after",
            "invalid_type",
        ),
        (
            "a position in words",
            "stream=true&starting_after=first",
            "starting_after",
            "invalid_type",
        ),
        (
            "a position without a stream",
            "starting_after=1",
            "starting_after",
            "invalid_value",
        ),
        (
            "an unknown parameter",
            "page=1",
            "page",
            "unknown_parameter",
        ),
        (
            "obfuscation",
            "include_obfuscation=true",
            "include_obfuscation",
            "unsupported_parameter",
        ),
    ] {
        let path = format!("{path}?{query}");
        cases.push(request(name, "GET", &path, refused(param, code)));
    }
    let cancel = format!("{path}/cancel");
    cases.push(request(
        "not in the background",
        "POST",
        &cancel,
        refused("response_id", "invalid_value"),
    ));
    let no_method = || Expected::Error(405, String::new(), "");
    for (method, path) in [
        ("PUT", path.as_str()),
        ("GET", &cancel),
        ("GET", "/v1/chat/completions"),
    ] {
        cases.push(request("no such method", method, path, no_method()));
    }
    cases.push(request("no such path", "GET", "/v1/nothing", missing()));
    cases.push(request(
        "no upgrade",
        "GET",
        RESPONSES,
        Expected::Error(426, String::new(), ""),
    ));
    cases.extend(keys());
    cases
}

/// Headers with odd idempotency keys.
fn keys() -> Vec<DoorCase> {
    let body = json!({"model": MODEL, "input": "a"});
    let key = |name: &str, key: &[u8], code| {
        let case = post(name, RESPONSES, &body, refused("Idempotency-Key", code));
        DoorCase {
            headers: [case.headers, vec![("idempotency-key", key.to_vec())]].concat(),
            ..case
        }
    };
    vec![
        key("a key that is not ASCII", b"\xff\xfe", "invalid_value"),
        key(
            "a key of 129 bytes",
            &[b'k'; 129],
            "string_above_max_length",
        ),
    ]
}

/// Bodies of compactions.
pub(crate) fn compactions() -> Vec<DoorCase> {
    let case = |name: &str, body: Value, param: &str, code| {
        post(name, COMPACT, &body, refused(param, code))
    };
    vec![
        case(
            "no model",
            json!({"input": "a"}),
            "model",
            "missing_required_parameter",
        ),
        case(
            "nothing to compact",
            json!({"model": MODEL}),
            "input",
            "missing_required_parameter",
        ),
        case(
            "a number for a model",
            json!({"model": 1, "input": "a"}),
            "model",
            "invalid_type",
        ),
        case(
            "long instructions",
            json!({"model": MODEL, "input": "a", "instructions": "x".repeat(5_000)}),
            "instructions",
            "string_above_max_length",
        ),
        case(
            "a number for the previous response",
            json!({"model": MODEL, "previous_response_id": 1}),
            "previous_response_id",
            "invalid_type",
        ),
    ]
}
