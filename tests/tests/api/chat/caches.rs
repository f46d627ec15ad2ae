//! Turns ask for the provider's cache, and report how it was used.

use anneal_llm::provider::{Api, PromptCache};
use anneal_testkit::{ReportedUsage, Script, ScriptedModel, TestApp, pb, prose};
use pb::CacheState;

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
