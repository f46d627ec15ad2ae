//! Earlier answers to a question are listed and chosen over HTTP, as over gRPC.

use anneal_testkit::{
    HttpClient, HttpResponse, MODEL, Say, Script, ScriptedModel, TestApp, TestConversation, pb,
};
use serde_json::{Value, json};

/// An app whose model answers "Answer 0.", "Answer 1." and so on.
async fn start() -> (TestApp, ScriptedModel) {
    let model = ScriptedModel::start(|request| {
        Script::says(request, [Say::text(&format!("Answer {}.", request.nth))])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    (app, model)
}

/// A session of agent `a` with one question, which was answered twice.
async fn create_session(app: &TestApp) -> TestConversation<'_> {
    let conversation = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "a".into(),
            ..Default::default()
        })
        .await;
    conversation.chat("Why?").await.done();
    conversation.regenerate().await.done();
    conversation
}

/// POST of this body to the choice of an answer to message 1.
async fn choose(web: &HttpClient, session: &str, number: &str, body: &Value) -> HttpResponse {
    let path = format!("/api/agents/a/sessions/{session}/messages/1/alternatives/{number}/choose");
    HttpResponse::send(web.json("POST", &path, body)).await
}

#[tokio::test]
async fn answers_are_listed_and_one_is_chosen() {
    let (app, _model) = start().await;
    let (conversation, web) = (create_session(&app).await, app.http_client());
    let path = format!(
        "/api/agents/a/sessions/{}/messages/1/alternatives",
        conversation.id
    );
    let listed = web.get(&path).await;
    assert_eq!(listed.status, 200, "{listed:?}");
    let alternatives = listed.json()["alternatives"].clone();
    let answer = |index: usize, message: i64, current: bool| {
        json!({
            "number": index + 1,
            "questionMessageId": 1,
            "questionVersion": 1,
            "messages": [{"firstMessageId": message, "lastMessageId": message}],
            "current": current,
            "stopped": false,
            "model": MODEL,
            "createdAt": alternatives[index]["createdAt"],
            "text": format!("Answer {index}."),
        })
    };
    assert_eq!(
        alternatives,
        json!([answer(0, 2, false), answer(1, 3, true)])
    );
    assert!(alternatives[0]["createdAt"].as_i64() > Some(0));
    let body = json!({"requestId": "r"});
    let chosen = choose(&web, &conversation.id, "1", &body).await;
    assert_eq!(chosen.status, 200, "{chosen:?}");
    assert_eq!(
        chosen.json()["changed"],
        json!([{"firstMessageId": 2, "lastMessageId": 2}])
    );
    let again = choose(&web, &conversation.id, "1", &body).await.json();
    assert_eq!(again["replayed"], true);
    let session = web
        .get(&format!("/api/agents/a/sessions/{}", conversation.id))
        .await;
    assert_eq!(session.header("etag"), chosen.header("etag"));
    let texts: Vec<Value> = session.json()["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .map(|message| message["content"][0]["text"].clone())
        .collect();
    assert_eq!(texts, [json!("Why?"), json!("Answer 0.")]);
}

#[tokio::test]
async fn a_choice_that_cannot_be_made_is_a_problem() {
    let (app, _model) = start().await;
    let (conversation, web) = (create_session(&app).await, app.http_client());
    for (number, status, reason) in [
        ("9", 404, "MESSAGE_NOT_FOUND"),
        ("0", 400, "INVALID_FIELD"),
        ("x", 400, "INVALID_FIELD"),
    ] {
        let refused = choose(&web, &conversation.id, number, &json!({})).await;
        refused.assert_problem(status, reason, "number");
    }
    let unknown = format!(
        "/api/agents/a/sessions/{}/messages/99/alternatives/1/choose",
        conversation.id
    );
    HttpResponse::send(web.json("POST", &unknown, &json!({})))
        .await
        .assert_problem(404, "MESSAGE_NOT_FOUND", "messageId");
    let refused = choose(
        &web,
        &conversation.id,
        "1",
        &json!({"expectedLastMessageId": 1}),
    )
    .await;
    refused.assert_problem(409, "LAST_MESSAGE_MISMATCH", "");
    let path = format!(
        "/api/agents/b/sessions/{}/messages/1/alternatives",
        conversation.id
    );
    let foreign = web.get(&path).await;
    foreign.assert_problem(404, "CONVERSATION_NOT_FOUND", "");
}
