//! Quotas of messages and bytes per tenant. A tenant's usage is that of its counted messages, as
//! the database has it, plus what this server has stored since it last read that figure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anneal_core::caller::{Caller, TenantId};
use anneal_store::{Append, Appended, ForkAsk, Store, StoreError, TenantUsage};
use moka::future::Cache;

use crate::{failure::Failure, settings::CurrentSettings};

/// How long a tenant's usage is cached. An append of another server is included here at most this
/// long after its messages are counted.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Most tenants whose usage is cached.
const MAX_TENANTS: u64 = 10_000;

/// The quota that each tenant has, and the cached usage of tenants. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StorageQuota {
    settings: CurrentSettings,
    usage: Cache<TenantId, Arc<Usage>>,
}

/// The most that a tenant may store; 0: unlimited.
#[derive(Clone, Copy)]
struct Quota {
    messages: u64,
    content_bytes: u64,
}

/// The amounts that a tenant has stored, as far as this server knows.
struct Usage {
    messages: AtomicU64,
    content_bytes: AtomicU64,
}

impl StorageQuota {
    pub(crate) fn new(settings: CurrentSettings) -> Self {
        Self {
            settings,
            usage: Cache::builder()
                .max_capacity(MAX_TENANTS)
                .time_to_live(CACHE_TTL)
                .build(),
        }
    }

    /// The quota in force. None: no quota is set, and the database is not queried.
    fn quota(&self) -> Option<Quota> {
        let settings = self.settings.get();
        let quota = Quota {
            messages: settings.limits.tenant_messages,
            content_bytes: settings.limits.tenant_content_bytes,
        };
        (quota.messages > 0 || quota.content_bytes > 0).then_some(quota)
    }

    /// Refuses an append that would exceed a quota of its tenant, unless it repeats a stored one.
    pub(crate) async fn admit(
        &self,
        store: &Store,
        caller: Caller,
        append: &Append,
    ) -> Result<(), Failure> {
        let new = (append.message_count() as u64, append.content_bytes() as u64);
        let is_repeated = async {
            let found = store.find_append(caller, append).await;
            found.map(|earlier| earlier.is_some())
        };
        self.admit_bytes(store, caller, new, is_repeated).await
    }

    /// Refuses a fork that would exceed a quota of its tenant, unless it repeats one that was made.
    pub(crate) async fn admit_fork(
        &self,
        store: &Store,
        caller: Caller,
        fork: &ForkAsk,
    ) -> Result<(), Failure> {
        if self.quota().is_none() {
            return Ok(());
        }
        let TenantUsage {
            messages,
            content_bytes,
        } = store
            .measure_fork(caller, fork.source, fork.message)
            .await?;
        let is_repeated = async {
            let found = store.find_fork(caller, fork).await;
            found.map(|earlier| earlier.is_some())
        };
        self.admit_bytes(store, caller, (messages, content_bytes), is_repeated)
            .await
    }

    /// Refuses so many new messages and bytes of content if they would exceed a quota of the
    /// caller's tenant, unless the request is repeated. `is_repeated` is awaited only then.
    pub(crate) async fn admit_bytes(
        &self,
        store: &Store,
        caller: Caller,
        (messages, content_bytes): (u64, u64),
        is_repeated: impl Future<Output = Result<bool, StoreError>>,
    ) -> Result<(), Failure> {
        let Some(quota) = self.quota() else {
            return Ok(());
        };
        let usage = self.read_usage(store, caller).await?;
        let limits = [
            ("tenant_messages", quota.messages, &usage.messages, messages),
            (
                "tenant_content_bytes",
                quota.content_bytes,
                &usage.content_bytes,
                content_bytes,
            ),
        ];
        let exceeded = limits.into_iter().find(|(_, most, used, new)| {
            *most > 0 && used.load(Ordering::Relaxed).saturating_add(*new) > *most
        });
        let Some((limit, most, ..)) = exceeded else {
            return Ok(());
        };
        if is_repeated.await? {
            return Ok(());
        }
        metrics::counter!("anneal_storage_refused_total", "limit" => limit).increment(1);
        Err(Failure::StorageQuota { limit, most })
    }

    /// Adds what an append has stored to the cached usage.
    pub(crate) async fn record_append(&self, caller: Caller, appended: &Appended) {
        let stored = (appended.messages.len() as u64, appended.content_bytes);
        self.record_bytes(caller, stored).await;
    }

    /// Adds so many stored messages and bytes of content to the cached usage.
    pub(crate) async fn record_bytes(&self, caller: Caller, (messages, content_bytes): (u64, u64)) {
        if self.quota().is_some()
            && let Some(usage) = self.usage.get(&caller.tenant()).await
        {
            usage.messages.fetch_add(messages, Ordering::Relaxed);
            usage
                .content_bytes
                .fetch_add(content_bytes, Ordering::Relaxed);
        }
    }

    /// The usage of the caller's tenant. Concurrent cache misses query the database once.
    async fn read_usage(&self, store: &Store, caller: Caller) -> Result<Arc<Usage>, Failure> {
        let read = async {
            let TenantUsage {
                messages,
                content_bytes,
            } = store.read_tenant_usage(caller).await?;
            Ok(Arc::new(Usage {
                messages: messages.into(),
                content_bytes: content_bytes.into(),
            }))
        };
        Box::pin(self.usage.try_get_with(caller.tenant(), read))
            .await
            .map_err(|error| Failure::of_shared(&error))
    }
}
