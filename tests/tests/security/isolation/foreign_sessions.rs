//! Over HTTP, every path of `/openapi.json` that names a session answers another tenant's session
//! like a missing one.

use anneal_core::caller::Verb;
use anneal_server::{AuthSettings, ServerSettings};
use anneal_testkit::{
    Gate, HttpResponse, MODEL, Say, Script, ScriptedModel, SseStream, TestApp, pb, text_of, user,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    message_service_client::MessageServiceClient,
};
use serde_json::{Value, json};
use uuid::Uuid;

struct TwoTenants {
    app: TestApp,
    /// `authorization` of Anna.
    anna: String,
    /// `authorization` of Bert.
    bert: String,
    /// Bert's session with his agent `a`.
    foreign: String,
}

async fn start_two_tenants() -> TwoTenants {
    let app = TestApp::with_auth(
        ServerSettings::default(),
        AuthSettings {
            api_keys: true,
            ..Default::default()
        },
    )
    .await;
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
    let channel = app.authorized_channel(&bert);
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        title: "secret".into(),
        ..Default::default()
    };
    let made = ConversationServiceClient::new(channel.clone())
        .create_conversation(ask)
        .await
        .expect("creates");
    let foreign = made.into_inner().conversation_id;
    let messages = vec![user("secret")];
    let ask = pb::AppendMessagesRequest {
        conversation_id: foreign.clone(),
        messages,
        ..Default::default()
    };
    MessageServiceClient::new(channel)
        .append_messages(ask)
        .await
        .expect("appends");
    TwoTenants {
        app,
        anna,
        bert,
        foreign,
    }
}

impl TwoTenants {
    async fn send(
        &self,
        credential: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let web = self.app.http_client();
        let request = match body {
            Some(body) => web.json(method, path, body),
            None => web.request(method, path),
        };
        HttpResponse::send(request.header("authorization", credential)).await
    }
}

/// Method, path and body of every operation on a session.
pub(crate) async fn session_operations(
    app: &TestApp,
    credential: &str,
) -> Vec<(String, String, Option<Value>)> {
    let described = app
        .http_client()
        .request("GET", "/openapi.json")
        .header("authorization", credential);
    let described = HttpResponse::send(described).await.json();
    let mut operations = Vec::new();
    for (path, methods) in described["paths"].as_object().expect("paths") {
        for (method, operation) in methods
            .as_object()
            .expect("methods")
            .iter()
            .filter(|_| path.contains("{sid}"))
        {
            let body = operation
                .get("requestBody")
                .map(|_| valid_body(method, path));
            operations.push((method.to_uppercase(), path.clone(), body));
        }
    }
    operations
}

/// A valid body of the operation with this method and path that has one.
fn valid_body(method: &str, path: &str) -> Value {
    match (method, path.rsplit('/').next()) {
        ("post", Some("restore")) => json!({"messageIds": [1]}),
        ("post", Some("rewind")) => json!({"afterMessageId": 0}),
        ("post", Some("fork")) => json!({"messageId": 1}),
        ("post", Some("choose")) => json!({}),
        ("patch", Some("{mid}")) => json!({"content": [{"type": "text", "text": "taken"}]}),
        _ => json!({"title": "taken"}),
    }
}

#[tokio::test]
async fn a_foreign_session_answers_every_path_exactly_as_a_missing_one() {
    let tenants = start_two_tenants().await;
    let operations = session_operations(&tenants.app, &tenants.anna).await;
    assert!(operations.len() >= 4, "{operations:?}");
    for (method, path, body) in &operations {
        let of = |id: &str| {
            path.replace("{id}", "a")
                .replace("{sid}", id)
                .replace("{mid}", "1")
                .replace("{n}", "1")
        };
        let missing = Uuid::now_v7().to_string();
        let foreign_answer = tenants
            .send(&tenants.anna, method, &of(&tenants.foreign), body.as_ref())
            .await;
        let missing_answer = tenants
            .send(&tenants.anna, method, &of(&missing), body.as_ref())
            .await;
        assert_eq!(
            foreign_answer.status, 404,
            "{method} {path}: {foreign_answer:?}"
        );
        let text = foreign_answer.text.replace(&tenants.foreign, "ID");
        assert_eq!(
            (foreign_answer.status, text),
            (
                missing_answer.status,
                missing_answer.text.replace(&missing, "ID")
            ),
            "{method} {path}"
        );
    }
    let chat = "/api/agents/a/chat";
    for turn in [
        json!({"message": "What was said?"}),
        json!({"regenerate": true}),
        json!({"message": "taken", "editMessageId": 1}),
        json!({"toolResults": [{"toolUseId": "a", "text": "taken"}]}),
    ] {
        let of = |id: &str| {
            let mut body = turn.clone();
            body["sessionId"] = json!(id);
            body
        };
        let missing = Uuid::now_v7().to_string();
        let foreign_answer = tenants
            .send(&tenants.anna, "POST", chat, Some(&of(&tenants.foreign)))
            .await;
        let missing_answer = tenants
            .send(&tenants.anna, "POST", chat, Some(&of(&missing)))
            .await;
        assert_eq!(
            foreign_answer.text.replace(&tenants.foreign, "ID"),
            missing_answer.text.replace(&missing, "ID")
        );
        assert!(
            foreign_answer.status >= 400 && foreign_answer.status == missing_answer.status,
            "{turn}: {foreign_answer:?}"
        );
    }
    let listed = tenants
        .send(&tenants.anna, "GET", "/api/agents/a/sessions", None)
        .await;
    assert!(
        listed.status == 200 && !listed.text.contains(&tenants.foreign),
        "{listed:?}"
    );
    // The session is unchanged for its owner.
    let unchanged = tenants
        .send(
            &tenants.bert,
            "GET",
            &format!("/api/agents/a/sessions/{}", tenants.foreign),
            None,
        )
        .await;
    assert!(
        unchanged.status == 200
            && unchanged.text.contains("secret")
            && !unchanged.text.contains("taken"),
        "{unchanged:?}"
    );
}

#[tokio::test]
async fn a_running_turn_of_another_tenant_is_not_stopped() {
    let gate = Gate::default();
    let model = ScriptedModel::start({
        let gate = gate.clone();
        move |request| Script::says(request, [Say::text("Whole.")]).after(&gate)
    })
    .await;
    let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
    let anna = format!("Bearer {}", app.key("anna", &Verb::ALL).await.text);
    let bert = format!("Bearer {}", app.key("bert", &Verb::ALL).await.text);
    let web = app.http_client();
    let body = json!({"message": "What is secret?", "requestId": "r"});
    let turn = web.json("POST", "/api/agents/a/chat", &body);
    let mut events = SseStream::open(turn.header("authorization", &bert)).await;
    let started = events.take(1).await;
    let session = started[0].data["sessionId"].as_str().expect("named");
    model.wait_for_calls(1).await;
    for query in ["", "?requestId=r", "?keep=false"] {
        let path = format!("/api/agents/a/sessions/{session}/turn{query}");
        let stop = web.request("DELETE", &path);
        HttpResponse::send(stop.header("authorization", &anna))
            .await
            .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    }
    gate.open_for_ever();
    let rest = events.rest().await;
    assert_eq!(text_of(&rest), "Whole.");
    let done = &rest.last().expect("there are events").data;
    assert_eq!((&done["type"], done.get("stopped")), (&json!("done"), None));
}
