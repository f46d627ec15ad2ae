//! What one tenant may have of a pool. Its calls wait in a line of its own, so that a tenant that has its share in use does not
//! stand before the others in the pool's line.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use anneal_core::caller::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The shares of the tenants that use a pool.
pub(crate) struct TenantShares {
    /// Connections of one tenant.
    connections: usize,
    by_tenant: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
    waiting: AtomicUsize,
}

/// Counts a call that waits, until it is dropped.
struct InLine<'a>(&'a AtomicUsize);

impl<'a> InLine<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TenantShares {
    /// Shares of so many percent of a pool's connections, and at least one connection.
    pub(crate) fn new(connections: usize, percent: u32) -> Self {
        let connections = (connections * percent as usize).div_ceil(100).max(1);
        Self { connections, by_tenant: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    /// Waits until the tenant has less than its share in use. The permit stands for one connection.
    pub(crate) async fn acquire(&self, tenant: TenantId) -> OwnedSemaphorePermit {
        let share = self.share_of(tenant);
        if let Ok(permit) = Arc::clone(&share).try_acquire_owned() {
            return permit;
        }
        let _in_line = InLine::new(&self.waiting);
        share.acquire_owned().await.expect("nobody closes a share")
    }

    /// Calls that wait in all lines.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A tenant's share; it is remembered while a call has some of it, or waits for it.
    fn share_of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut by_tenant = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = by_tenant.get(&tenant).and_then(Weak::upgrade) {
            return share;
        }
        if by_tenant.len() == by_tenant.capacity() {
            by_tenant.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.connections));
        by_tenant.insert(tenant, Arc::downgrade(&share));
        share
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
        let remembered = shares.by_tenant.lock().expect("nobody panicked").len();
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
