//! How many connections of a pool one tenant may use. If a tenant's share is in use, its calls wait
//! in a queue of their own, so that they are not ahead of other tenants in the pool's queue.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anneal_core::caller::TenantId;
use tokio::sync::OwnedSemaphorePermit;

use super::tenant_semaphores::{TenantSemaphores, WaitCount};

/// The shares of the tenants that use a pool now.
pub(crate) struct TenantShares {
    connections: TenantSemaphores,
    waiting: AtomicUsize,
}

impl TenantShares {
    /// Shares of `percent` of a pool's connections, at least one connection each.
    pub(crate) fn new(connections: usize, percent: u32) -> Self {
        Self {
            connections: TenantSemaphores::new(connections, percent),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits until the tenant uses less than its share. The permit stands for one connection.
    pub(crate) async fn acquire(&self, tenant: TenantId) -> OwnedSemaphorePermit {
        let share = self.connections.of(tenant);
        if let Ok(permit) = Arc::clone(&share).try_acquire_owned() {
            return permit;
        }
        let _waits = WaitCount::new(&self.waiting);
        share
            .acquire_owned()
            .await
            .expect("semaphores of shares are never closed")
    }

    /// Calls that wait for their tenant's share.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn semaphores_of_idle_tenants_are_dropped_and_a_share_is_at_least_one_connection() {
        // Half of one connection: each `acquire` would wait forever if that were rounded down.
        let shares = TenantShares::new(1, 50);
        for n in 0..10_000 {
            drop(shares.acquire(TenantId(Uuid::from_u128(n))).await);
        }
        // The map forgets idle tenants each time that it is full, so it stays small.
        let kept = shares.connections.kept();
        assert!(kept < 100, "the semaphores of {kept} tenants are kept");
    }

    #[tokio::test]
    async fn an_abandoned_call_leaves_the_queue_of_its_tenant() {
        // Half of two connections: the tenant's share is one.
        let (shares, tenant) = (TenantShares::new(2, 50), TenantId(Uuid::from_u128(1)));
        let held = shares.acquire(tenant).await;
        {
            let mut waiting = std::pin::pin!(shares.acquire(tenant));
            let is_pending = std::future::poll_fn(|context| {
                Poll::Ready(waiting.as_mut().poll(context).is_pending())
            });
            assert!(is_pending.await, "the share is in use");
            assert_eq!(shares.waiting(), 1);
        }
        assert_eq!(shares.waiting(), 0);
        drop(held);
        drop(shares.acquire(tenant).await);
    }
}
