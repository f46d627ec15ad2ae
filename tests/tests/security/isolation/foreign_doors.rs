//! The doors of other protocols answer everything of another tenant, Bert, like what does not exist:
//! ids in paths, ids in bodies, headers and cursors, compactions, and running responses.

use anneal_core::caller::Verb;
use anneal_testkit::{
    Gate, HttpResponse, MODEL, Say, Script, ScriptedModel, TenantSwapProxy, TestApp, eventually,
};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::isolation::{
    door_calls::{CALLS, Names, assert_error_object},
    row_security::tables,
    unfiltered::rows_of,
};

/// Part of every text of Bert.
const SECRET: &str = "secret";

/// An app with two tenants, and what Bert has.
struct DoorTenants {
    app: TestApp,
    _model: ScriptedModel,
    anna: String,
    bert: String,
    names: Names,
    /// `encrypted_content` of a compaction that was made for Bert.
    compaction: String,
}

impl DoorTenants {
    async fn start() -> Self {
        let model = ScriptedModel::saying("The secret is safe with me, as it always was.").await;
        let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
        let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
        let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
        let mut tenants = Self {
            app,
            _model: model,
            anna,
            bert,
            names: Names::unknown(),
            compaction: String::new(),
        };
        let text = "What is the secret of the long history before?".repeat(20);
        let question = json!({"role": "user", "content": text});
        let created = json!({"items": [question], "metadata": {"kind": SECRET}});
        let created = tenants.make("/v1/conversations", &created).await;
        tenants.names.conversation = text_of(&created, "/id");
        let conversation = tenants.names.conversation.clone();
        let response = json!({"input": SECRET, "conversation": conversation});
        let response = tenants.make("/v1/responses", &response).await;
        tenants.names.response = text_of(&response, "/id");
        tenants.names.item = text_of(&response, "/output/0/id");
        let answer = json!({"role": "assistant", "content": text});
        let compacted = json!({"model": MODEL, "input": [question, answer]});
        let compacted = tenants.make("/v1/responses/compact", &compacted).await;
        let output = compacted["output"].as_array().expect("a list");
        tenants.compaction = text_of(output.last().expect("an item"), "/encrypted_content");
        let message =
            json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": SECRET}]});
        let turn = json!({"id": tenants.names.chat, "messages": [message]});
        let turn = tenants.send(&tenants.bert, "POST", "/api/agents/a/ui", Some(&turn), &[]);
        assert_eq!(turn.await.status, 200);
        tenants
    }

    async fn send(
        &self,
        authorization: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> HttpResponse {
        let web = self.app.http_client();
        let mut request = match body {
            Some(body) => web.json(method, path, body),
            None => web.request(method, path),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        HttpResponse::send(request.header("authorization", authorization)).await
    }

    /// Posts this as Bert. Returns the answer.
    async fn make(&self, path: &str, body: &Value) -> Value {
        let made = self.send(&self.bert, "POST", path, Some(body), &[]).await;
        assert_eq!(made.status, 200, "{made:?}");
        made.json()
    }
}

fn text_of(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{pointer} of {value}"))
        .to_owned()
}

/// A request that names something beside its path.
pub(crate) struct Naming {
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// Requests that name these in bodies, headers and queries.
pub(crate) fn naming(names: &Names) -> Vec<Naming> {
    let post = |path: &str, body: Value| Naming {
        path: path.to_owned(),
        body: Some(body),
        headers: Vec::new(),
    };
    let reference = |id: &str| json!([{"type": "item_reference", "id": id}]);
    let mut all = Vec::new();
    for path in ["/v1/responses", "/v1/responses/input_tokens"] {
        let conversation = &names.conversation;
        all.extend([
            post(path, json!({"input": "a", "conversation": conversation})),
            post(
                path,
                json!({"input": "a", "conversation": {"id": conversation}}),
            ),
            post(
                path,
                json!({"input": "a", "previous_response_id": names.response}),
            ),
            post(path, json!({"input": reference(&names.item)})),
        ]);
    }
    let previous = json!({"input": "a", "store": false, "previous_response_id": names.response});
    let streamed = json!({"input": "a", "stream": true, "previous_response_id": names.response});
    let in_background =
        json!({"input": "a", "background": true, "conversation": names.conversation});
    all.extend([
        post("/v1/responses", previous),
        post("/v1/responses", streamed),
        post("/v1/responses", in_background),
        post(
            "/v1/responses/compact",
            json!({"model": MODEL, "previous_response_id": names.response}),
        ),
        post(
            "/v1/responses/compact",
            json!({"model": MODEL, "input": reference(&names.item)}),
        ),
    ]);
    for header in [
        names.conversation.clone(),
        names.conversation.replace("conv_", ""),
    ] {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "a"}]});
        all.push(Naming {
            path: "/v1/chat/completions".to_owned(),
            body: Some(body),
            headers: vec![("anneal-conversation", header)],
        });
    }
    all
}

#[tokio::test]
async fn every_path_of_a_door_answers_a_foreign_id_exactly_as_a_missing_one() {
    let tenants = DoorTenants::start().await;
    let bert = tenants.app.tenant("bert").await.0;
    let before = rows_of(&tenants.app, bert).await;
    let (missing, web) = (Names::unknown(), tenants.app.http_client());
    let mut named = 0;
    for call in CALLS.iter().filter(|call| call.names_something()) {
        // The chats of Anna are others than those of Bert, so a turn begins a new one.
        if call.method == "POST" && call.is_of_ui() {
            continue;
        }
        named += 1;
        let ask = async |names: &Names| {
            let answer = HttpResponse::send(call.request(&web, names, &tenants.anna)).await;
            let headers = ["content-type", "retry-after", "x-should-retry", "allow"]
                .map(|name| answer.header(name).to_owned());
            (answer.status, names.hidden_in(&answer.text), headers)
        };
        let foreign = ask(&tenants.names).await;
        let expected = if call.is_of_ui() { 204 } else { 404 };
        assert_eq!(
            foreign.0, expected,
            "{} {}: {foreign:?}",
            call.method, call.path
        );
        assert_eq!(
            foreign,
            ask(&missing).await,
            "{} {}",
            call.method,
            call.path
        );
    }
    assert_eq!(named, 12);
    assert!(
        before == rows_of(&tenants.app, bert).await,
        "rows of Bert have changed"
    );
}

#[tokio::test]
async fn every_body_of_a_door_that_names_something_foreign_is_answered_as_if_it_were_missing() {
    let tenants = DoorTenants::start().await;
    let bert = tenants.app.tenant("bert").await.0;
    let before = rows_of(&tenants.app, bert).await;
    let missing = Names::unknown();
    for (foreign, missing_one) in naming(&tenants.names).iter().zip(naming(&missing)) {
        let ask = async |naming: &Naming, names: &Names| {
            let headers: Vec<(&str, &str)> = naming
                .headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            let body = naming.body.as_ref();
            let path = &naming.path;
            let answer = tenants
                .send(&tenants.anna, "POST", path, body, &headers)
                .await;
            assert_error_object(&answer, &format!("{path} {body:?}: {answer:?}"));
            let digits = names.conversation.replace("conv_", "");
            let text = names.hidden_in(&answer.text).replace(&digits, "DIGITS");
            (answer.status, text)
        };
        let answered = ask(foreign, &tenants.names).await;
        assert_eq!(answered.0, 404, "{}: {answered:?}", foreign.path);
        assert_eq!(
            answered,
            ask(&missing_one, &missing).await,
            "{}",
            foreign.path
        );
    }
    // A cursor of another conversation is none of this one.
    let created = tenants
        .send(
            &tenants.anna,
            "POST",
            "/v1/conversations",
            Some(&json!({})),
            &[],
        )
        .await
        .json();
    let own = text_of(&created, "/id");
    for names in [&tenants.names, &missing] {
        let path = format!("/v1/conversations/{own}/items?after={}", names.item);
        let answer = tenants.send(&tenants.anna, "GET", &path, None, &[]).await;
        assert_eq!(answer.status, 404, "{answer:?}");
        let text = format!("Item with id '{}' not found in conversation.", names.item);
        assert_eq!(answer.json()["error"]["message"], text);
    }
    // A compaction is one of its tenant alone, wherever it is sent.
    let item = json!({"type": "compaction", "encrypted_content": tenants.compaction});
    let (own_items, own_body) = (
        format!("/v1/conversations/{own}/items"),
        json!({"items": [item]}),
    );
    for (path, body, param) in [
        (
            "/v1/responses",
            json!({"input": [item, {"role": "user", "content": "a"}]}),
            "input[0].encrypted_content",
        ),
        (
            "/v1/responses/input_tokens",
            json!({"input": [item]}),
            "input[0].encrypted_content",
        ),
        (
            "/v1/responses/compact",
            json!({"model": MODEL, "input": [item]}),
            "input[0].encrypted_content",
        ),
        (
            "/v1/conversations",
            own_body.clone(),
            "items[0].encrypted_content",
        ),
        (own_items.as_str(), own_body, "items[0].encrypted_content"),
    ] {
        let answer = tenants
            .send(&tenants.anna, "POST", path, Some(&body), &[])
            .await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        let error = &answer.json()["error"];
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("invalid_encrypted_content"), &json!(param)),
            "{path}"
        );
        assert!(!answer.text.contains(SECRET), "{answer:?}");
    }
    assert!(
        before == rows_of(&tenants.app, bert).await,
        "rows of Bert have changed"
    );
}

#[tokio::test]
async fn a_chat_with_the_same_id_is_another_one_for_each_tenant() {
    let tenants = DoorTenants::start().await;
    let message = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "Mine."}]});
    let turn = json!({"id": tenants.names.chat, "messages": [message]});
    let annas = tenants
        .send(&tenants.anna, "POST", "/api/agents/a/ui", Some(&turn), &[])
        .await;
    // For Bert the message with this id has other content.
    let berts = tenants
        .send(&tenants.bert, "POST", "/api/agents/a/ui", Some(&turn), &[])
        .await;
    assert_eq!(
        (annas.status, berts.status),
        (200, 409),
        "{annas:?} {berts:?}"
    );
    let sessions = "/api/agents/a/sessions";
    let listed = tenants
        .send(&tenants.anna, "GET", sessions, None, &[])
        .await;
    assert_eq!(
        listed.json()["sessions"].as_array().map(Vec::len),
        Some(1),
        "{listed:?}"
    );
}

#[tokio::test]
async fn a_running_response_of_another_tenant_is_neither_read_nor_cancelled_nor_continued() {
    let gate = Gate::default();
    let behind = gate.clone();
    let model = ScriptedModel::start(move |request| {
        Script::says(request, [Say::text("Whole.")]).after(&behind)
    })
    .await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
    let web = app.http_client();
    let body = json!({"input": SECRET, "background": true});
    let begun = web.json("POST", "/v1/responses", &body);
    let begun = HttpResponse::send(begun.header("authorization", &bert)).await;
    let id = text_of(&begun.json(), "/id");
    model.wait_for_calls(1).await;
    let missing = Names::unknown().response;
    for (method, rest) in [
        ("GET", ""),
        ("GET", "?stream=true"),
        ("GET", "?stream=true&starting_after=0"),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ] {
        let ask = async |id: &str| {
            let request = web.request(method, &format!("/v1/responses/{id}{rest}"));
            let answer = HttpResponse::send(request.header("authorization", &anna)).await;
            (answer.status, answer.text.replace(id, "ID"))
        };
        let foreign = ask(&id).await;
        assert_eq!(foreign.0, 404, "{method} {rest}: {foreign:?}");
        assert_eq!(foreign, ask(&missing).await, "{method} {rest}");
    }
    gate.open_for_ever();
    let path = format!("/v1/responses/{id}");
    eventually("Bert's response is complete", async || {
        let request = web.request("GET", &path).header("authorization", &bert);
        HttpResponse::send(request).await.json()["status"] == "completed"
    })
    .await;
}

/// The calls of Anna about what Bert has, at a server whose statements ask for Bert's rows. Returns
/// the status and whether the answer contains [`SECRET`].
async fn call_without_filters(tenants: &DoorTenants) -> Vec<(String, u16, bool)> {
    let (proxy, url) = TenantSwapProxy::to_database(&tenants.app.url).await;
    let unfiltered = tenants.app.second_server_at(&url).await;
    let web = unfiltered.http_client();
    // The key is looked up before its tenant is replaced.
    let models = web.request("GET", "/v1/models");
    let models = models.header("authorization", &tenants.anna);
    assert_eq!(HttpResponse::send(models).await.status, 200);
    let (anna, bert) = (
        tenants.app.tenant("anna").await,
        tenants.app.tenant("bert").await,
    );
    proxy.swap_tenants(anna.0, bert.0);
    let mut answers = Vec::new();
    for call in CALLS.iter().filter(|call| call.names_something()) {
        let request = call.request(&web, &tenants.names, &tenants.anna);
        let answer = HttpResponse::send(request).await;
        let what = format!("{} {}", call.method, call.path);
        answers.push((what, answer.status, answer.text.contains(SECRET)));
    }
    answers
}

#[tokio::test]
async fn without_filters_no_door_shows_or_changes_what_is_foreign() {
    let tenants = DoorTenants::start().await;
    let bert = tenants.app.tenant("bert").await.0;
    let before = rows_of(&tenants.app, bert).await;
    for (what, status, has_secret) in call_without_filters(&tenants).await {
        assert!(!has_secret, "{what}: {status}");
        let is_of_path = what.contains("/v1/");
        assert!(!is_of_path || status == 404, "{what}: {status}");
    }
    assert!(
        before == rows_of(&tenants.app, bert).await,
        "rows of Bert have changed"
    );
}

#[tokio::test]
async fn without_filters_and_row_security_the_doors_show_what_is_foreign() {
    let tenants = DoorTenants::start().await;
    let mut db = tenants.app.db().await;
    for table in tables(&mut db).await {
        let off = format!("alter table {table} disable row level security");
        let off = sqlx::raw_sql(AssertSqlSafe(off));
        off.execute(&mut db).await.expect("alters");
    }
    let answers = call_without_filters(&tenants).await;
    let shows = |path: &str| {
        let mut shown = answers.iter().filter(|(_, _, has_secret)| *has_secret);
        shown.any(|(what, ..)| what == path)
    };
    for path in [
        "GET /v1/conversations/{id}",
        "GET /v1/conversations/{id}/items",
        "GET /v1/responses/{id}",
    ] {
        assert!(shows(path), "{path}: {answers:?}");
    }
}
