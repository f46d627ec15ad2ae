//! What every RPC may use.

use std::sync::Arc;

use anneal_llm::ModelAccess;
use anneal_store::{Doorbell, Store};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    settings::{Agents, ApplicationSettings, ChatSettings, ServerSettings},
    watch::Watching,
};

/// The store, the workers' doorbell, models, and room for calls. Cheap to clone.
#[derive(Clone)]
pub struct House {
    /// The way to the data.
    pub store: Store,
    /// Tells workers that there is work.
    pub bell: Doorbell,
    /// The models that may be called.
    pub models: Arc<ModelAccess>,
    /// How turns are run.
    pub chat: ChatSettings,
    /// How conversations of agents begin.
    pub agents: Arc<Agents>,
    /// Turns under way: they outlive their callers' connections until what is to be stored is stored.
    pub(crate) turns: TaskTracker,
    /// Cancelled when the server stops and turns under way have had their time.
    pub(crate) turns_end: CancellationToken,
    /// Who watches which conversation.
    pub(crate) watching: Watching,
    pub(crate) calls: Arc<Semaphore>,
    /// How many calls that is room for.
    pub(crate) most_calls: u32,
    pub(crate) turn_room: Arc<Semaphore>,
    pub(crate) large_appends: Arc<Semaphore>,
}

impl House {
    /// A house on a store, with these models to call, for these applications.
    pub fn new(
        store: Store,
        settings: &ServerSettings,
        models: Arc<ModelAccess>,
        applications: ApplicationSettings,
    ) -> Self {
        Self {
            store,
            bell: Doorbell::default(),
            models,
            chat: applications.chat,
            agents: Arc::new(applications.agents),
            turns: TaskTracker::new(),
            turns_end: CancellationToken::new(),
            watching: Watching::new(settings),
            most_calls: settings.concurrent_calls,
            calls: Arc::new(Semaphore::new(settings.concurrent_calls as usize)),
            turn_room: Arc::new(Semaphore::new(settings.concurrent_turns.get() as usize)),
            large_appends: Arc::new(Semaphore::new(settings.concurrent_large_appends as usize)),
        }
    }
}
