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
use anneal_store::{Append, Appended, Store, TenantUsage};
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
        let Some(quota) = self.quota() else {
            return Ok(());
        };
        let usage = self.read_usage(store, caller).await?;
        let (messages, content_bytes) =
            (append.message_count() as u64, append.content_bytes() as u64);
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
        if store.find_append(caller, append).await?.is_some() {
            return Ok(());
        }
        metrics::counter!("anneal_storage_refused_total", "limit" => limit).increment(1);
        Err(Failure::StorageQuota { limit, most })
    }

    /// Adds what an append has stored to the cached usage.
    pub(crate) async fn record_append(&self, caller: Caller, appended: &Appended) {
        if self.quota().is_some()
            && let Some(usage) = self.usage.get(&caller.tenant()).await
        {
            usage
                .messages
                .fetch_add(appended.messages.len() as u64, Ordering::Relaxed);
            usage
                .content_bytes
                .fetch_add(appended.content_bytes, Ordering::Relaxed);
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
