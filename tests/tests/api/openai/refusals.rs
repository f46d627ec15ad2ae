//! Conversations and items that are refused: those of other tenants, and requests that are not
//! understood.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{HttpResponse, TestApp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{CONVERSATIONS, assert_error, create, ids, list, message, post};

#[tokio::test]
async fn foreign_conversations_and_items_answer_like_missing_ones() {
    let app = TestApp::with_auth(
        ServerSettings::default(),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    let web = app.http_client();
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
    let send = async |key: &str, method: &str, path: &str, body: Option<Value>| {
        let request = match body {
            Some(body) => web.json(method, path, &body),
            None => web.request(method, path),
        };
        HttpResponse::send(request.header("authorization", key)).await
    };
    let body = json!({"items": [message("secret")]});
    let created = send(&bert, "POST", CONVERSATIONS, Some(body.clone())).await;
    let id = created.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("{CONVERSATIONS}/{id}");
    let items = send(&bert, "GET", &format!("{path}/items"), None).await;
    let item = ids(&items.json()["data"])[0].clone();
    let missing = format!("conv_{}", Uuid::nil().as_simple());
    let item_path = format!("/items/{item}");
    for (method, suffix, body) in [
        ("GET", "", None),
        ("POST", "", Some(json!({"metadata": {"a": "b"}}))),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("POST", "/items", Some(body)),
        ("GET", item_path.as_str(), None),
        ("DELETE", item_path.as_str(), None),
    ] {
        let foreign = send(&anna, method, &format!("{path}{suffix}"), body.clone()).await;
        let absent = format!("{CONVERSATIONS}/{missing}{suffix}");
        let absent = send(&anna, method, &absent, body).await;
        assert_error(&foreign, 404, "", "");
        assert_eq!(
            foreign.text,
            absent.text.replace(&missing, &id),
            "{method} {suffix}"
        );
    }
    let unchanged = send(&bert, "GET", &format!("{path}/items"), None).await;
    assert_eq!(unchanged.json(), items.json());
    // An item of another conversation is none of this one, whoever it belongs to.
    let own = send(&anna, "POST", CONVERSATIONS, Some(json!({}))).await;
    let own = own.json()["id"].as_str().expect("an id").to_owned();
    for id in [item.as_str(), "msg_1", "x"] {
        let path = format!("{CONVERSATIONS}/{own}/items/{id}");
        let refused = send(&anna, "GET", &path, None).await;
        assert_error(&refused, 404, "", "");
        let text = format!("Item with id '{id}' not found in conversation.");
        assert_eq!(refused.json()["error"]["message"], text);
    }
    let refused = send("Bearer x", "GET", &path, None).await;
    assert_error(&refused, 401, "", "invalid_api_key");
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
}

#[tokio::test]
async fn requests_that_are_not_understood_are_refused_by_name_and_store_nothing() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let path = create(&web, &json!([])).await;
    let items = format!("{path}/items");
    let many = json!(vec![message("a"); 21]);
    let pairs = |count: usize| {
        let pairs = (0..count).map(|n| (format!("k{n}"), json!("v")));
        Value::Object(pairs.collect())
    };
    for (at, body, param, code) in [
        (&items, json!({}), "items", "missing_required_parameter"),
        (&items, json!({"items": []}), "items", "empty_array"),
        (&items, json!({"items": "a"}), "items", "invalid_type"),
        (
            &items,
            json!({"items": many}),
            "items",
            "array_above_max_length",
        ),
        (
            &items,
            json!({"items": [message("a"), {"role": "user", "content": 1}]}),
            "items[1].content",
            "invalid_type",
        ),
        (
            &items,
            json!({"items": [{"type": "message", "content": "a"}]}),
            "items[0].role",
            "missing_required_parameter",
        ),
        (
            &items,
            json!({"items": [{"role": "user", "content": "a", "color": "red"}]}),
            "items[0].color",
            "unknown_parameter",
        ),
        (
            &items,
            json!({"items": [{"type": "web_search_call", "id": "ws_1"}]}),
            "items[0].type",
            "unsupported_tool",
        ),
        (
            &items,
            json!({"items": [{"role": "user", "content": [
                {"type": "input_image", "file_id": "file_1"},
            ]}]}),
            "items[0].content[0].file_id",
            "unsupported_parameter",
        ),
        (
            &items,
            json!({"items": [message("a"), {
                "type": "function_call", "call_id": "", "name": "f", "arguments": "",
            }]}),
            "items[1]",
            "invalid_value",
        ),
        (
            &path,
            json!({"metadata": pairs(17)}),
            "metadata",
            "object_above_max_properties",
        ),
        (
            &path,
            json!({"metadata": {"k": "v".repeat(513)}}),
            "metadata.k",
            "string_above_max_length",
        ),
        (
            &path,
            json!({"metadata": {"k": 1}}),
            "metadata.k",
            "invalid_type",
        ),
        (&path, json!({"metadata": []}), "metadata", "invalid_type"),
    ] {
        assert_error(&post(&web, at, &body).await, 400, param, code);
    }
    for (query, param, code) in [
        ("?limit=1000", "limit", "integer_above_max_value"),
        ("?limit=0", "limit", "integer_below_min_value"),
        ("?order=up", "order", "invalid_value"),
        (
            "?include[]=file_search_call.results",
            "include[]",
            "unsupported_parameter",
        ),
    ] {
        assert_error(&web.get(&format!("{items}{query}")).await, 400, param, code);
    }
    let broken = web.request("POST", &items);
    let broken = broken.header("content-type", "application/json").body("{");
    assert_error(&HttpResponse::send(broken).await, 400, "", "invalid_json");
    let unknown = web.get("/v1/nothing").await;
    assert_error(&unknown, 404, "", "");
    let missing = web.get(&format!("{items}?after=msg_1")).await;
    assert_error(&missing, 404, "", "");
    assert_eq!(list(&web, &path, "").await["data"], json!([]));
    assert_eq!(web.get(&path).await.json()["metadata"], json!({}));
    let refused = post(
        &web,
        CONVERSATIONS,
        &json!({"items": [message("a"), {"role": "x"}]}),
    )
    .await;
    assert_error(&refused, 400, "items[1].role", "invalid_value");
}

#[tokio::test]
async fn a_body_that_is_no_object_is_refused_by_its_type() {
    let app = TestApp::start().await;
    let web = app.http_client();
    for path in [
        CONVERSATIONS,
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/responses/compact",
        "/v1/chat/completions",
    ] {
        let refused = post(&web, path, &json!([])).await;
        assert_error(&refused, 400, "body", "invalid_type");
    }
}

#[tokio::test]
async fn a_body_with_too_many_values_is_refused_and_one_with_thousands_of_messages_is_read() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let objects = json!(vec![json!({"": 0}); 30_000]);
    for path in [
        CONVERSATIONS,
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/chat/completions",
    ] {
        let refused = post(&web, path, &json!({"input": objects})).await;
        assert_error(&refused, 400, "body", "invalid_value");
    }
    // It is read, and then refused for its own reason.
    let many = json!({"items": vec![message("{[,"); 10_000]});
    let refused = post(&web, CONVERSATIONS, &many).await;
    assert_error(&refused, 400, "items", "array_above_max_length");
}
