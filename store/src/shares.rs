//! What one tenant may have of a pool. Its calls wait in a line of its own, so that a tenant that has its share in use does not
//! stand before the others in the pool's line.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anneal_core::caller::TenantId;
use tokio::sync::OwnedSemaphorePermit;

use crate::tenant_semaphores::{TenantSemaphores, WaitCount};

/// The shares of the tenants that use a pool.
pub(crate) struct TenantShares {
    connections: TenantSemaphores,
    waiting: AtomicUsize,
}

impl TenantShares {
    /// Shares of so many percent of a pool's connections, and at least one connection.
    pub(crate) fn new(connections: usize, percent: u32) -> Self {
        Self { connections: TenantSemaphores::new(connections, percent), waiting: AtomicUsize::new(0) }
    }

    /// Waits until the tenant has less than its share in use. The permit stands for one connection.
    pub(crate) async fn acquire(&self, tenant: TenantId) -> OwnedSemaphorePermit {
        let share = self.connections.of(tenant);
        if let Ok(permit) = Arc::clone(&share).try_acquire_owned() {
            return permit;
        }
        let _waits = WaitCount::new(&self.waiting);
        share.acquire_owned().await.expect("nobody closes a share")
    }

    /// Calls that wait in all lines.
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
    async fn tenants_without_calls_are_forgotten_and_a_share_is_at_least_one_connection() {
        let shares = TenantShares::new(1, 50);
        for n in 0..10_000 {
            drop(shares.acquire(TenantId(Uuid::from_u128(n))).await);
        }
        let remembered = shares.connections.remembered();
        assert!(remembered < 100, "{remembered} tenants");
    }

    #[tokio::test]
    async fn a_call_that_goes_away_leaves_the_line() {
        let (shares, tenant) = (TenantShares::new(2, 50), TenantId(Uuid::from_u128(1)));
        let held = shares.acquire(tenant).await;
        {
            let mut waiting = std::pin::pin!(shares.acquire(tenant));
            let is_pending = std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
            assert!(is_pending.await, "the share is in use");
            assert_eq!(shares.waiting(), 1);
        }
        assert_eq!(shares.waiting(), 0);
        drop(held);
        drop(shares.acquire(tenant).await);
    }
}
