//! Concurrency limits. With several tenants, each may hold at most its share of a limit, so that
//! one tenant cannot use up all permits. `rpc_call.rs` says which RPC takes a permit of which
//! limit; `grpc/rpc/append_large_message.rs` and `http/chat.rs` take permits of further limits.
//! `settings/server.rs` has the numbers, and `settings/limits.rs` a tenant's share
//! (`tenant_share_percent`).

use std::{future::Future, sync::Arc};

use anneal_core::caller::TenantId;
use anneal_store::TenantSemaphores;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;

/// The part of a limit that one tenant may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TenantShare {
    /// There is only one tenant, which may hold all of a limit.
    Whole,
    /// A tenant may hold this percentage of a limit, and at least one permit.
    Percent(u32),
}

/// A number of permits. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimit {
    all: Arc<Semaphore>,
    /// None: [`TenantShare::Whole`].
    shares: Option<Arc<TenantSemaphores>>,
    /// Most permits that one tenant may hold.
    tenant_permits: u32,
}

/// One or more permits, released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    all: OwnedSemaphorePermit,
    share: Option<OwnedSemaphorePermit>,
}

impl ConcurrencyLimit {
    /// A limit of this many permits.
    pub(crate) fn new(permits: usize, tenant_share: TenantShare) -> Self {
        let shares = match tenant_share {
            TenantShare::Whole => None,
            TenantShare::Percent(percent) => {
                Some(Arc::new(TenantSemaphores::new(permits, percent)))
            }
        };
        let tenant_permits = shares.as_ref().map_or(permits, |shares| shares.permits());
        Self {
            all: Arc::new(Semaphore::new(permits)),
            shares,
            tenant_permits: u32::try_from(tenant_permits).unwrap_or(u32::MAX),
        }
    }

    /// Takes a permit, or fails with [`Failure::Overloaded`] if none is free for this tenant.
    pub(crate) fn try_acquire(&self, tenant: TenantId) -> Result<Permit, Failure> {
        self.try_acquire_many(tenant, 1)
    }

    /// Takes this many permits, or fails with [`Failure::Overloaded`] if they are not free for this
    /// tenant, or are more than its share.
    pub(crate) fn try_acquire_many(
        &self,
        tenant: TenantId,
        permits: u32,
    ) -> Result<Permit, Failure> {
        let share = self
            .shares
            .as_ref()
            .map(|shares| shares.of(tenant).try_acquire_many_owned(permits))
            .transpose();
        let share = share.map_err(|_| Failure::Overloaded)?;
        let all = Arc::clone(&self.all)
            .try_acquire_many_owned(permits)
            .map_err(|_| Failure::Overloaded)?;
        Ok(Permit { all, share })
    }

    /// Whether a permit is free for this tenant now.
    pub(crate) fn has_free(&self, tenant: TenantId) -> bool {
        let has_free_share = |shares: &Arc<TenantSemaphores>| shares.has_free(tenant);
        self.all.available_permits() > 0 && self.shares.as_ref().is_none_or(has_free_share)
    }

    /// Waits for this many permits, at most as many as one tenant may hold. Waiters are served in
    /// order.
    pub(crate) async fn acquire(&self, tenant: TenantId, permits: u32) -> Result<Permit, Failure> {
        Ok(self.acquire_after(tenant, permits, async {}).await?.0)
    }

    /// Like [`acquire`](Self::acquire), but also awaits `condition`: after it has got the permits
    /// from the tenant's share, before it takes them from the whole limit. A call that takes its
    /// tenant's whole share is then the only one of that tenant that waits for `condition`.
    pub(crate) async fn acquire_after<T>(
        &self,
        tenant: TenantId,
        permits: u32,
        condition: impl Future<Output = T>,
    ) -> Result<(Permit, T), Failure> {
        let count = permits.min(self.tenant_permits);
        // The semaphores are never closed, so waiting for them does not fail.
        let share = match &self.shares {
            // A call that waits for its tenant's share holds no permit that other tenants need.
            Some(shares) => Some(
                shares
                    .of(tenant)
                    .acquire_many_owned(count)
                    .await
                    .map_err(|_| Failure::Panicked)?,
            ),
            None => None,
        };
        let output = condition.await;
        let all = Arc::clone(&self.all)
            .acquire_many_owned(count)
            .await
            .map_err(|_| Failure::Panicked)?;
        Ok((Permit { all, share }, output))
    }

    /// Free permits.
    #[cfg(test)]
    pub(crate) fn available(&self) -> usize {
        self.all.available_permits()
    }
}

impl Permit {
    /// Number of permits held.
    pub(crate) fn count(&self) -> usize {
        self.all.num_permits()
    }

    /// Splits off this many permits; None if fewer are held.
    pub(crate) fn split(&mut self, permits: usize) -> Option<Self> {
        let all = self.all.split(permits)?;
        let share = self.share.as_mut().and_then(|share| share.split(permits));
        Some(Self { all, share })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use uuid::Uuid;

    use super::*;

    const ANNA: TenantId = TenantId(Uuid::from_u128(1));
    const BERT: TenantId = TenantId(Uuid::from_u128(2));

    #[test]
    fn a_tenant_gets_half_of_a_limit_and_a_sole_tenant_all_of_it() {
        let limit = ConcurrencyLimit::new(4, TenantShare::Percent(50));
        let held: Vec<_> = (0..2)
            .map(|_| limit.try_acquire(ANNA).expect("a permit is free"))
            .collect();
        assert!(matches!(limit.try_acquire(ANNA), Err(Failure::Overloaded)));
        let others: Vec<_> = (0..2)
            .map(|_| {
                limit
                    .try_acquire(BERT)
                    .expect("permits are left for others")
            })
            .collect();
        assert!(matches!(limit.try_acquire(BERT), Err(Failure::Overloaded)));
        drop((held, others));
        limit.try_acquire(ANNA).expect("a permit is free again");
        let whole = ConcurrencyLimit::new(3, TenantShare::Whole);
        let held: Vec<_> = (0..3)
            .map(|_| whole.try_acquire(ANNA).expect("a permit is free"))
            .collect();
        assert!(matches!(whole.try_acquire(ANNA), Err(Failure::Overloaded)));
        drop(held);
        ConcurrencyLimit::new(1, TenantShare::Percent(50))
            .try_acquire(ANNA)
            .expect("a limit of one is open to every tenant");
    }

    #[tokio::test]
    async fn more_permits_than_the_limit_are_all_permits() {
        let limit = ConcurrencyLimit::new(3, TenantShare::Whole);
        let acquiring = limit.acquire(ANNA, 4);
        tokio::pin!(acquiring);
        let Poll::Ready(held) = futures::poll!(&mut acquiring) else {
            panic!("the wait would never end");
        };
        assert_eq!(held.expect("all permits are free").count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_waiting_for_its_share_does_not_block_others() {
        let limit = ConcurrencyLimit::new(8, TenantShare::Percent(50));
        let mut held = limit.acquire(ANNA, 4).await.expect("a permit is free");
        let waiting = limit.acquire(ANNA, 4);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let others = limit
            .acquire(BERT, 100)
            .await
            .expect("permits are left for others");
        assert_eq!(
            (others.count(), limit.available()),
            (4, 0),
            "bert gets no more than his share"
        );
        let part = held.split(1).expect("four are held");
        drop(held);
        assert!(
            futures::poll!(&mut waiting).is_pending(),
            "one permit is still held"
        );
        drop(part);
        assert_eq!(waiting.await.expect("a permit is free").count(), 4);
    }
}
