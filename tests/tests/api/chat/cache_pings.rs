//! Calls after a turn that keep the provider's cache warm.

use std::time::Duration;

use anneal_llm::provider::Api;
use anneal_testkit::{
    MODEL, Script, ScriptedModel, TestApp, TestConversation, TurnRequest, eventually, pb,
};
use serde_json::json;

/// A conversation whose provider keeps its cache for so many seconds.
async fn create_conversation(app: &TestApp, seconds: u32) -> TestConversation<'_> {
    let policy = pb::Policy {
        cache_ttl_seconds: Some(seconds),
        ..Default::default()
    };
    app.conversation_with_policy(policy).await
}

/// A turn that asks for a ping.
fn with_ping(mut turn: TurnRequest<'_>) -> TurnRequest<'_> {
    turn.ask.cache_ping = true;
    turn
}

/// Waits until one ping has ended so.
async fn wait_for_outcome(app: &TestApp, outcome: &str) {
    let counted = format!("anneal_chat_cache_pings_total{{outcome=\"{outcome}\"}} 1");
    eventually("the ping has ended", async || {
        app.http_client()
            .get("/metrics")
            .await
            .text
            .contains(&counted)
    })
    .await;
}

#[tokio::test]
async fn a_turn_keeps_the_providers_cache_warm_if_it_is_asked_to() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let conversation = create_conversation(&app, 1).await;
    with_ping(conversation.chat("Hello?")).await.done();
    wait_for_outcome(&app, "answered").await;
    let [turn, ping] = model.requests().try_into().expect("two calls");
    assert_eq!(
        (&ping.body["messages"], &ping.body["max_tokens"]),
        (&turn.body["messages"], &json!(1))
    );
    assert_eq!(conversation.messages().await.len(), 2);
    let recorded: Vec<Option<bool>> =
        sqlx::query_scalar("select ping from ai_model_call order by created_ts")
            .fetch_all(&mut app.db().await)
            .await
            .expect("reads");
    assert_eq!(recorded, [None, Some(true)]);
}

#[tokio::test]
async fn a_conversation_that_has_gone_on_needs_no_ping() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let conversation = create_conversation(&app, 3).await;
    with_ping(conversation.chat("Hello?")).await.done();
    conversation.chat("And?").await.done();
    wait_for_outcome(&app, "overtaken").await;
    assert_eq!(model.requests().len(), 2);
}

#[tokio::test]
async fn a_fallback_whose_provider_promises_nothing_is_not_called_again() {
    let first = ScriptedModel::start(|_| Script::status(500, &[], "{}")).await;
    let second = ScriptedModel::saying("Yes.").await;
    let providers = json!({
        "one": {"api": "anthropic", "url": first.url()},
        "two": {"api": "openai", "url": second.url()},
    });
    let models = json!({
        "a": {"provider": "one", "window_tokens": 8_192},
        "b": {"provider": "two", "window_tokens": 8_192},
    });
    let settings = (
        serde_json::from_value(providers).expect("settings"),
        serde_json::from_value(models).expect("settings"),
    );
    let app = TestApp::with_models(settings, "a").await;
    let conversation = create_conversation(&app, 1).await;
    let turn = conversation.chat("Hello?").with_model("a");
    let outcome = with_ping(turn.with_fallbacks(&["b"])).await;
    assert_eq!(outcome.done().model, "b");
    let again = tokio::time::timeout(Duration::from_secs(2), second.wait_for_calls(2)).await;
    assert!(again.is_err(), "it is called once more");
}
