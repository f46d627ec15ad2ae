//! What every RPC may use.

use std::sync::Arc;

use anneal_llm::ModelAccess;
use anneal_store::{Doorbell, Store};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    content::ContentBudget,
    cpu::CpuPool,
    room::{Room, Sharing},
    settings::{Agents, ApplicationSettings, ChatSettings, ServerSettings},
    storage_quota::StorageQuota,
    traffic::LimitSettings,
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
    /// What each tenant may store.
    pub(crate) storage_quota: StorageQuota,
    /// Where long work of the processor runs.
    pub(crate) cpu: CpuPool,
    /// For what reads hold of stored content.
    pub(crate) content: ContentBudget,
    /// For what turns hold of it until their model has answered: reads do not wait for that.
    pub(crate) turn_content: ContentBudget,
    pub(crate) calls: Room,
    pub(crate) turn_room: Room,
    /// Readers of turns over HTTP: many may read one turn.
    pub(crate) readers: Room,
    pub(crate) large_appends: Room,
}

impl House {
    /// A house on a store, with these models to call, for these applications, whose callers share its rooms and connections
    /// so, and so many bytes of content.
    pub(crate) fn new(
        store: Store,
        settings: &ServerSettings,
        models: Arc<ModelAccess>,
        applications: ApplicationSettings,
        (sharing, limits): (Sharing, &LimitSettings),
    ) -> Self {
        let store = match sharing {
            Sharing::Whole => store,
            Sharing::Percent(percent) => store.shared_by_tenants(percent),
        };
        let room = |places: u32| Room::new(places as usize, sharing);
        let content = ContentBudget::new(limits.content_bytes, sharing);
        Self {
            store,
            bell: Doorbell::default(),
            models,
            chat: applications.chat,
            agents: Arc::new(applications.agents),
            turns: TaskTracker::new(),
            turns_end: CancellationToken::new(),
            watching: Watching::new(settings, sharing),
            storage_quota: StorageQuota::new(limits),
            cpu: CpuPool::new(sharing),
            turn_content: content.beside(limits.content_bytes, sharing),
            content,
            calls: room(settings.concurrent_calls),
            turn_room: room(settings.concurrent_turns.get()),
            readers: room(settings.concurrent_readers),
            large_appends: room(settings.concurrent_large_appends),
        }
    }
}
