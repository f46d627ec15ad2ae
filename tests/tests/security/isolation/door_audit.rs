//! Calls of the doors of other protocols that delete are in the audit log with their caller, and
//! neither that log nor that of a failed statement contains content.

use anneal_core::caller::Verb;
use anneal_testkit::{
    AnnealBinary, Folder, HttpClient, HttpResponse, MODEL, Process, ScriptedModel, TestApp,
};
use serde_json::{Value, json};

use crate::isolation::{
    BINARY,
    door_calls::{CALLS, Names, assert_error_object},
};

/// Part of every text that no log may contain.
const SECRET: &str = "xylophone";

/// A server process with API keys whose model answers with [`SECRET`].
struct LoggedServer {
    app: TestApp,
    process: Process,
    web: HttpClient,
    authorization: String,
    caller: String,
    _model: ScriptedModel,
    _folder: Folder,
}

impl LoggedServer {
    async fn start() -> Self {
        let model = ScriptedModel::saying(&format!("The {SECRET}.")).await;
        let (app, folder) = (TestApp::start().await, Folder::new());
        folder.file("anneal.toml", &model.server_settings());
        let anneal = AnnealBinary::new(BINARY, &folder, &app.url);
        let started = anneal.try_server(&["auth.api_keys=true"]).await;
        let (process, _) = started.unwrap_or_else(|ended| panic!("{:#?}", ended.lines()));
        let (web, key) = (
            process.http_client().await,
            app.key("anna", &Verb::ALL).await,
        );
        Self {
            authorization: format!("Bearer {}", key.text),
            caller: format!("key:{}", key.id),
            app,
            process,
            web,
            _model: model,
            _folder: folder,
        }
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> HttpResponse {
        let request = match body {
            Some(body) => self.web.json(method, path, body),
            None => self.web.request(method, path),
        };
        HttpResponse::send(request.header("authorization", &self.authorization)).await
    }

    /// Posts this body. Returns the id of what is made.
    async fn make(&self, path: &str, body: &Value) -> (String, Value) {
        let made = self.send("POST", path, Some(body)).await;
        assert_eq!(made.status, 200, "{made:?}");
        let made = made.json();
        (made["id"].as_str().expect("an id").to_owned(), made)
    }

    /// Asserts that the next line of the audit log with these words names the caller.
    async fn assert_in_audit_log(&self, words: &str) {
        let line = self.process.wait_for_line(words).await;
        let line: Value = serde_json::from_str(&line).expect("is JSON");
        assert_eq!(
            (&line["target"], &line["caller"]),
            (&json!("audit"), &json!(self.caller)),
            "{line}"
        );
    }

    fn assert_no_secret(&self) {
        let lines = self.process.lines().join("\n");
        assert!(!lines.contains(SECRET), "{lines}");
    }
}

#[tokio::test]
async fn deletions_over_a_door_are_in_the_audit_log_without_content() {
    let server = LoggedServer::start().await;
    let item = json!({"role": "user", "content": SECRET});
    let body = json!({"items": [item], "metadata": {"k": SECRET}});
    let (conversation, _) = server.make("/v1/conversations", &body).await;
    let path = format!("/v1/conversations/{conversation}");
    let body = json!({"model": MODEL, "input": SECRET, "conversation": conversation});
    let (_, response) = server.make("/v1/responses", &body).await;
    let output = response["output"][0]["id"].as_str().expect("an item");
    let deleted = server
        .send("DELETE", &format!("{path}/items/{output}"), None)
        .await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    server
        .assert_in_audit_log("withdraw_messages ended with OK")
        .await;
    assert_eq!(server.send("DELETE", &path, None).await.status, 200);
    server
        .assert_in_audit_log("delete_conversation ended with OK")
        .await;
    let refused = server.send("DELETE", &path, None).await;
    assert_eq!(refused.status, 404);
    server
        .assert_in_audit_log("delete_conversation ended with NOT_FOUND")
        .await;
    server.assert_no_secret();
}

#[tokio::test]
async fn a_response_that_is_deleted_is_in_the_audit_log_also_if_its_messages_stay() {
    let server = LoggedServer::start().await;
    let (conversation, _) = server.make("/v1/conversations", &json!({})).await;
    let body = json!({"model": MODEL, "input": SECRET, "conversation": conversation});
    let (response, _) = server.make("/v1/responses", &body).await;
    let deleted = server
        .send("DELETE", &format!("/v1/responses/{response}"), None)
        .await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    // A later call whose line is certain: the one of the deletion comes before it.
    let path = format!("/v1/conversations/{conversation}");
    assert_eq!(server.send("DELETE", &path, None).await.status, 200);
    server
        .assert_in_audit_log("delete_conversation ended with OK")
        .await;
    let lines = server.process.lines();
    let audited = lines
        .iter()
        .filter(|line| line.contains("\"target\":\"audit\"") && line.contains(&server.caller));
    assert_eq!(audited.count(), 2, "{lines:#?}");
    server.assert_no_secret();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_statement_of_a_door_logs_no_content_and_shows_none() {
    let server = LoggedServer::start().await;
    // PostgreSQL's error quotes the text that is not JSON.
    let failing_check = "alter table ai_message add check ((content::text || ' no JSON')::json is not null) not valid";
    let failing_check = sqlx::raw_sql(failing_check);
    failing_check
        .execute(&mut server.app.db().await)
        .await
        .expect("alters");
    let item = json!({"role": "user", "content": SECRET});
    for (path, body) in [
        ("/v1/conversations", json!({"items": [item]})),
        ("/v1/responses", json!({"model": MODEL, "input": SECRET})),
        (
            "/v1/chat/completions",
            json!({"model": MODEL, "store": true, "messages": [item]}),
        ),
    ] {
        let answer = server.send("POST", path, Some(&body)).await;
        assert_eq!(answer.status, 500, "{path}: {answer:?}");
        assert_error_object(&answer, path);
        assert!(!answer.text.contains(SECRET), "{path}: {answer:?}");
        let code = &answer.json()["error"]["code"];
        assert_eq!(code, "internal", "{path}: {answer:?}");
    }
    let message = json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": SECRET}]});
    let turn = json!({"id": "c", "messages": [message]});
    let answer = server.send("POST", "/api/agents/a/ui", Some(&turn)).await;
    assert!(
        answer.status == 500 && !answer.text.contains(SECRET),
        "{answer:?}"
    );
    server
        .process
        .wait_for_line("a call failed with an internal error")
        .await;
    server.assert_no_secret();
}

#[tokio::test]
async fn refusals_of_a_door_for_a_missing_verb_are_in_the_audit_log() {
    let server = LoggedServer::start().await;
    for call in CALLS.iter().filter(|call| !call.verbs.is_empty()) {
        let nothing = server.app.key("anna", &[Verb::Operator]).await;
        let authorization = format!("Bearer {}", nothing.text);
        let request = call.request(&server.web, &Names::unknown(), &authorization);
        call.assert_shape(&HttpResponse::send(request).await, 403);
        let line = server.process.wait_for_line(&nothing.id.to_string()).await;
        assert!(
            line.contains("\"target\":\"audit\"") && line.contains("verb_missing"),
            "{} {}: {line}",
            call.method,
            call.path
        );
    }
}
