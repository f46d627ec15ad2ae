//! What turns ask of the provider's cache, what they say of it, and the call that keeps it warm.

use std::time::Duration;

use anneal_llm::provider::{Api, PromptCache};
use anneal_testkit::{
    AnnealBinary, Folder, ReportedUsage, Say, Script, ScriptedModel, TestApp, TestConversation,
    TurnOutcome, assert_refused, eventually, pb, prose, user,
};
use pb::{CacheState, chat_service_client::ChatServiceClient};
use tonic::{Code, transport::Channel};

use super::BINARY;

/// A model whose cache needs 512 tokens.
const CLAUDE: &str = "claude-opus-5";

/// A Claude model whose provider reports that nothing was cached.
async fn model_without_cache_hits() -> ScriptedModel {
    let reported = ReportedUsage {
        input: 2_000,
        output: 7,
        ..ReportedUsage::default()
    };
    ScriptedModel::start(move |_| Script::anthropic(&["Yes."], reported)).await
}

#[tokio::test]
async fn of_a_claude_model_that_is_not_asked_to_cache_nothing_is_expected() {
    for (setting, expected) in [
        (PromptCache::Auto, CacheState::Cold),
        (PromptCache::None, CacheState::NothingExpected),
    ] {
        let model = model_without_cache_hits().await;
        let (mut providers, models) = model.settings_of(Api::Anthropic, &[CLAUDE]);
        for provider in providers.values_mut() {
            provider.prompt_cache = setting;
        }
        let app = TestApp::with_models((providers, models), CLAUDE).await;
        let conversation = app.conversation().await;
        conversation.chat(&prose(5_000, 60)).await.done();
        let second = conversation.chat("Is it cached?").await;
        let cache = second.done().cache.as_ref().expect("usage was reported");
        assert_eq!(cache.state(), expected, "{setting:?}: {cache:?}");
        let sent: Vec<bool> = model
            .requests()
            .iter()
            .map(|request| request.raw.contains("cache_control"))
            .collect();
        assert_eq!(sent, [setting == PromptCache::Auto; 2], "{setting:?}");
    }
}

/// A conversation whose cache is taken to last for so long.
async fn conversation_with_cache(app: &TestApp, seconds: u32) -> TestConversation<'_> {
    let policy = pb::Policy {
        cache_ttl_seconds: Some(seconds),
        ..Default::default()
    };
    app.conversation_with_policy(policy).await
}

/// The calls that are recorded with their cost, and the leases of calls.
async fn calls_and_leases(app: &TestApp) -> (i32, i64) {
    sqlx::query_as(
        "select coalesce(sum(calls), 0)::integer, (select count(*) from ai_model_lease) from ai_model_spend",
    )
    .fetch_one(&mut app.db().await)
    .await
    .expect("reads")
}

#[tokio::test]
async fn a_ping_sends_the_context_of_the_turn_once_more_and_is_recorded_as_one() {
    let model = ScriptedModel::saying("Yes.").await;
    let settings = model.settings_of(Api::Anthropic, &[CLAUDE]);
    let app = TestApp::with_models(settings, CLAUDE).await;
    let conversation = conversation_with_cache(&app, 1).await;
    let mut turn = conversation.chat("Is it cached?");
    turn.ask.cache_ping = true;
    turn.await.done();
    model.wait_for_calls(2).await;
    let requests = model.requests();
    assert_eq!(requests[1].body["max_tokens"], 1);
    assert_eq!(requests[1].body["messages"], requests[0].body["messages"]);
    eventually("the ping is recorded", async || {
        let pings: i64 = sqlx::query_scalar("select count(*) from ai_model_call where ping")
            .fetch_one(&mut app.db().await)
            .await
            .expect("counts");
        (pings, calls_and_leases(&app).await) == (1, (2, 0))
    })
    .await;
    assert_eq!(conversation.messages().await.len(), 2);
}

#[tokio::test]
async fn a_ping_needs_a_provider_that_is_asked_to_cache_for_a_time() {
    let model = ScriptedModel::saying("Yes.").await;
    for (api, setting) in [
        (Api::Anthropic, PromptCache::None),
        (Api::OpenAi, PromptCache::Auto),
        (Api::Gemini, PromptCache::On),
    ] {
        let (mut providers, models) = model.settings_of(api, &[CLAUDE]);
        for provider in providers.values_mut() {
            provider.prompt_cache = setting;
        }
        let app = TestApp::with_models((providers, models), CLAUDE).await;
        let conversation = app.conversation().await;
        let mut turn = conversation.chat("Is it cached?");
        turn.ask.cache_ping = true;
        let refused = turn.await.end;
        assert_refused(
            refused,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "cache_ping",
        );
        assert!(conversation.messages().await.is_empty(), "{api:?}");
    }
}

/// Settings of a server that calls the Claude model of this provider.
fn server_settings(model: &ScriptedModel, stop_seconds: u32) -> String {
    format!(
        "[server]\nstop_seconds = {stop_seconds}\n\
         [providers.scripted]\napi = \"anthropic\"\nurl = \"{}\"\n\
         [models.{CLAUDE}]\nprovider = \"scripted\"\n[chat]\nmodel = \"{CLAUDE}\"\n",
        model.url()
    )
}

/// Runs a turn with a ping at the server on this port.
async fn run_turn_with_ping(conversation: &TestConversation<'_>, port: u16) {
    let ask = pb::ChatRequest {
        conversation_id: conversation.id.clone(),
        messages: vec![user("Is it cached?")],
        cache_ping: true,
        ..Default::default()
    };
    let channel = Channel::from_shared(format!("http://127.0.0.1:{port}"))
        .expect("an address")
        .connect_lazy();
    let stream = ChatServiceClient::new(channel).chat(ask).await;
    let stream = stream.expect("begins").into_inner();
    TurnOutcome::read(stream).await.done();
}

/// Longer than a server takes to stop that waits for nothing.
const STOPPED_WITHIN: Duration = Duration::from_secs(15);

#[tokio::test]
async fn a_stopping_server_ends_a_ping_and_books_it_and_waits_for_none_that_is_not_due() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 | 2 => Script::says(request, [Say::text("Yes.")]),
        _ => Script::hang(),
    })
    .await;
    let (app, folder) = (TestApp::start().await, Folder::new());
    // The ping of the first turn is under way when the server stops, that of the second is not due.
    for (cache_seconds, stop_seconds, arrived, booked) in [(1, 1, 2, 2), (3_600, 60, 3, 3)] {
        folder.file("anneal.toml", &server_settings(&model, stop_seconds));
        let (server, port) = AnnealBinary::new(BINARY, &folder, &app.url).server().await;
        let conversation = conversation_with_cache(&app, cache_seconds).await;
        run_turn_with_ping(&conversation, port).await;
        model.wait_for_calls(arrived).await;
        server.terminate().await;
        let exit_code = tokio::time::timeout(STOPPED_WITHIN, server.wait_for_exit())
            .await
            .expect("within the time limit");
        assert_eq!(exit_code, Some(0), "{cache_seconds} s");
        assert_eq!(
            calls_and_leases(&app).await,
            (booked, 0),
            "{cache_seconds} s"
        );
    }
}
