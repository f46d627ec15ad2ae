//! Apps whose server answers chat turns with a scripted model.

use anneal_core::model::Models;
use anneal_llm::{
    ModelAccess,
    provider::{MediaRule, MediaSettings, Providers},
};

use crate::{
    MODEL, ScriptedModel, TestApp,
    chaos::{Proxy, Sabotage},
};

impl TestApp {
    /// An app that calls this model over OpenAI's protocol.
    pub async fn with_scripted_model(model: &ScriptedModel) -> Self {
        Self::with_models(model.settings(&[MODEL]), MODEL).await
    }

    /// An app that calls this model, on a database of its own with this sabotage, which lasts as
    /// long as the proxy.
    pub async fn with_sabotage(
        model: &ScriptedModel,
        sabotage: &'static Sabotage,
    ) -> (Self, Proxy) {
        let database = Self::start().await;
        let (proxy, url) = Proxy::to_sabotaged_database(&database.url, sabotage).await;
        let settings = model.settings(&[MODEL]);
        let app = Self::with_models_on(url, settings, MODEL, ModelAccess::default()).await;
        (app, proxy)
    }

    /// An app that calls this model. The provider may fetch media from public hosts.
    pub async fn with_scripted_model_and_media(model: &ScriptedModel) -> Self {
        let (mut providers, models) = model.settings(&[MODEL]);
        for provider in providers.values_mut() {
            provider.media = Some(MediaSettings::Rule(MediaRule::Https));
        }
        Self::with_models((providers, models), MODEL).await
    }

    /// An app that calls this model with timeouts of an hour, so that a timeout never ends a call
    /// of the test.
    pub async fn with_scripted_model_without_timeouts(model: &ScriptedModel) -> Self {
        Self::with_models(without_timeouts(model), MODEL).await
    }

    /// An app with a page that needs no sign-in, which calls this model with timeouts of an hour.
    pub async fn with_open_page_and_scripted_model(model: &ScriptedModel) -> Self {
        Self::with_open_page(without_timeouts(model), MODEL).await
    }
}

/// Settings with which a timeout never ends a call of the test.
fn without_timeouts(model: &ScriptedModel) -> (Providers, Models) {
    let (mut providers, models) = model.settings(&[MODEL]);
    for provider in providers.values_mut() {
        (provider.first_byte_timeout_ms, provider.total_timeout_ms) = (3_600_000, 3_600_000);
    }
    (providers, models)
}
