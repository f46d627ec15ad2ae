//! Calls after a turn that keep the provider's cache warm.

use std::time::Duration;

use anneal_llm::provider::{Api, PromptCache};
use anneal_testkit::{
    AnnealBinary, Folder, MODEL, Say, Script, ScriptedModel, TestApp, TestConversation,
    TurnOutcome, TurnRequest, assert_refused, eventually, pb, user,
};
use pb::chat_service_client::ChatServiceClient;
use serde_json::json;
use tonic::{Code, transport::Channel};

use super::BINARY;

/// A model whose cache is marked.
const CLAUDE: &str = "claude-opus-5";

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

/// Waits until so many pings have ended so.
async fn wait_for_outcome(app: &TestApp, outcome: &str, count: usize) {
    let counted = format!("anneal_chat_cache_pings_total{{outcome=\"{outcome}\"}} {count}\n");
    eventually("the pings have ended", async || {
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
    wait_for_outcome(&app, "answered", 1).await;
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
    wait_for_outcome(&app, "overtaken", 1).await;
    assert_eq!(model.requests().len(), 2);
}

/// A change of a conversation after which its next context begins in another way.
#[derive(Debug, Clone, Copy)]
enum Change {
    Withdrawal,
    Edit,
    Erasure,
    Separator,
    SystemPrompt,
}

impl Change {
    const ALL: [Self; 5] = [
        Self::Withdrawal,
        Self::Edit,
        Self::Erasure,
        Self::Separator,
        Self::SystemPrompt,
    ];

    async fn make(self, conversation: &TestConversation<'_>) {
        let changed = match self {
            Self::Withdrawal => conversation.withdraw(&[1]).send().await.map(drop),
            Self::Edit => {
                let edit = conversation.edit(1, user("What else?"));
                edit.send().await.map(drop)
            }
            Self::Erasure => conversation.erase(&[1]).send().await.map(drop),
            Self::Separator => {
                conversation.insert_separator().await;
                Ok(())
            }
            Self::SystemPrompt => {
                let ask = pb::UpdateConversationRequest {
                    conversation: Some(pb::Conversation {
                        conversation_id: conversation.id.clone(),
                        system_prompt: "Be brief.".into(),
                        ..Default::default()
                    }),
                    update_mask: Some(prost_types::FieldMask {
                        paths: vec!["system_prompt".into()],
                    }),
                    ..Default::default()
                };
                let mut conversations = conversation.app.conversations();
                conversations.update_conversation(ask).await.map(drop)
            }
        };
        changed.unwrap_or_else(|status| panic!("{self:?}: {status}"));
    }
}

#[tokio::test]
async fn what_was_changed_or_erased_after_a_turn_is_not_sent_again() {
    let model = ScriptedModel::saying("Yes.").await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    for change in Change::ALL {
        let conversation = create_conversation(&app, 5).await;
        conversation.chat("What is secret?").await.done();
        with_ping(conversation.chat("And now?")).await.done();
        change.make(&conversation).await;
    }
    wait_for_outcome(&app, "overtaken", Change::ALL.len()).await;
    assert_eq!(model.requests().len(), 2 * Change::ALL.len());
}

#[tokio::test]
async fn a_change_of_messages_ends_a_ping_that_is_under_way() {
    let model = ScriptedModel::start(|request| match request.nth {
        0 => Script::says(request, [Say::text("Yes.")]),
        _ => Script::hang(),
    })
    .await;
    let app = TestApp::with_models(model.settings_of(Api::Anthropic, &[MODEL]), MODEL).await;
    let conversation = create_conversation(&app, 1).await;
    with_ping(conversation.chat("What is secret?")).await.done();
    model.wait_for_calls(2).await;
    conversation.erase(&[1]).send().await.expect("erases");
    assert_eq!(calls_and_leases(&app).await.1, 0, "its lease has ended");
    wait_for_outcome(&app, "overtaken", 1).await;
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
        let refused = with_ping(conversation.chat("Is it cached?")).await.end;
        assert_refused(
            refused,
            Code::InvalidArgument,
            "INVALID_FIELD",
            "cache_ping",
        );
        assert!(conversation.messages().await.is_empty(), "{api:?}");
    }
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
        let conversation = create_conversation(&app, cache_seconds).await;
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
