//! Limits the calls that wait to keep a provider's cache warm, and the contexts and options that
//! they hold. With several tenants, each may use its share of both.

use anneal_core::caller::TenantId;

use crate::limits::concurrency::{ConcurrencyLimit, Permit, TenantShare};

/// Most calls that wait.
const MAX_WAITING: usize = 256;
/// Most KiB that all of them hold together.
const MAX_KIB: usize = 64 * 1024;

/// The limit of one process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct CachePings {
    calls: ConcurrencyLimit,
    kib: ConcurrencyLimit,
}

/// Counts one call until it is dropped.
pub(crate) struct PingPermit {
    _call: Permit,
    _kib: Permit,
}

impl CachePings {
    /// No call waits yet.
    pub(crate) fn new(tenant_share: TenantShare) -> Self {
        Self {
            calls: ConcurrencyLimit::new(MAX_WAITING, tenant_share),
            kib: ConcurrencyLimit::new(MAX_KIB, tenant_share),
        }
    }

    /// Counts a call that holds so many bytes; None: the limit of the tenant or of all tenants is
    /// reached.
    pub(crate) fn try_acquire(&self, tenant: TenantId, bytes: usize) -> Option<PingPermit> {
        let kib = u32::try_from(bytes.div_ceil(1_024)).ok()?;
        Some(PingPermit {
            _call: self.calls.try_acquire(tenant).ok()?,
            _kib: self.kib.try_acquire_many(tenant, kib).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ANNA: TenantId = TenantId(Uuid::from_u128(1));
    const BERT: TenantId = TenantId(Uuid::from_u128(2));

    #[test]
    fn calls_and_their_bytes_are_limited_until_they_are_dropped() {
        let pings = CachePings::new(TenantShare::Whole);
        let half = MAX_KIB / 2 * 1_024;
        let first = pings.try_acquire(ANNA, half).expect("there is room");
        let _second = pings.try_acquire(ANNA, half).expect("there is room");
        assert!(pings.try_acquire(ANNA, 1).is_none(), "no bytes are left");
        drop(first);
        let _many: Vec<_> = (1..MAX_WAITING)
            .map(|_| pings.try_acquire(ANNA, 1).expect("there is room"))
            .collect();
        assert!(pings.try_acquire(ANNA, 1).is_none(), "no calls are left");
    }

    #[test]
    fn a_tenant_that_uses_up_its_share_leaves_the_rest_to_others() {
        let pings = CachePings::new(TenantShare::Percent(50));
        let half = MAX_KIB / 2 * 1_024;
        assert!(
            pings.try_acquire(ANNA, half + 1).is_none(),
            "over its share"
        );
        let large = pings.try_acquire(ANNA, half).expect("there is room");
        assert!(
            pings.try_acquire(ANNA, 1).is_none(),
            "its bytes are used up"
        );
        drop(large);
        let _many: Vec<_> = (0..MAX_WAITING / 2)
            .map(|_| pings.try_acquire(ANNA, 1).expect("there is room"))
            .collect();
        assert!(
            pings.try_acquire(ANNA, 1).is_none(),
            "its calls are used up"
        );
        assert!(pings.try_acquire(BERT, half).is_some(), "there is room");
    }
}
