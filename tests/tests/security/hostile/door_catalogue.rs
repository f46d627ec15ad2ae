//! Runs all cases of the doors of other protocols against one app: none stores or calls anything.
//! Further tests: a text may contain NUL, chains of responses never form a circle, and 10,000 items
//! are read.

use std::collections::{BTreeMap, BTreeSet};

use anneal_testkit::{HttpClient, HttpResponse, MODEL, ScriptedModel, TestApp};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::hostile::{
    ai_sdk, case,
    catalogue::{assert_no_harm, run_within_deadline},
    door_case::{MAX_REFUSAL_BYTES, shape_differs},
    openai_completions, openai_conversations, openai_responses,
};

/// Minimum number of cases, so that a list of cases that is left out is noticed.
const MIN_CASES: usize = 700;

async fn post(web: &HttpClient, path: &str, body: &Value) -> HttpResponse {
    HttpResponse::send(web.json("POST", path, body)).await
}

/// Posts this body. Returns the id of what is made.
async fn make(web: &HttpClient, path: &str, body: &Value) -> String {
    let made = post(web, path, body).await;
    assert_eq!(made.status, 200, "{made:?}");
    made.json()["id"].as_str().expect("an id").to_owned()
}

/// The number of rows in each table of conversations.
async fn count_rows(app: &TestApp) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for table in app.list_tables_of_conversations().await {
        let count = format!("select count(*) from {table}");
        let count = sqlx::query_scalar(AssertSqlSafe(count));
        let count = count.fetch_one(&mut app.db().await).await.expect("counts");
        rows.insert(table, count);
    }
    rows
}

#[tokio::test]
async fn every_case_of_a_door_is_refused_by_name_and_stores_nothing() {
    let panics = case::record_panics();
    let model = ScriptedModel::saying("Quite so.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let item = json!({"role": "user", "content": "a"});
    let conversation = make(&web, "/v1/conversations", &json!({"items": [item]})).await;
    let stored = make(&web, "/v1/responses", &json!({"input": "a"})).await;
    let cases: Vec<_> = [
        openai_conversations::conversations(&conversation),
        openai_conversations::items(&conversation),
        openai_conversations::pages(&format!("/v1/conversations/{conversation}/items")),
        openai_conversations::pages(&format!("/v1/responses/{stored}/input_items")),
        openai_responses::bodies(),
        openai_responses::ids(&stored),
        openai_responses::compactions(),
        openai_completions::completions(),
        openai_completions::models(),
        ai_sdk::turns(),
    ]
    .into_iter()
    .flatten()
    .collect();
    app.run_jobs_until_idle().await;
    let (rows, calls) = (count_rows(&app).await, model.requests().len());
    let mut wrong = Vec::new();
    for case in &cases {
        wrong.extend(run_within_deadline(&case.name, case.run(&web)).await.err());
    }
    let refused = cases.iter().filter(|case| case.is_refused()).count();
    println!("{} cases, {refused} of them refused", cases.len());
    assert!(wrong.is_empty(), "{} cases: {wrong:#?}", wrong.len());
    assert!(refused >= MIN_CASES, "{refused}");
    assert_eq!(count_rows(&app).await, rows);
    assert_eq!(model.requests().len(), calls);
    assert_no_harm(&app, &panics).await;
}

#[tokio::test]
async fn a_refusal_is_short_however_long_the_names_in_the_request_are() {
    let app = TestApp::start().await;
    let web = app.http_client();
    let long = "x".repeat(1 << 20);
    let user = json!({"role": "user", "content": "a"});
    let with = |name: &str, value: Value| {
        let mut item = user.clone();
        item[name] = value;
        item
    };
    let mut wrong = Vec::new();
    for (path, field) in [("/v1/responses", "input"), ("/v1/conversations", "items")] {
        for item in [
            with(&long, json!(1)),
            with("type", json!(long)),
            with("role", json!(long)),
            with("status", json!(long)),
            with("content", json!([{"type": long}])),
            with(
                "content",
                json!([{"type": "input_text", "text": "a", long.clone(): 1}]),
            ),
            json!({"type": "item_reference", "id": long}),
        ] {
            let answer = post(&web, path, &json!({field: [item]})).await;
            let is_refused = (400..500).contains(&answer.status);
            if let Some(differs) = shape_differs(&answer).filter(|_| is_refused) {
                wrong.push(format!("{path}: {} is not {differs}", answer.status));
            }
            assert!(is_refused, "{path}: {}", answer.status);
        }
    }
    for (path, body) in [
        ("/v1/responses", json!({"model": long, "input": "a"})),
        (
            "/v1/responses",
            json!({"input": "a", "text": {long.clone(): 1}}),
        ),
        (
            "/v1/responses",
            json!({"input": "a", "tools": [{"type": long}]}),
        ),
        (
            "/v1/responses",
            json!({"input": "a", "tool_choice": {"type": long}}),
        ),
        ("/v1/responses", json!({"input": "a", "include": [long]})),
        ("/v1/responses", json!({"input": "a", "truncation": long})),
        ("/v1/responses", json!({"input": "a", "service_tier": long})),
        (
            "/v1/chat/completions",
            json!({"model": long, "messages": [user]}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [with(&long, json!(1))]}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [user], "service_tier": long}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [user], "tool_choice": long}),
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [user], "tools": [{"type": long}]}),
        ),
        (
            "/v1/responses/compact",
            json!({"model": long, "input": [user]}),
        ),
    ] {
        let answer = post(&web, path, &body).await;
        assert!(
            (400..500).contains(&answer.status),
            "{path}: {}",
            answer.status
        );
        if let Some(differs) = shape_differs(&answer) {
            wrong.push(format!("{path}: {} is not {differs}", answer.status));
        }
    }
    // Names in paths and queries.
    let long = "x".repeat(8_000);
    for path in [
        format!("/v1/conversations/{long}"),
        format!("/v1/conversations/conv_{}/items/{long}", "0".repeat(32)),
        format!("/v1/responses/{long}"),
        format!("/v1/models/{long}"),
        format!("/v1/models?{long}=1"),
        format!("/v1/conversations/conv_{}/items?{long}=1", "0".repeat(32)),
        format!(
            "/v1/conversations/conv_{}/items?order={long}",
            "0".repeat(32)
        ),
        format!(
            "/v1/conversations/conv_{}/items?include={long}",
            "0".repeat(32)
        ),
        format!("/v1/responses/resp_{}?stream={long}", "0".repeat(32)),
    ] {
        let answer = web.get(&path).await;
        if let Some(differs) = shape_differs(&answer) {
            wrong.push(format!("{path:.60}: {} is not {differs}", answer.status));
        }
    }
    assert!(
        wrong.is_empty(),
        "longer than {MAX_REFUSAL_BYTES}: {wrong:#?}"
    );
}

#[tokio::test]
async fn a_text_with_nul_is_kept_and_sent_to_the_model_as_it_is() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let text = "a\0b";
    let item = json!({"role": "user", "content": text});
    let conversation = make(&web, "/v1/conversations", &json!({"items": [item]})).await;
    let response = make(&web, "/v1/responses", &json!({"input": text})).await;
    for path in [
        format!("/v1/conversations/{conversation}/items"),
        format!("/v1/responses/{response}/input_items"),
    ] {
        let listed = web.get(&path).await.json();
        assert_eq!(listed["data"][0]["content"][0]["text"], text, "{listed}");
    }
    let part = json!({"type": "text", "text": text});
    let message = json!({"id": "u", "role": "user", "parts": [part]});
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({"model": MODEL, "store": true, "messages": [item]}),
        ),
        (
            "/api/agents/a/ui",
            json!({"id": "c", "messages": [message]}),
        ),
    ] {
        let answer = post(&web, path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert!(
            request.body.to_string().contains("a\\u0000b"),
            "{request:?}"
        );
    }
}

/// The responses before this one, newest first. Panics if they form a circle.
async fn walk_back(web: &HttpClient, id: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut chain = Vec::new();
    let mut next = Some(id.to_owned());
    while let Some(id) = next {
        assert!(seen.insert(id.clone()), "{id} is before itself: {chain:?}");
        let answer = web.get(&format!("/v1/responses/{id}")).await;
        if answer.status == 404 {
            break;
        }
        let previous = &answer.json()["previous_response_id"];
        next = previous.as_str().map(str::to_owned);
        chain.push(id);
    }
    chain
}

#[tokio::test]
async fn no_response_comes_before_itself() {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let create = async |key: &str, previous: Option<&str>| {
        let body = json!({"input": "a", "previous_response_id": previous});
        let request = web.json("POST", "/v1/responses", &body);
        HttpResponse::send(request.header("idempotency-key", key)).await
    };
    let id_of = |answer: &HttpResponse| {
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["id"].as_str().expect("an id").to_owned()
    };
    let first = id_of(&create("first", None).await);
    let second = id_of(&create("second", Some(&first)).await);
    // The same create cannot get another response before it.
    for previous in [&first, &second] {
        let again = create("first", Some(previous)).await;
        assert_eq!(again.status, 409, "{again:?}");
        assert_eq!(
            again.json()["error"]["code"],
            "request_id_reused",
            "{again:?}"
        );
    }
    // Once the first one is deleted, its key may be used again, and then the response that comes
    // after the second one is another one.
    let path = format!("/v1/responses/{first}");
    let deleted = HttpResponse::send(web.request("DELETE", &path)).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let own = create("first", Some(&first)).await;
    assert_eq!(own.status, 404, "{own:?}");
    assert_eq!(own.json()["error"]["code"], "previous_response_not_found");
    let third = create("first", Some(&second)).await;
    if third.status == 200 {
        let third = id_of(&third);
        assert_ne!(third, first);
        assert_eq!(
            walk_back(&web, &third).await,
            [third.clone(), second.clone()]
        );
    } else {
        assert_eq!(third.status, 409, "{third:?}");
    }
    // Ids in a body are not those of the new response.
    let body = json!({"id": second, "input": "a", "previous_response_id": second});
    let fourth = id_of(&post(&web, "/v1/responses", &body).await);
    assert_eq!(walk_back(&web, &fourth).await, [fourth.clone(), second]);
}

/// Posts a body with 10,000 items, which is answered, and one with 10,001, which is refused.
async fn check_most_items(path: &str, more: &Value) {
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    for (count, status) in [(10_000, 200), (10_001, 400)] {
        let calls = model.requests().len();
        let mut body = more.clone();
        body["input"] = json!(vec![json!({"role": "user", "content": "a"}); count]);
        let answer = post(&web, path, &body).await;
        assert_eq!(
            answer.status, status,
            "{path} with {count}: {:.300}",
            answer.text
        );
        if status == 400 {
            let error = &answer.json()["error"];
            assert_eq!(
                (&error["param"], &error["code"]),
                (&json!("input"), &json!("array_above_max_length")),
                "{path}"
            );
            assert_eq!(model.requests().len(), calls);
        }
    }
}

#[tokio::test]
async fn ten_thousand_items_are_counted_and_one_more_is_refused() {
    check_most_items("/v1/responses/input_tokens", &json!({"model": MODEL})).await;
}

#[tokio::test]
async fn ten_thousand_items_are_answered_and_one_more_is_refused() {
    let body = json!({"store": false, "truncation": "auto"});
    check_most_items("/v1/responses", &body).await;
}

#[tokio::test]
async fn ten_thousand_items_are_compacted_and_one_more_is_refused() {
    check_most_items("/v1/responses/compact", &json!({"model": MODEL})).await;
}

#[tokio::test]
async fn a_response_of_two_thousand_items_is_stored_and_listed_in_pages() {
    let panics = case::record_panics();
    let model = ScriptedModel::saying("OK.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let items = vec![json!({"role": "user", "content": "a"}); 2_000];
    let stored = make(&web, "/v1/responses", &json!({"input": items})).await;
    let page = format!("/v1/responses/{stored}/input_items?limit=100");
    let listed = web.get(&page).await.json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(100));
    assert_no_harm(&app, &panics).await;
}
