//! Turns over HTTP that another model answers, that expect a newest message, or that keep the
//! provider's cache warm.

use anneal_core::model::Models;
use anneal_llm::provider::Providers;
use anneal_testkit::{HttpResponse, Say, Script, ScriptedModel, SseEvent, TestApp, text_of};
use serde_json::{Value, json};

use crate::http::{CHAT, session_of};

/// Settings of the models `a` and `b`.
fn settings(a: &ScriptedModel, b: &ScriptedModel) -> (Providers, Models) {
    let providers = json!({
        "one": {"api": "openai", "url": a.url()},
        "two": {"api": "openai", "url": b.url()},
    });
    let models = json!({
        "a": {"provider": "one", "window_tokens": 8_192},
        "b": {"provider": "two", "window_tokens": 8_192},
    });
    (
        serde_json::from_value(providers).expect("settings"),
        serde_json::from_value(models).expect("settings"),
    )
}

#[tokio::test]
async fn done_names_the_models_that_did_not_answer_and_the_use_of_the_cache() {
    let a = ScriptedModel::start(|_| Script::status(500, &[], "{}")).await;
    let b = ScriptedModel::saying("From b.").await;
    let app = TestApp::with_models(settings(&a, &b), "b").await;
    let web = app.http_client();
    let body = json!({"message": "Anybody?", "model": "a", "fallbackModels": ["b"]});
    let received = web.chat("x", &body).await;
    let done = &received.last().expect("there are events").data;
    assert_eq!(
        (text_of(&received).as_str(), &done["model"]),
        ("From b.", &json!("b"))
    );
    assert_eq!(
        done["fallbacks"],
        json!([{"model": "a", "reason": "MODEL_UNAVAILABLE"}])
    );
    let cache = &done["cache"];
    assert_eq!(
        (
            &cache["state"],
            &cache["expectedTokens"],
            &cache["breakReason"]
        ),
        (&json!("nothing_expected"), &json!(0), &json!("model")),
        "{done}"
    );
    assert!(
        cache["freshTokens"].as_u64().is_some_and(|fresh| fresh > 0),
        "{done}"
    );
    let direct = web.chat("x", &json!({"message": "And you?"})).await;
    let done = &direct.last().expect("there are events").data;
    assert_eq!((&done["model"], done.get("fallbacks")), (&json!("b"), None));
    assert_eq!((a.requests().len(), b.requests().len()), (1, 2));
}

#[tokio::test]
async fn a_turn_is_refused_unless_the_newest_message_is_the_expected_one() {
    let model = ScriptedModel::start(|request| {
        Script::says(request, [Say::text(&format!("{}.", request.nth + 1))])
    })
    .await;
    let app = TestApp::with_scripted_model(&model).await;
    let web = app.http_client();
    let session = session_of(&web.chat("a", &json!({"message": "One?"})).await);
    let turns = [
        json!({"message": "Two?"}),
        json!({"regenerate": true}),
        json!({"message": "Uno?", "editMessageId": 1}),
    ];
    let with = |turn: &Value, expected: i64| {
        let mut body = turn.clone();
        body["sessionId"] = json!(session);
        body["expectedLastMessageId"] = json!(expected);
        body
    };
    for turn in &turns {
        let refused = web.json("POST", CHAT, &with(turn, 1));
        HttpResponse::send(refused)
            .await
            .assert_problem(409, "LAST_MESSAGE_MISMATCH", "");
    }
    let read = web.get(&format!("/api/agents/a/sessions/{session}")).await;
    let read = read.json();
    assert_eq!(
        (&read["messageCount"], &read["withdrawnCount"]),
        (&json!(2), &json!(0)),
        "nothing is changed"
    );
    // The first stores two messages, the second one.
    for (turn, expected) in turns.iter().zip([2, 4, 5]) {
        let received = web.chat("a", &with(turn, expected)).await;
        assert_eq!(received.last().map(SseEvent::kind), Some("done"), "{turn}");
    }
    assert_eq!(model.requests().len(), 4);
}

#[tokio::test]
async fn a_ping_of_a_cache_without_a_promised_lifetime_is_refused() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_scripted_model(&model).await;
    let body = json!({"message": "Hello?", "cachePing": true});
    let refused = app.http_client().json("POST", CHAT, &body);
    HttpResponse::send(refused)
        .await
        .assert_problem(400, "INVALID_FIELD", "cachePing");
    assert!(model.requests().is_empty());
}
