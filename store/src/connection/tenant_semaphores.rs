//! One semaphore per tenant: limits how much of a shared resource one tenant uses at once. Also a
//! guard that counts the calls that wait for a semaphore.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use anneal_core::caller::TenantId;
use tokio::sync::Semaphore;

/// The semaphores of the tenants that use a resource now.
pub struct TenantSemaphores {
    /// Permits of one tenant.
    permits: usize,
    by_tenant: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

impl TenantSemaphores {
    /// Semaphores that give each tenant `percent` of `permits`, rounded up, at least one.
    pub fn new(permits: usize, percent: u32) -> Self {
        Self {
            permits: permits
                .saturating_mul(percent as usize)
                .div_ceil(100)
                .max(1),
            by_tenant: Mutex::default(),
        }
    }

    /// Permits of one tenant.
    pub const fn permits(&self) -> usize {
        self.permits
    }

    /// A tenant's semaphore. It is kept as long as it, or one of its permits, is in use.
    pub fn of(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut by_tenant = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = by_tenant.get(&tenant).and_then(Weak::upgrade) {
            return semaphore;
        }
        if by_tenant.len() == by_tenant.capacity() {
            by_tenant.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.permits));
        by_tenant.insert(tenant, Arc::downgrade(&semaphore));
        semaphore
    }

    /// Whether a permit of this tenant's semaphore is free now.
    pub fn has_free(&self, tenant: TenantId) -> bool {
        let by_tenant = self
            .by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        by_tenant
            .get(&tenant)
            .and_then(Weak::upgrade)
            .is_none_or(|semaphore| semaphore.available_permits() > 0)
    }

    /// Number of tenants whose semaphores are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.by_tenant
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }
}

/// A guard that counts one waiting call until the guard is dropped.
pub struct WaitCount<'a>(&'a AtomicUsize);

impl<'a> WaitCount<'a> {
    /// Adds one to the counter.
    pub fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
