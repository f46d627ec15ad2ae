//! How much a tenant may store: quotas of messages and bytes, compared with what workers have counted and with what this
//! server has stored since it last asked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anneal_core::caller::{Caller, TenantId};
use anneal_store::{Append, Store, TenantUsage};
use moka::future::Cache;

use crate::{status::Failure, traffic::LimitSettings};

/// How long the database's figure of a tenant is used: so much later a server hears of what others have stored.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// Tenants whose figures are kept.
const TENANTS: u64 = 10_000;

/// The quotas of every tenant. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StorageQuota {
    /// None: there is no quota, and nothing is asked.
    most: Option<Most>,
    used: Cache<TenantId, Arc<Used>>,
}

/// What a tenant may store; 0: any number.
#[derive(Clone, Copy)]
struct Most {
    messages: u64,
    content_bytes: u64,
}

/// What a tenant has stored, as far as this server knows.
struct Used {
    messages: AtomicU64,
    content_bytes: AtomicU64,
}

impl StorageQuota {
    pub(crate) fn new(settings: &LimitSettings) -> Self {
        let most = Most { messages: settings.tenant_messages, content_bytes: settings.tenant_content_bytes };
        Self {
            most: (most.messages > 0 || most.content_bytes > 0).then_some(most),
            used: Cache::builder().max_capacity(TENANTS).time_to_live(CACHE_TTL).build(),
        }
    }

    /// Refuses an append that would take its tenant above a quota, unless it is stored already.
    pub(crate) async fn admit(&self, store: &Store, caller: Caller, append: &Append) -> Result<(), Failure> {
        let Some(most) = self.most else { return Ok(()) };
        let used = self.used(store, caller).await?;
        let (messages, content_bytes) = (append.message_count() as u64, append.content_bytes() as u64);
        let limit = [
            ("tenant_messages", most.messages, &used.messages, messages),
            ("tenant_content_bytes", most.content_bytes, &used.content_bytes, content_bytes),
        ];
        let exceeded = limit
            .into_iter()
            .find(|(_, most, used, new)| *most > 0 && used.load(Ordering::Relaxed).saturating_add(*new) > *most);
        let Some((limit, most, ..)) = exceeded else { return Ok(()) };
        if store.find_append(caller, append).await?.is_some() {
            return Ok(());
        }
        metrics::counter!("storage_refused_total", "limit" => limit).increment(1);
        Err(Failure::StorageQuota { limit, most })
    }

    /// Takes note of an append that was stored.
    pub(crate) async fn note(&self, caller: Caller, append: &Append) {
        if self.most.is_some()
            && let Some(used) = self.used.get(&caller.tenant()).await
        {
            used.messages.fetch_add(append.message_count() as u64, Ordering::Relaxed);
            used.content_bytes.fetch_add(append.content_bytes() as u64, Ordering::Relaxed);
        }
    }

    /// The figures of the caller's tenant. Many who need them at once ask the database once.
    async fn used(&self, store: &Store, caller: Caller) -> Result<Arc<Used>, Failure> {
        let read = async {
            let TenantUsage { messages, content_bytes } = store.tenant_usage(caller).await?;
            Ok(Arc::new(Used { messages: messages.into(), content_bytes: content_bytes.into() }))
        };
        Box::pin(self.used.try_get_with(caller.tenant(), read)).await.map_err(|error| Failure::of_shared(&error))
    }
}
