//! Cases of conversations and items of OpenAI's protocol. None of them stores anything, unless it is
//! answered.

use serde_json::{Value, json};

use crate::hostile::door_case::{
    DoorCase, Expected, broken_bodies, missing, post, refused, request,
};

const CONVERSATIONS: &str = "/v1/conversations";

fn message(content: &Value) -> Value {
    json!({"type": "message", "role": "user", "content": content})
}

/// Bodies of creates and updates, and metadata. `id`: a conversation.
pub(crate) fn conversations(id: &str) -> Vec<DoorCase> {
    let path = format!("{CONVERSATIONS}/{id}");
    let pairs = |count: usize| {
        let pairs = (0..count).map(|number| (format!("k{number}"), json!("v")));
        Value::Object(pairs.collect())
    };
    let mut cases = broken_bodies(CONVERSATIONS, &json!({"items": [message(&json!("a"))]}));
    for path in [CONVERSATIONS, &path] {
        let refuse = |name: &str, metadata: Value, param: &str, code| {
            post(
                name,
                path,
                &json!({"metadata": metadata}),
                refused(param, code),
            )
        };
        cases.extend([
            refuse("a list for metadata", json!([]), "metadata", "invalid_type"),
            refuse(
                "a text for metadata",
                json!("a"),
                "metadata",
                "invalid_type",
            ),
            refuse("true for metadata", json!(true), "metadata", "invalid_type"),
            refuse(
                "17 pairs",
                pairs(17),
                "metadata",
                "object_above_max_properties",
            ),
            refuse(
                "a key of 65 characters",
                json!({"k".repeat(65): "v"}),
                "metadata",
                "string_above_max_length",
            ),
            refuse(
                "a value of 513 characters",
                json!({"k": "v".repeat(513)}),
                "metadata.k",
                "string_above_max_length",
            ),
            refuse(
                "a number for a value",
                json!({"k": 1}),
                "metadata.k",
                "invalid_type",
            ),
            refuse(
                "NUL in a value",
                json!({"k": "\0"}),
                "metadata.k",
                "invalid_value",
            ),
            refuse(
                "null for a value",
                json!({"k": null}),
                "metadata.k",
                "invalid_type",
            ),
        ]);
    }
    cases.extend(ids(&path));
    cases
}

/// Ids in paths that are none, or nothing has them.
fn ids(path: &str) -> Vec<DoorCase> {
    let item = format!("msg_{}_1_0", "0".repeat(32));
    let mut cases = Vec::new();
    for id in [
        format!("conv_{}", "0".repeat(32)),
        format!("conv_{}", "F".repeat(32)),
        format!("conv_{}", "0".repeat(31)),
        format!("resp_{}", "0".repeat(32)),
        "x".to_owned(),
        "%00".to_owned(),
        "..%2f..%2fetc".to_owned(),
        "%F0%9F%A6%80".to_owned(),
        "0".repeat(8_000),
    ] {
        let conversation = format!("{CONVERSATIONS}/{id}");
        for (method, rest) in [
            ("GET", String::new()),
            ("DELETE", String::new()),
            ("GET", "/items".to_owned()),
            ("GET", format!("/items/{item}")),
            ("DELETE", format!("/items/{item}")),
        ] {
            let path = format!("{conversation}{rest}");
            cases.push(request("no conversation", method, &path, missing()));
        }
        let items = json!({"items": [message(&json!("a"))]});
        let to_items = format!("{conversation}/items");
        cases.push(post("no conversation", &to_items, &items, missing()));
        let metadata = json!({"metadata": {}});
        cases.push(post("no conversation", &conversation, &metadata, missing()));
    }
    for id in [
        item.as_str(),
        "x",
        "%00",
        "msg_1",
        "msg_00000000000000000000000000000000_9223372036854775808_0",
        "msg_00000000000000000000000000000000_1_4294967296",
        "msg_00000000000000000000000000000000_-1_0",
        "cmp_00000000000000000000000000000000_1_4294967295",
    ] {
        for method in ["GET", "DELETE"] {
            let path = format!("{path}/items/{id}");
            cases.push(request("no item", method, &path, missing()));
        }
    }
    cases.push(request(
        "a conversation that is not UTF-8",
        "GET",
        &format!("{CONVERSATIONS}/%ff"),
        Expected::Error(400, String::new(), ""),
    ));
    cases
}

/// Items, in a create and added to a conversation.
pub(crate) fn items(id: &str) -> Vec<DoorCase> {
    let path = format!("{CONVERSATIONS}/{id}/items");
    let mut cases = broken_bodies(&path, &json!({"items": [message(&json!("a"))]}));
    cases.extend([
        post(
            "no items",
            &path,
            &json!({}),
            refused("items", "missing_required_parameter"),
        ),
        post(
            "an empty list",
            &path,
            &json!({"items": []}),
            refused("items", "empty_array"),
        ),
    ]);
    for path in [path.as_str(), CONVERSATIONS] {
        let whole = |name: &str, items: Value, code| {
            post(name, path, &json!({"items": items}), refused("items", code))
        };
        cases.extend([
            whole("a text for items", json!("a"), "invalid_type"),
            whole("an object for items", json!({}), "invalid_type"),
            whole(
                "21 items",
                json!(vec![message(&json!("a")); 21]),
                "array_above_max_length",
            ),
            whole(
                "10,000 items",
                json!(vec![message(&json!("a")); 10_000]),
                "array_above_max_length",
            ),
        ]);
        // The second item is at fault, and the first one is not stored.
        let one = |name: &str, item: Value, param: &str, code| {
            let items = json!({"items": [message(&json!("a")), item]});
            post(
                name,
                path,
                &items,
                refused(format!("items[1]{param}"), code),
            )
        };
        cases.extend(
            broken_items()
                .into_iter()
                .map(|(name, item, param, code)| one(name, item, param, code)),
        );
    }
    cases
}

/// An item that is refused: a description, the item, the parameter within the item, the code.
type BrokenItem = (&'static str, Value, &'static str, &'static str);

/// Items that are refused.
pub(crate) fn broken_items() -> Vec<BrokenItem> {
    [broken_messages(), broken_parts(), broken_calls()].concat()
}

/// A message of the user with this field.
fn user_with(name: &str, value: Value) -> Value {
    let mut item = message(&json!("a"));
    item[name] = value;
    item
}

fn broken_messages() -> Vec<BrokenItem> {
    vec![
        ("a text for an item", json!("a"), "", "invalid_type"),
        ("null for an item", Value::Null, "", "invalid_type"),
        ("a list for an item", json!([]), "", "invalid_type"),
        (
            "an item without a type",
            json!({}),
            ".type",
            "missing_required_parameter",
        ),
        (
            "a number for a type",
            json!({"type": 1}),
            ".type",
            "invalid_type",
        ),
        (
            "an unknown type",
            json!({"type": "telepathy"}),
            ".type",
            "invalid_value",
        ),
        (
            "a hosted tool",
            json!({"type": "web_search_call"}),
            ".type",
            "unsupported_tool",
        ),
        (
            "no role",
            json!({"type": "message", "content": "a"}),
            ".role",
            "missing_required_parameter",
        ),
        (
            "an unknown role",
            user_with("role", json!("root")),
            ".role",
            "invalid_value",
        ),
        (
            "a number for a role",
            user_with("role", json!(7)),
            ".role",
            "invalid_type",
        ),
        (
            "an unknown field",
            user_with("color", json!("red")),
            ".color",
            "unknown_parameter",
        ),
        (
            "an unknown status",
            user_with("status", json!("done")),
            ".status",
            "invalid_value",
        ),
        (
            "a number for an id",
            user_with("id", json!(1)),
            ".id",
            "invalid_type",
        ),
        (
            "a phase of a user",
            user_with("phase", json!("commentary")),
            ".phase",
            "invalid_value",
        ),
    ]
}

/// Messages with content that is refused.
fn broken_parts() -> Vec<BrokenItem> {
    let text = |text: Value| message(&json!([{"type": "input_text", "text": text}]));
    let image = |url: &str| message(&json!([{"type": "input_image", "image_url": url}]));
    vec![
        (
            "no content",
            user_with("content", Value::Null),
            ".content",
            "missing_required_parameter",
        ),
        (
            "a number for content",
            user_with("content", json!(1)),
            ".content",
            "invalid_type",
        ),
        (
            "a number for a part",
            user_with("content", json!([1])),
            ".content[0]",
            "invalid_type",
        ),
        (
            "a part without a type",
            user_with("content", json!([{}])),
            ".content[0].type",
            "missing_required_parameter",
        ),
        (
            "an unknown part",
            user_with("content", json!([{"type": "smell"}])),
            ".content[0].type",
            "invalid_value",
        ),
        (
            "a number for a text",
            text(json!(1)),
            ".content[0].text",
            "invalid_type",
        ),
        (
            "a picture on a disk",
            image("file:///etc/passwd"),
            ".content[0].image_url",
            "invalid_value",
        ),
        (
            "a picture in a script",
            image("javascript:alert(1)"),
            ".content[0].image_url",
            "invalid_value",
        ),
    ]
}

/// Calls, their outputs, and compactions.
fn broken_calls() -> Vec<BrokenItem> {
    let call = |name: &str, value: Value| {
        let mut item =
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        item[name] = value;
        item
    };
    let output = |name: &str, value: Value| {
        let mut item = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
        item[name] = value;
        item
    };
    vec![
        (
            "a call without a name",
            call("name", Value::Null),
            ".name",
            "missing_required_parameter",
        ),
        (
            "a call without an id",
            call("call_id", Value::Null),
            ".call_id",
            "missing_required_parameter",
        ),
        (
            "a list for arguments",
            call("arguments", json!([])),
            ".arguments",
            "invalid_type",
        ),
        (
            "an empty id of a call",
            call("call_id", json!("")),
            "",
            "invalid_value",
        ),
        (
            "NUL in an id of a call",
            call("call_id", json!("\0")),
            "",
            "invalid_value",
        ),
        (
            "a long id of a call",
            call("call_id", json!("x".repeat(129))),
            "",
            "limit_exceeded",
        ),
        (
            "a number for an output",
            output("output", json!(1)),
            ".output",
            "invalid_type",
        ),
        (
            "no output",
            output("output", Value::Null),
            ".output",
            "missing_required_parameter",
        ),
        (
            "a text for is_error",
            output("is_error", json!("yes")),
            ".is_error",
            "invalid_type",
        ),
        (
            "a forged compaction",
            json!({"type": "compaction", "encrypted_content": "anneal-compaction-1.YWJj.AAAA"}),
            ".encrypted_content",
            "invalid_encrypted_content",
        ),
        (
            "a compaction of another service",
            json!({"type": "compaction", "encrypted_content": "gAAAA"}),
            ".encrypted_content",
            "invalid_encrypted_content",
        ),
        (
            "an empty compaction",
            json!({"type": "compaction", "encrypted_content": ""}),
            ".encrypted_content",
            "invalid_encrypted_content",
        ),
        (
            "a number for a compaction",
            json!({"type": "compaction", "encrypted_content": 1}),
            ".encrypted_content",
            "invalid_type",
        ),
    ]
}

/// Queries of the lists of items, and of input items. `path`: one of them.
pub(crate) fn pages(path: &str) -> Vec<DoorCase> {
    let query = |name: &str, query: &str, param: &str, code| {
        let path = format!("{path}?{query}");
        request(name, "GET", &path, refused(param, code))
    };
    let mut cases = vec![
        query("101 items", "limit=101", "limit", "integer_above_max_value"),
        query("no items", "limit=0", "limit", "integer_below_min_value"),
        query("a limit in words", "limit=many", "limit", "invalid_type"),
        query("half a limit", "limit=1.5", "limit", "invalid_type"),
        query("an empty limit", "limit=", "limit", "invalid_type"),
        query(
            "a limit above i64",
            "limit=9223372036854775808",
            "limit",
            "invalid_type",
        ),
        query("an unknown order", "order=random", "order", "invalid_value"),
        query("an order with NUL", "order=%00", "order", "invalid_value"),
        query(
            "an unknown parameter",
            "page=2",
            "page",
            "unknown_parameter",
        ),
        query(
            "an unknown inclusion",
            "include[]=file_search_call.results",
            "include[]",
            "unsupported_parameter",
        ),
    ];
    for (name, after) in [
        ("no cursor", ""),
        ("a cursor that is none", "x"),
        ("NUL for a cursor", "%00"),
        ("a cursor that is not UTF-8", "%ff"),
        (
            "a cursor of another conversation",
            "msg_00000000000000000000000000000000_1_0",
        ),
    ] {
        let path = format!("{path}?after={after}");
        let expected = if path.contains("/input_items") {
            refused("after", "invalid_value")
        } else {
            missing()
        };
        cases.push(request(name, "GET", &path, expected));
    }
    cases
}
