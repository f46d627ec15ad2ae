//! The settings that a reload replaces while the server runs.

use std::sync::Arc;

use anneal_core::tokens::Tokens;
use anneal_llm::ModelAccess;
use tokio::sync::watch;

use super::{Agents, ChatSettings, LimitSettings};

/// Settings that can be replaced while the server runs. [`LimitSettings::with_reloadable`] says
/// which of the limits.
#[derive(Debug, Clone, Default)]
pub struct ReloadableSettings {
    /// The models that may be called.
    pub models: Arc<ModelAccess>,
    /// The settings of turns.
    pub chat: ChatSettings,
    /// The settings of agents.
    pub agents: Agents,
    /// The model that writes summaries; empty: the built-in summarizer.
    pub summary_model: String,
    /// Rates, sizes and shares of tenants.
    pub limits: LimitSettings,
    /// Most tokens of a checkpoint's summary, if the built-in summarizer writes summaries. None: a
    /// model writes them.
    pub builtin_checkpoint_tokens: Option<Tokens>,
}

/// The settings in force. Cheap to clone; all clones share them.
#[derive(Debug, Clone)]
pub struct CurrentSettings(Arc<watch::Sender<Arc<ReloadableSettings>>>);

impl Default for CurrentSettings {
    fn default() -> Self {
        Self::new(ReloadableSettings::default())
    }
}

impl CurrentSettings {
    /// Puts these settings in force.
    pub fn new(settings: ReloadableSettings) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(settings))))
    }

    /// The settings in force. A call that needs them twice keeps these, so that it does not mix old
    /// and new ones.
    pub fn get(&self) -> Arc<ReloadableSettings> {
        Arc::clone(&self.0.borrow())
    }

    /// Replaces the settings. Calls under way keep those with which they began.
    pub fn replace(&self, settings: ReloadableSettings) {
        self.0.send_replace(Arc::new(settings));
    }
}
