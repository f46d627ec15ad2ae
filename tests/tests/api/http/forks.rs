//! Sessions are forked over HTTP, as conversations are over gRPC.

use anneal_testkit::{HttpClient, HttpResponse, TestApp, TestConversation, pb};
use serde_json::{Value, json};

/// A session of agent `a` with two turns.
async fn create_session(app: &TestApp) -> TestConversation<'_> {
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "a".into(),
            user_id: "anna".into(),
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            ..Default::default()
        })
        .await;
    conversation.turn("One?", "One.").await;
    conversation.turn("Two?", "Two.").await;
    conversation
}

/// POST …/fork of this session of agent `agent`.
async fn fork(web: &HttpClient, agent: &str, session: &str, body: &Value) -> HttpResponse {
    let path = format!("/api/agents/{agent}/sessions/{session}/fork");
    HttpResponse::send(web.json("POST", &path, body)).await
}

#[tokio::test]
async fn a_session_is_forked_at_a_message() {
    let app = TestApp::start().await;
    let (source, web) = (create_session(&app).await, app.http_client());
    let body = json!({"messageId": 3, "title": "Another way", "requestId": "r"});
    let forked = fork(&web, "a", &source.id, &body).await;
    assert_eq!(forked.status, 200, "{forked:?}");
    let session = forked.json();
    let id = session["id"].as_str().expect("an id").to_owned();
    assert_ne!(id, source.id);
    let figures = [
        "agentId",
        "userId",
        "title",
        "messageCount",
        "metadata",
        "forkedFrom",
        "forkedMessageId",
    ]
    .map(|name| &session[name]);
    let expected = [
        json!("a"),
        json!("anna"),
        json!("Another way"),
        json!(3),
        json!({"k": "v"}),
        json!(source.id),
        json!(3),
    ];
    assert_eq!(figures, expected.each_ref());
    let history = web.get(&format!("/api/agents/a/sessions/{id}")).await;
    assert_eq!(history.header("etag"), forked.header("etag"));
    let messages = history.json()["messages"].clone();
    assert_eq!(messages.as_array().map(Vec::len), Some(3), "{messages}");
    let again = fork(&web, "a", &source.id, &body).await;
    assert_eq!(again.json(), session);
    let listed = web.get("/api/agents/a/sessions").await.json();
    let origins: Vec<&Value> = listed["sessions"]
        .as_array()
        .expect("sessions")
        .iter()
        .map(|session| &session["forkedFrom"])
        .collect();
    assert_eq!(origins, [&json!(source.id), &json!("")]);
}

#[tokio::test]
async fn a_fork_without_a_body_takes_over_every_message() {
    let app = TestApp::start().await;
    let (source, web) = (create_session(&app).await, app.http_client());
    let path = format!("/api/agents/a/sessions/{}/fork", source.id);
    let forked = HttpResponse::send(web.request("POST", &path)).await.json();
    assert_eq!(
        (&forked["messageCount"], &forked["title"]),
        (&json!(4), &json!("One?"))
    );
}

#[tokio::test]
async fn refused_forks_name_the_field_of_the_body() {
    let app = TestApp::start().await;
    let (source, web) = (create_session(&app).await, app.http_client());
    let unknown = fork(&web, "a", &source.id, &json!({"messageId": 5})).await;
    unknown.assert_problem(404, "MESSAGE_NOT_FOUND", "messageId");
    let negative = fork(&web, "a", &source.id, &json!({"messageId": -1})).await;
    negative.assert_problem(400, "INVALID_FIELD", "messageId");
    let long = json!({"title": "t".repeat(513)});
    let long = fork(&web, "a", &source.id, &long).await;
    long.assert_problem(400, "LIMIT_EXCEEDED", "title");
    let foreign = fork(&web, "b", &source.id, &json!({})).await;
    foreign.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    let first = fork(&web, "a", &source.id, &json!({"requestId": "r"})).await;
    let other = json!({"requestId": "r", "messageId": 1});
    let other = fork(&web, "a", &source.id, &other).await;
    other.assert_problem(409, "REQUEST_ID_REUSED", "");
    assert_eq!(other.json()["facts"]["conversationId"], first.json()["id"]);
}
