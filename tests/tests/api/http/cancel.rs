//! Turns are stopped over HTTP.

use anneal_testkit::{HttpResponse, Say, Script, ScriptedModel, TestApp, text_of};
use serde_json::{Value, json};

use crate::http::session_of;

async fn stop(app: &TestApp, agent: &str, session: &str, query: &str) -> HttpResponse {
    let path = format!("/api/agents/{agent}/sessions/{session}/turn{query}");
    HttpResponse::send(app.http_client().request("DELETE", &path)).await
}

/// What a stop answers if the answer of the turn `r` has become this message; 0: none has.
fn stopped(outcome: &str, answer: i64) -> Value {
    json!({"outcome": outcome, "requestId": "r", "answerMessageId": answer})
}

#[tokio::test]
async fn what_has_come_of_a_stopped_answer_is_kept_or_dropped() {
    // The role is the first event, the text is the second.
    let model =
        ScriptedModel::start(|request| Script::says(request, [Say::text("Once")]).hanging_after(2))
            .await;
    let app = TestApp::with_scripted_model_without_timeouts(&model).await;
    for (query, outcome, answer, kept) in [
        ("?keep=true", "kept", 2, &[false, true][..]),
        ("?requestId=r", "kept", 2, &[false, true]),
        ("?requestId=r&keep=false", "dropped", 0, &[false]),
    ] {
        let body = json!({"message": "Tell me.", "requestId": "r"});
        let agent = format!("agent-{}", model.requests().len());
        let mut events = app.http_client().open_chat(&agent, &body).await;
        let mut received = events.take(2).await;
        assert_eq!(text_of(&received), "Once");
        let session = session_of(&received);
        let answered = stop(&app, &agent, &session, query).await;
        assert_eq!(
            (answered.status, answered.json()),
            (200, stopped(outcome, answer)),
            "{query}"
        );
        received.extend(events.rest().await);
        let done = &received.last().expect("there are events").data;
        assert_eq!(
            (
                &done["type"],
                &done["stopped"],
                &done["answerMessageId"],
                &done["stopReason"]
            ),
            (
                &json!("done"),
                &json!(true),
                &json!(answer),
                &json!("stopped")
            ),
            "{query}: {done}"
        );
        // A reader who was away gets the same end.
        let web = app.http_client();
        let again = web.resume(&agent, &received[0].id, None).await;
        let again = again.rest().await;
        let text = if answer > 0 { "Once" } else { "" };
        let done = &again.last().expect("there are events").data;
        assert_eq!(
            (
                text_of(&again).as_str(),
                &done["stopped"],
                &done["answerMessageId"],
                &done["replayed"]
            ),
            (text, &json!(true), &json!(answer), &json!(true)),
            "{query}: {done}"
        );
        let history = app
            .http_client()
            .get(&format!("/api/agents/{agent}/sessions/{session}"))
            .await
            .json();
        let flags: Vec<bool> = history["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|message| message["stopped"].as_bool().unwrap_or_default())
            .collect();
        assert_eq!(flags, kept, "{query}");
        let late = stop(&app, &agent, &session, "?requestId=r").await;
        assert_eq!(late.json(), stopped(outcome, answer), "it is idempotent");
    }
}

#[tokio::test]
async fn a_turn_that_does_not_run_is_not_stopped() {
    let model = ScriptedModel::saying("Once.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let body = json!({"message": "Tell me.", "requestId": "r"});
    let received = app.http_client().chat("a", &body).await;
    let session = session_of(&received);
    let answered = stop(&app, "a", &session, "?requestId=r").await;
    assert_eq!(answered.json(), stopped("answered", 2));
    let none = stop(&app, "a", &session, "").await;
    assert_eq!(
        none.json(),
        json!({"outcome": "not_running", "requestId": "", "answerMessageId": 0})
    );
    for (agent, session) in [
        ("b", session.as_str()),
        ("a", "00000000-0000-4000-8000-000000000000"),
    ] {
        stop(&app, agent, session, "")
            .await
            .assert_problem(404, "CONVERSATION_NOT_FOUND", "");
    }
    let waited = stop(&app, "a", &session, "?requestId=r&wait=30").await;
    assert_eq!(waited.json(), stopped("answered", 2));
    stop(&app, "a", &session, "?wait=31")
        .await
        .assert_problem(400, "LIMIT_EXCEEDED", "wait");
    stop(&app, "a", &session, "?requestId=%00")
        .await
        .assert_problem(400, "INVALID_FIELD", "requestId");
    stop(&app, "a", &session, "?keep=perhaps")
        .await
        .assert_problem(400, "INVALID_FIELD", "keep");
}
