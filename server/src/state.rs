//! The state of the server that every RPC uses.

use std::time::SystemTime;

use anneal_store::{JobNotifier, Store};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    caches::{context_memory::ContextMemory, conversation_encodings::ConversationEncodings},
    limits::{
        cache_pings::CachePings,
        concurrency::{ConcurrencyLimit, TenantShare},
        content_budget::ContentBudget,
        cpu_pool::CpuPool,
        storage_quota::StorageQuota,
    },
    settings::{CurrentSettings, ServerSettings},
    traffic::TrafficLimits,
    turn_stops::TurnStops,
    watch_registry::WatchRegistry,
};

/// The store, settings and limits. Cheap to clone.
#[derive(Clone)]
pub struct ServerState {
    /// The database.
    pub store: Store,
    /// Notifies workers of new jobs.
    pub job_notifier: JobNotifier,
    /// Models, turns, agents and limits, which a reload replaces.
    pub settings: CurrentSettings,
    /// Rates of tenants.
    pub(crate) traffic: TrafficLimits,
    /// When the server began.
    pub(crate) started: SystemTime,
    /// Turns under way. They go on when their caller disconnects, until their answer is stored.
    pub(crate) turns: TaskTracker,
    /// Ends turns early. Cancelled when the server stops and `stop_seconds` are over.
    pub(crate) cancel_turns: CancellationToken,
    /// Turns of this process that can be told to stop.
    pub(crate) turn_stops: TurnStops,
    /// Calls that wait to keep a provider's cache warm.
    pub(crate) cache_pings: CachePings,
    /// Watched conversations and their watchers.
    pub(crate) watch_registry: WatchRegistry,
    /// Limits the messages and bytes that each tenant may store.
    pub(crate) storage_quota: StorageQuota,
    /// The encodings in which appends are counted.
    pub(crate) conversation_encodings: ConversationEncodings,
    /// Threads for work that would block an async thread.
    pub(crate) cpu: CpuPool,
    /// Limits the bytes of stored content that reads hold in memory.
    pub(crate) content_budget: ContentBudget,
    /// Limits the bytes of stored content that turns hold until their model has answered. It is
    /// separate, so that reads do not wait for models.
    pub(crate) turn_content_budget: ContentBudget,
    /// Sizes and policies of the contexts that were read last.
    pub(crate) context_memory: ContextMemory,
    /// Calls other than turns and watches.
    pub(crate) call_limit: ConcurrencyLimit,
    /// Turns over gRPC and HTTP.
    pub(crate) turn_limit: ConcurrencyLimit,
    /// Readers of turns over HTTP. A turn may have several.
    pub(crate) reader_limit: ConcurrencyLimit,
    /// Calls of AppendLargeMessage, which `call_limit` counts, too.
    pub(crate) large_append_limit: ConcurrencyLimit,
}

impl ServerState {
    /// The state over this store. `traffic` admits the calls; `tenant_share` bounds what one tenant may take of the limits and
    /// of the store's connections.
    pub(crate) fn new(
        store: Store,
        server: &ServerSettings,
        settings: CurrentSettings,
        traffic: TrafficLimits,
        tenant_share: TenantShare,
    ) -> Self {
        let content_bytes = settings.get().limits.content_bytes;
        let store = match tenant_share {
            TenantShare::Whole => store,
            TenantShare::Percent(percent) => store.shared_by_tenants(percent),
        };
        let limit = |permits: u32| ConcurrencyLimit::new(permits as usize, tenant_share);
        let content_budget = ContentBudget::new(content_bytes, tenant_share);
        Self {
            turn_stops: TurnStops::new(store.clone()),
            store,
            job_notifier: JobNotifier::default(),
            traffic,
            started: SystemTime::now(),
            turns: TaskTracker::new(),
            cancel_turns: CancellationToken::new(),
            cache_pings: CachePings::new(tenant_share),
            watch_registry: WatchRegistry::new(server, tenant_share),
            storage_quota: StorageQuota::new(settings.clone()),
            cpu: CpuPool::new(tenant_share),
            turn_content_budget: content_budget.with_shared_large_slot(content_bytes, tenant_share),
            content_budget,
            conversation_encodings: ConversationEncodings::new(),
            context_memory: ContextMemory::new(),
            call_limit: limit(server.concurrent_calls),
            turn_limit: limit(server.concurrent_turns.get()),
            reader_limit: limit(server.concurrent_readers),
            large_append_limit: limit(server.concurrent_large_appends),
            settings,
        }
    }
}
