//! The settings of a test's server.

use std::sync::Arc;

use anneal_core::{
    model::Models,
    policy::{PolicyOverrides, SessionSettings},
};
use anneal_llm::{
    ModelAccess,
    provider::{CallableModels, Providers, models_without_cache},
};
use anneal_server::{
    Agents, AuthSettings, ChatSettings, LimitSettings, ModelList, ServerSettings, WebSettings,
};
use anneal_store::Pooling;

/// The server's models, limits and other settings.
#[derive(Clone, Default)]
pub(crate) struct ServerOptions {
    pub(crate) access: Arc<ModelAccess>,
    pub(crate) chat: ChatSettings,
    pub(crate) agents: Agents,
    pub(crate) server: ServerSettings,
    pub(crate) limits: LimitSettings,
    pub(crate) auth: AuthSettings,
    pub(crate) web: WebSettings,
    pub(crate) pooling: Pooling,
    /// Whether workers count all messages, also those that the server would count.
    pub(crate) counted_by_workers: bool,
    /// Whether the server believes that a model writes summaries. The worker of the app has none.
    pub(crate) summaries_by_a_model: bool,
}

impl ServerOptions {
    /// Options of a server that calls these models within these limits, and the matching session
    /// settings.
    pub(crate) fn with_models(
        (providers, models): (Providers, Models),
        default: impl Into<ModelList>,
        limits: &ModelAccess,
    ) -> (SessionSettings, Self) {
        let callable = CallableModels::new(&providers, &models).expect("the settings are valid");
        let unmarked = models_without_cache(&providers, &models);
        let session = SessionSettings::new(PolicyOverrides::default(), models);
        let options = Self {
            access: Arc::new(ModelAccess {
                models: callable,
                ..*limits
            }),
            chat: ChatSettings {
                model: default.into(),
            },
            ..Self::default()
        };
        (session.with_unmarked(unmarked), options)
    }
}
