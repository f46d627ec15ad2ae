//! Over HTTP a bound key gets what it gets over gRPC: every path and every body of every door answers
//! what is foreign to the key like what is missing, and what the key creates is its own.

use anneal_core::caller::{Bound, Verb};
use anneal_testkit::{
    Gate, HttpResponse, MODEL, Say, Script, ScriptedModel, SseStream, TestApp, eventually, text_of,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::isolation::{
    bound_keys::Kind,
    door_calls::{CALLS, Names, assert_error_object},
    foreign_doors::naming,
    foreign_sessions::session_operations,
    unfiltered::rows_of,
};

const TENANT: &str = "firm";
/// Part of every text of Bert.
const SECRET: &str = "secret";

/// A tenant, whose key that is not bound made something for Bert and his agent `b`.
struct Doors {
    app: TestApp,
    _model: ScriptedModel,
    /// `authorization` of the key that is not bound.
    whole: String,
    /// The ids of Bert's rows.
    names: Names,
    /// The id of Bert's session with his agent: his conversation.
    session: String,
}

impl Doors {
    async fn start() -> Self {
        let model = ScriptedModel::saying("The secret is safe with me, as it always was.").await;
        let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
        let whole = format!("Bearer {}", app.key(TENANT, &Verb::ALL).await.text);
        let mut doors = Self {
            app,
            _model: model,
            whole,
            names: Names::unknown(),
            session: String::new(),
        };
        let body = json!({"message": SECRET, "userId": "bert"});
        let chat = doors.app.http_client();
        let chat = chat.json("POST", "/api/agents/b/chat", &body);
        let events = SseStream::open(chat.header("authorization", &doors.whole)).await;
        let started = events.rest().await;
        let session = started[0].data["sessionId"].as_str().expect("named");
        session.clone_into(&mut doors.session);
        doors.names.conversation = format!("conv_{}", session.replace('-', ""));
        let response = json!({"input": SECRET, "conversation": doors.names.conversation});
        let whole = doors.whole.clone();
        let made = doors.post(&whole, "/v1/responses", &response).await.json();
        doors.names.response = string_of(&made, "/id");
        doors.names.item = string_of(&made, "/output/0/id");
        let message =
            json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": SECRET}]});
        let turn = json!({"id": doors.names.chat, "messages": [message], "userId": "bert"});
        doors.post(&whole, "/api/agents/b/ui", &turn).await;
        doors
    }

    /// Posts this. Returns the answer.
    async fn post(&self, authorization: &str, path: &str, body: &Value) -> HttpResponse {
        let request = self.app.http_client().json("POST", path, body);
        let made = HttpResponse::send(request.header("authorization", authorization)).await;
        assert_eq!(made.status, 200, "{path}: {made:?}");
        made
    }

    /// `authorization` of a key that is bound to this.
    async fn bound(&self, bound: Bound) -> String {
        let key = self.app.bound_key(TENANT, &Verb::ALL, bound).await;
        format!("Bearer {}", key.text)
    }

    /// A key of each kind. That of a conversation is bound to one that Anna has with the agent `a`.
    async fn keys(&self) -> Vec<(Kind, String)> {
        let body = json!({"message": "What is mine?", "userId": "anna"});
        let chat = self.app.http_client();
        let chat = chat.json("POST", "/api/agents/a/chat", &body);
        let events = SseStream::open(chat.header("authorization", &self.whole)).await;
        let events = events.rest().await;
        let session = events[0].data["sessionId"].as_str().expect("named");
        let mut keys = Vec::new();
        for kind in Kind::ALL {
            keys.push((kind, self.bound(kind.bound(session)).await));
        }
        keys
    }

    /// The rows of conversations of Bert, and of his session.
    async fn berts_rows(&self) -> Vec<String> {
        let of_bert = "select conversation_id::text from ai_conversation where user_id = 'bert'";
        let ids: Vec<String> = sqlx::query_scalar(of_bert)
            .fetch_all(&mut self.app.db().await)
            .await
            .expect("reads");
        assert_eq!(ids.len(), 2);
        let tenant = self.app.tenant(TENANT).await.0;
        let rows = rows_of(&self.app, tenant).await;
        rows.into_values()
            .flatten()
            .filter(|row| ids.iter().any(|id| row.contains(id)))
            .collect()
    }

    /// Users and agents of the conversations that have another title or text than Bert's: users in
    /// the first list, agents in the second.
    async fn owners(&self) -> (Vec<String>, Vec<String>) {
        let sql = "select user_id, agent_id from ai_conversation";
        let rows: Vec<(String, String)> = sqlx::query_as(sql)
            .fetch_all(&mut self.app.db().await)
            .await
            .expect("reads");
        rows.into_iter().filter(|(user, _)| user != "bert").unzip()
    }
}

fn string_of(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("{pointer} of {value}"))
        .to_owned()
}

#[tokio::test]
async fn every_path_of_a_session_answers_a_bound_key_as_if_what_is_foreign_were_missing() {
    let doors = Doors::start().await;
    let before = doors.berts_rows().await;
    let operations = session_operations(&doors.app, &doors.whole).await;
    assert!(operations.len() >= 10, "{operations:?}");
    for (kind, key) in doors.keys().await {
        for (method, path, body) in &operations {
            let ask = async |session: &str| {
                let path = path
                    .replace("{id}", "b")
                    .replace("{sid}", session)
                    .replace("{mid}", "1")
                    .replace("{n}", "1");
                let web = doors.app.http_client();
                let request = match body {
                    Some(body) => web.json(method, &path, body),
                    None => web.request(method, &path),
                };
                let answer = HttpResponse::send(request.header("authorization", &key)).await;
                (answer.status, answer.text.replace(session, "ID"))
            };
            let foreign = ask(&doors.session).await;
            assert_eq!(foreign.0, 404, "{kind:?} {method} {path}: {foreign:?}");
            let missing = ask(&Uuid::now_v7().to_string()).await;
            assert_eq!(foreign, missing, "{kind:?} {method} {path}");
        }
        for path in [
            "/api/agents/b/sessions",
            "/api/agents/b/sessions?userId=bert",
        ] {
            let listed = doors.app.http_client().request("GET", path);
            let listed = HttpResponse::send(listed.header("authorization", &key)).await;
            assert_eq!(listed.status, 200, "{listed:?}");
            assert_eq!(listed.json()["sessions"], json!([]), "{kind:?} {path}");
        }
    }
    assert_eq!(before, doors.berts_rows().await);
}

#[tokio::test]
async fn every_turn_of_a_bound_key_in_what_is_foreign_is_one_in_what_is_missing() {
    let doors = Doors::start().await;
    let before = doors.berts_rows().await;
    let turns = [
        json!({"message": "What was said?"}),
        json!({"regenerate": true}),
        json!({"message": "taken", "editMessageId": 1}),
        json!({"toolResults": [{"toolUseId": "a", "text": "taken"}]}),
    ];
    for (kind, key) in doors.keys().await {
        for turn in &turns {
            let ask = async |session: &str| {
                let mut body = turn.clone();
                body["sessionId"] = json!(session);
                let web = doors.app.http_client();
                let request = web.json("POST", "/api/agents/b/chat", &body);
                let answer = HttpResponse::send(request.header("authorization", &key)).await;
                (answer.status, answer.text.replace(session, "ID"))
            };
            let foreign = ask(&doors.session).await;
            assert!(foreign.0 >= 400, "{kind:?} {turn}: {foreign:?}");
            let missing = ask(&Uuid::now_v7().to_string()).await;
            assert_eq!(foreign, missing, "{kind:?} {turn}");
        }
    }
    assert_eq!(before, doors.berts_rows().await);
}

#[tokio::test]
async fn every_path_of_a_door_answers_a_bound_key_as_if_what_is_foreign_were_missing() {
    let doors = Doors::start().await;
    let before = doors.berts_rows().await;
    let missing = Names::unknown();
    for (kind, key) in doors.keys().await {
        for call in CALLS.iter().filter(|call| call.names_something()) {
            let ask = async |names: &Names| {
                // The agent in a path of chats is the one that has Bert's.
                let path = call.path_of(names).replace("/agents/a/", "/agents/b/");
                let web = doors.app.http_client();
                let request = match (call.body)() {
                    Value::Null => web.request(call.method, &path),
                    mut body => {
                        if call.is_of_ui() {
                            body["id"] = json!(names.chat);
                        }
                        web.json(call.method, &path, &body)
                    }
                };
                let answer = HttpResponse::send(request.header("authorization", &key)).await;
                (answer.status, answer.text)
            };
            let foreign = ask(&doors.names).await;
            let what = format!("{kind:?} {} {}: {foreign:?}", call.method, call.path);
            assert!(!foreign.1.contains(SECRET) || call.is_of_ui(), "{what}");
            if call.method == "POST" && call.is_of_ui() {
                // A bound user begins a chat of its own; nobody else may begin one of this agent.
                let statuses = match kind {
                    Kind::User => 200,
                    Kind::Agent => 400,
                    Kind::Conversation => 403,
                };
                assert_eq!(foreign.0, statuses, "{what}");
                assert_eq!(ask(&missing).await.0, statuses, "{what}");
                continue;
            }
            let expected = if call.is_of_ui() { 204 } else { 404 };
            assert_eq!(foreign.0, expected, "{what}");
            let missed = ask(&missing).await;
            let hidden = missing.hidden_in(&missed.1);
            assert_eq!(
                (foreign.0, doors.names.hidden_in(&foreign.1)),
                (missed.0, hidden),
                "{what}"
            );
        }
    }
    assert_eq!(before, doors.berts_rows().await);
}

#[tokio::test]
async fn every_body_of_a_door_answers_a_bound_key_as_if_what_it_names_were_missing() {
    let doors = Doors::start().await;
    let before = doors.berts_rows().await;
    let missing = Names::unknown();
    for (kind, key) in doors.keys().await {
        for (foreign, missing_one) in naming(&doors.names).iter().zip(naming(&missing)) {
            let path = &foreign.path;
            let mut answers = Vec::new();
            for (naming, names) in [(foreign, &doors.names), (&missing_one, &missing)] {
                let body = naming.body.as_ref().expect("a body");
                let mut request = doors.app.http_client().json("POST", path, body);
                for (name, value) in &naming.headers {
                    request = request.header(*name, value);
                }
                let answer = HttpResponse::send(request.header("authorization", &key)).await;
                assert_error_object(&answer, &format!("{kind:?} {path} {body}: {answer:?}"));
                let digits = names.conversation.replace("conv_", "");
                let text = names.hidden_in(&answer.text).replace(&digits, "DIGITS");
                answers.push((answer.status, text));
            }
            assert_eq!(answers[0].0, 404, "{kind:?} {path}: {answers:?}");
            assert_eq!(answers[0], answers[1], "{kind:?} {path}");
        }
    }
    assert_eq!(before, doors.berts_rows().await);
}

/// Posts everything that creates a conversation, to the agent `a` where a path names one. Returns
/// path and status.
async fn create_everything(doors: &Doors, key: &str) -> Vec<(&'static str, u16)> {
    let message = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "Mine."}]});
    let question = json!([{"role": "user", "content": "Mine."}]);
    let creations = [
        ("/v1/conversations", json!({})),
        ("/v1/responses", json!({"input": "Mine."})),
        (
            "/v1/chat/completions",
            json!({"model": MODEL, "messages": question, "store": true}),
        ),
        (
            "/api/agents/a/ui",
            json!({"id": "chat", "messages": [message]}),
        ),
        ("/api/agents/a/chat", json!({"message": "Mine."})),
    ];
    let mut answers = Vec::new();
    for (path, body) in creations {
        let request = doors.app.http_client().json("POST", path, &body);
        let answer = HttpResponse::send(request.header("authorization", key)).await;
        answers.push((path, answer.status));
    }
    answers
}

#[tokio::test]
async fn what_a_bound_key_creates_at_any_door_is_its_own() {
    for kind in Kind::ALL {
        let doors = Doors::start().await;
        let key = doors.bound(kind.bound(&doors.session)).await;
        let answers = create_everything(&doors, &key).await;
        let status = if kind == Kind::Conversation { 403 } else { 200 };
        assert!(
            answers.iter().all(|(_, answered)| *answered == status),
            "{kind:?}: {answers:?}"
        );
        let (users, agents) = doors.owners().await;
        match kind {
            Kind::User => assert_eq!(users, vec!["anna"; answers.len()]),
            Kind::Agent => assert_eq!(agents, vec!["a"; answers.len()]),
            Kind::Conversation => assert_eq!(users, [""; 0]),
        }
    }
}

#[tokio::test]
async fn a_chat_of_a_bound_user_is_another_one_than_that_of_the_tenant_with_the_same_id() {
    let doors = Doors::start().await;
    let key = doors.bound(Kind::User.bound("")).await;
    let message = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": "Mine."}]});
    let turn = json!({"id": doors.names.chat, "messages": [message]});
    let answer = doors.post(&key, "/api/agents/b/ui", &turn).await;
    assert!(answer.text.contains("safe with me"), "{answer:?}");
    let (users, _) = doors.owners().await;
    assert_eq!(users, ["anna"]);
    // The message with this id has other content in Bert's chat.
    let request = doors.app.http_client();
    let request = request.json("POST", "/api/agents/b/ui", &turn);
    let refused = HttpResponse::send(request.header("authorization", &doors.whole)).await;
    assert_eq!(refused.status, 409, "{refused:?}");
}

#[tokio::test]
async fn a_running_turn_or_response_that_is_foreign_to_a_bound_key_goes_on() {
    let gate = Gate::default();
    let behind = gate.clone();
    let model = ScriptedModel::start(move |request| {
        Script::says(request, [Say::text("Whole.")]).after(&behind)
    })
    .await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let whole = format!("Bearer {}", app.key(TENANT, &Verb::ALL).await.text);
    let web = app.http_client();
    let body = json!({"message": "What is it?", "requestId": "r", "userId": "bert"});
    let turn = web.json("POST", "/api/agents/b/chat", &body);
    let mut events = SseStream::open(turn.header("authorization", &whole)).await;
    let started = events.take(1).await;
    let session = started[0].data["sessionId"].as_str().expect("named");
    let body = json!({"input": SECRET, "background": true});
    let begun = web.json("POST", "/v1/responses", &body);
    let begun = HttpResponse::send(begun.header("authorization", &whole)).await;
    let response = string_of(&begun.json(), "/id");
    model.wait_for_calls(2).await;
    for kind in Kind::ALL {
        let bound = kind.bound(&Uuid::now_v7().to_string());
        let key = app.bound_key(TENANT, &Verb::ALL, bound).await.text;
        let key = format!("Bearer {key}");
        for (method, path) in [
            ("DELETE", format!("/api/agents/b/sessions/{session}/turn")),
            (
                "DELETE",
                format!("/api/agents/b/sessions/{session}/turn?requestId=r"),
            ),
            (
                "DELETE",
                format!("/api/agents/b/sessions/{session}/turn?keep=false"),
            ),
            ("GET", format!("/v1/responses/{response}?stream=true")),
            ("POST", format!("/v1/responses/{response}/cancel")),
            ("DELETE", format!("/v1/responses/{response}")),
        ] {
            let request = web.request(method, &path).header("authorization", &key);
            let answer = HttpResponse::send(request).await;
            assert_eq!(answer.status, 404, "{kind:?} {method} {path}: {answer:?}");
        }
        // The same turn, repeated by a bound key, is not the one that runs.
        let body = json!({"message": "What is it?", "requestId": "r", "sessionId": session});
        let turn = web.json("POST", "/api/agents/b/chat", &body);
        let answer = HttpResponse::send(turn.header("authorization", &key)).await;
        assert_eq!(answer.status, 404, "{kind:?}: {answer:?}");
    }
    gate.open_for_ever();
    let rest = events.rest().await;
    assert_eq!(text_of(&rest), "Whole.");
    let path = format!("/v1/responses/{response}");
    eventually("the response is complete", async || {
        let request = web.request("GET", &path).header("authorization", &whole);
        HttpResponse::send(request).await.json()["status"] == "completed"
    })
    .await;
}
