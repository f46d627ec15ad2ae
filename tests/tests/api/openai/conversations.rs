//! Conversations and their items.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{
    HttpClient, HttpResponse, TestApp, TestConversation, assistant, pb, result, user,
};
use pb::part::Part;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{assert_error, delete, post};

const CONVERSATIONS: &str = "/v1/conversations";

/// An item of a user's text.
fn message(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

/// Creates a conversation with these items. Returns its path.
async fn create(web: &HttpClient, items: &Value) -> String {
    let created = post(web, CONVERSATIONS, &json!({"items": items})).await;
    assert_eq!(created.status, 200, "{created:?}");
    let id = created.json()["id"].as_str().expect("an id").to_owned();
    format!("{CONVERSATIONS}/{id}")
}

/// The path of an existing conversation.
fn path_of(conversation: &TestConversation<'_>) -> String {
    format!("{CONVERSATIONS}/conv_{}", conversation.uuid().as_simple())
}

/// The conversation at this path, over gRPC.
fn conversation_at<'a>(app: &'a TestApp, path: &str) -> TestConversation<'a> {
    let (_, hex) = path.rsplit_once("conv_").expect("a path of a conversation");
    let uuid = Uuid::try_parse(hex).expect("hexadecimal digits");
    app.conversation_by_id(&uuid.to_string())
}

/// The page of items with these parameters.
async fn list(web: &HttpClient, path: &str, parameters: &str) -> Value {
    let listed = web.get(&format!("{path}/items{parameters}")).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.json()
}

/// The ids of these items.
fn ids(items: &Value) -> Vec<String> {
    let items = items.as_array().expect("a list").iter();
    items
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// The ids of all items, read in pages of this size.
async fn list_in_pages(web: &HttpClient, path: &str, order: &str, limit: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = list(web, path, &format!("?order={order}&limit={limit}{after}")).await;
        let listed = ids(&page["data"]);
        assert!(listed.len() <= limit, "{page}");
        assert_eq!(
            page["first_id"].as_str(),
            listed.first().map(String::as_str)
        );
        assert_eq!(page["last_id"].as_str(), listed.last().map(String::as_str));
        if let Some(last) = listed.last() {
            after = format!("&after={last}");
        }
        all.extend(listed);
        if page["has_more"] == false {
            return all;
        }
    }
}

/// An answer of several items: two texts, a call, a text, a call, a text.
fn answer_of_many_items() -> pb::NewMessage {
    let text = |text: &str| Part::Text(pb::TextPart { text: text.into() });
    let call = |id: &str| {
        Part::ToolUse(pb::ToolUsePart {
            id: id.into(),
            name: "look".into(),
            input: "{}".into(),
        })
    };
    let parts = [
        text("One."),
        text("Two."),
        call("a"),
        text("Three."),
        call("b"),
        text("Four."),
    ];
    pb::NewMessage {
        parts: parts.map(|part| pb::Part { part: Some(part) }).to_vec(),
        ..assistant("")
    }
}

#[tokio::test]
async fn a_conversation_is_created_read_updated_and_deleted() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let created = post(
        &web,
        CONVERSATIONS,
        &json!({"metadata": {"topic": "races"}}),
    )
    .await;
    assert_eq!(created.status, 200, "{created:?}");
    let conversation = created.json();
    assert_eq!(conversation["object"], "conversation");
    assert_eq!(conversation["metadata"], json!({"topic": "races"}));
    assert!(conversation["created_at"].as_i64() > Some(1_700_000_000));
    let id = conversation["id"].as_str().expect("an id");
    let path = format!("{CONVERSATIONS}/{id}");
    assert_eq!(web.get(&path).await.json(), conversation);

    let updated = post(&web, &path, &json!({"metadata": {"a": "b"}})).await;
    assert_eq!(updated.json()["metadata"], json!({"a": "b"}));
    assert_eq!(web.get(&path).await.json(), updated.json());
    let cleared = post(&web, &path, &json!({"metadata": null})).await;
    assert_eq!(cleared.json()["metadata"], json!({}));
    assert_error(
        &post(&web, &path, &json!({})).await,
        400,
        "metadata",
        "missing_required_parameter",
    );

    let deleted = delete(&web, &path).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    assert_eq!(
        deleted.json(),
        json!({"id": id, "object": "conversation.deleted", "deleted": true})
    );
    for gone in [
        web.get(&path).await,
        delete(&web, &path).await,
        post(&web, &path, &json!({"metadata": {}})).await,
        web.get(&format!("{path}/items")).await,
        post(
            &web,
            &format!("{path}/items"),
            &json!({"items": [message("a")]}),
        )
        .await,
        web.get(&format!("{path}/items/msg_1")).await,
    ] {
        assert_error(&gone, 404, "", "");
        let text = format!("Conversation with id '{id}' not found.");
        assert_eq!(gone.json()["error"]["message"], text);
        assert_eq!(gone.json()["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn a_conversation_needs_no_body_and_unknown_parameters_are_named() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let empty = HttpResponse::send(web.request("POST", CONVERSATIONS)).await;
    assert_eq!(empty.status, 200, "{empty:?}");
    let body = json!({"items": null, "metadata": null, "color": "red"});
    let named = post(&web, CONVERSATIONS, &body).await;
    assert_eq!(named.header("x-anneal-ignored-parameters"), "color");
    assert_eq!(named.json()["metadata"], json!({}));
    assert_eq!(empty.header("x-anneal-ignored-parameters"), "");
    assert!(empty.header("x-request-id").starts_with("req_"));
}

#[tokio::test]
async fn an_idempotency_key_creates_one_conversation_with_its_items_once() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let create = async |body: Value| {
        let request = web.json("POST", CONVERSATIONS, &body);
        HttpResponse::send(request.header("idempotency-key", "k1")).await
    };
    let body = json!({"items": [message("a")], "metadata": {"a": "b"}});
    let (first, again) = (create(body.clone()).await, create(body).await);
    assert_eq!(first.json(), again.json());
    let id = first.json()["id"].as_str().expect("an id").to_owned();
    let path = format!("{CONVERSATIONS}/{id}");
    assert_eq!(ids(&list(&web, &path, "").await["data"]).len(), 1);
    let other = create(json!({"metadata": {"a": "c"}})).await;
    assert_error(&other, 409, "", "request_id_reused");
    assert_eq!(other.header("x-should-retry"), "false");
    let add = async || {
        let request = web.json(
            "POST",
            &format!("{path}/items"),
            &json!({"items": [message("b")]}),
        );
        HttpResponse::send(request.header("idempotency-key", "k2")).await
    };
    let (first, again) = (add().await, add().await);
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.json(), again.json());
    assert_eq!(ids(&list(&web, &path, "").await["data"]).len(), 2);
}

/// An item of each type, as it is shown, without its id.
fn items_of_every_type() -> Vec<Value> {
    let image = json!({
        "type": "input_image", "image_url": "https://a.example/b.png", "detail": "low",
    });
    vec![
        json!({"type": "message", "role": "developer", "status": "completed",
            "content": [{"type": "input_text", "text": "Be brief."}]}),
        json!({"type": "message", "role": "user", "status": "completed", "content": [
            {"type": "input_text", "text": "What is this?"},
            image,
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        ]}),
        json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "gAAAAABo"}),
        json!({"type": "message", "role": "assistant", "status": "completed",
            "phase": "commentary", "content": [
            {"type": "output_text", "text": "I look.", "logprobs": [], "annotations": [
                {"type": "url_citation", "url": "https://a.example", "title": "A",
                 "start_index": 0, "end_index": 1},
            ]},
        ]}),
        json!({"type": "function_call", "call_id": "c", "name": "look",
            "arguments": "{\"a\": 1}", "status": "completed"}),
        json!({"type": "function_call_output", "call_id": "c", "status": "completed", "output": [
            {"type": "input_text", "text": "Seen."},
            image,
            {"type": "input_text", "text": "Twice."},
        ]}),
        json!({"type": "message", "role": "assistant", "status": "incomplete",
            "content": [{"type": "refusal", "refusal": "No."}]}),
    ]
}

#[tokio::test]
async fn items_of_every_type_come_back_as_they_were_sent() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let items = items_of_every_type();
    let path = create(&web, &json!([])).await;
    let added = post(&web, &format!("{path}/items"), &json!({"items": items})).await;
    assert_eq!(added.status, 200, "{added:?}");
    let added = added.json();
    assert_eq!(
        (&added["object"], &added["has_more"]),
        (&json!("list"), &json!(false))
    );
    let listed = list(&web, &path, "?order=asc").await;
    assert_eq!(listed["data"], added["data"]);
    assert_eq!(listed["first_id"], added["first_id"]);
    let prefixes = ["msg_", "msg_", "rs_", "msg_", "fc_", "fco_", "msg_"];
    let listed = listed["data"].as_array().expect("a list").clone();
    assert_eq!(listed.len(), items.len());
    for ((item, sent), prefix) in listed.iter().zip(&items).zip(prefixes) {
        let id = item["id"].as_str().expect("an id");
        assert!(id.starts_with(prefix), "{item}");
        let item_path = format!("{path}/items/{id}?include[]=reasoning.encrypted_content");
        let one = web.get(&item_path).await;
        assert_eq!(one.json(), *item);
        let mut without_id = item.clone();
        without_id.as_object_mut().expect("an object").remove("id");
        assert_eq!(without_id, *sent);
    }
    // Items can be sent again as they came, with their ids.
    let copy = create(&web, &json!(listed)).await;
    let copied = list(&web, &copy, "?order=asc").await;
    let without_ids = |items: &[Value]| {
        let items = items.iter().cloned().map(|mut item| {
            item.as_object_mut().expect("an object").remove("id");
            item
        });
        items.collect::<Vec<Value>>()
    };
    assert_eq!(
        without_ids(copied["data"].as_array().expect("a list")),
        without_ids(&listed)
    );
    conversation_at(&app, &path).verify().await;
}

#[tokio::test]
async fn texts_become_parts_and_messages_of_other_apis_are_items() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("Look."),
            answer_of_many_items(),
            result("a", "Seen."),
        ])
        .await;
    let path = path_of(&conversation);
    let title = conversation.conversation().await.title;
    let sent = json!({"items": [{"role": "user", "content": "Again."}]});
    let added = post(&web, &format!("{path}/items"), &sent).await.json();
    assert_eq!(
        added["data"][0]["content"],
        json!([{"type": "input_text", "text": "Again."}])
    );
    let listed = list(&web, &path, "?order=asc").await;
    let kinds = listed["data"].as_array().expect("a list").iter();
    let kinds: Vec<&str> = kinds.filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "message",
            "message",
            "function_call",
            "message",
            "function_call",
            "message",
            "function_call_output",
            "message",
        ]
    );
    assert_eq!(listed["data"][1]["content"][1]["text"], "Two.");
    assert_eq!(listed["data"][6]["output"], "Seen.");
    assert_eq!(conversation.conversation().await.title, title);
}

#[tokio::test]
async fn pages_of_any_size_hold_each_item_once_in_both_orders() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let conversation = app.conversation().await;
    let messages = vec![
        user("a"),
        answer_of_many_items(),
        result("a", "Seen."),
        answer_of_many_items(),
        user("b"),
        user("c"),
    ];
    conversation.append_all(messages).await;
    let path = path_of(&conversation);
    let oldest_first = list_in_pages(&web, &path, "asc", 100).await;
    assert_eq!(oldest_first.len(), 14);
    // The third message is withdrawn, and an item is taken out of each answer.
    for index in [6, 3, 8] {
        let deleted = delete(&web, &format!("{path}/items/{}", oldest_first[index])).await;
        assert_eq!(deleted.status, 200, "{deleted:?}");
    }
    let expected: Vec<String> = oldest_first
        .iter()
        .enumerate()
        .filter(|(index, _)| ![6, 3, 8].contains(index))
        .map(|(_, id)| id.clone())
        .collect();
    for limit in [1, 2, 3, 5, 11, 20] {
        assert_eq!(
            list_in_pages(&web, &path, "asc", limit).await,
            expected,
            "{limit}"
        );
        let mut newest_first = list_in_pages(&web, &path, "desc", limit).await;
        newest_first.reverse();
        assert_eq!(newest_first, expected, "{limit}");
    }
    // An item that is gone still marks a place.
    let after = format!("?order=asc&limit=1&after={}", oldest_first[6]);
    let next = list(&web, &path, &after).await;
    assert_eq!(ids(&next["data"]), [oldest_first[7].clone()]);
    let newest = list(&web, &path, "?limit=2").await;
    assert_eq!(
        ids(&newest["data"]),
        [oldest_first[13].clone(), oldest_first[12].clone()]
    );
    let empty = create(&web, &json!([])).await;
    assert_eq!(
        list(&web, &empty, "").await,
        json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false})
    );
}

#[tokio::test]
async fn one_item_of_a_message_is_deleted_and_the_others_stay() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let conversation = app.conversation().await;
    let mut answer = answer_of_many_items();
    answer.metadata.insert("source".into(), "web".into());
    conversation.append_all(vec![user("Look."), answer]).await;
    let path = path_of(&conversation);
    let all = list(&web, &path, "?order=asc").await["data"].clone();
    let mut left = all.as_array().expect("a list").clone();
    // The first call, the texts before it, the second call.
    for place in [2, 1, 2] {
        let id = left.remove(place)["id"].as_str().expect("an id").to_owned();
        let item = format!("{path}/items/{id}");
        let deleted = delete(&web, &item).await;
        assert_eq!(deleted.status, 200, "{deleted:?}");
        assert_eq!(
            deleted.json(),
            json!({"id": id, "object": "conversation.item.deleted", "deleted": true})
        );
        for gone in [delete(&web, &item).await, web.get(&item).await] {
            assert_error(&gone, 404, "", "");
            let text = format!("Item with id '{id}' not found in conversation.");
            assert_eq!(gone.json()["error"]["message"], text);
        }
        assert_eq!(list(&web, &path, "?order=asc").await["data"], json!(left));
        conversation.verify().await;
    }
    let stored = conversation.message(2).await;
    assert_eq!(stored.metadata["source"], "web");
    assert_eq!(stored.parts.len(), 2);
    // The last items of a message go with the message.
    for item in left.iter().skip(1) {
        let id = item["id"].as_str().expect("an id");
        assert_eq!(
            delete(&web, &format!("{path}/items/{id}")).await.status,
            200
        );
    }
    let texts = conversation.texts_by_role().await;
    assert_eq!(texts, [(pb::Role::User, "Look.".to_owned())]);
    assert_eq!(conversation.conversation().await.withdrawn_messages, 1);
    conversation.verify().await;
}

#[tokio::test]
async fn an_output_stays_when_its_call_is_deleted_and_contexts_leave_it_out() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let path = create(
        &web,
        &json!([
            message("Look."),
            {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "Seen."},
            message("And?"),
        ]),
    )
    .await;
    let all = ids(&list(&web, &path, "?order=asc").await["data"]);
    let deleted = delete(&web, &format!("{path}/items/{}", all[1])).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let left = ids(&list(&web, &path, "?order=asc").await["data"]);
    assert_eq!(left, [all[0].clone(), all[2].clone(), all[3].clone()]);
    let context = conversation_at(&app, &path).context().await;
    context.assert_tools_paired();
}

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
