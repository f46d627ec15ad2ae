//! Limits the bytes of messages and changes that all watchers of the process hold. A page is read
//! only after the bytes of the largest possible page are reserved. Bytes that the page does not
//! need are released at once; those of each event are released when the reader has taken the event.

use anneal_core::{
    caller::TenantId,
    limits::{MESSAGE_BYTES, PAGE_CONTENT_BYTES},
};

use super::MAX_DB_OUTAGE;
use crate::{
    failure::Failure,
    limits::concurrency::{ConcurrencyLimit, Permit, TenantShare},
};

/// Most bytes that watchers hold: four of the largest messages.
const MAX_HELD_BYTES: usize = 4 * MESSAGE_BYTES;
/// Bytes of one permit.
const UNIT_BYTES: usize = 1024;

/// The budget for bytes of messages and changes that were read and not yet taken by a reader.
pub(crate) struct WatchBudget(ConcurrencyLimit);

/// Reserved bytes, released when dropped.
#[derive(Debug)]
pub(crate) struct BudgetPermit(Permit);

impl WatchBudget {
    pub(super) fn new(tenant_share: TenantShare) -> Self {
        Self(ConcurrencyLimit::new(
            units(MAX_HELD_BYTES) as usize,
            tenant_share,
        ))
    }

    /// Reserves the bytes of the largest possible page. Waiters are served in order. Fails with
    /// `Overloaded` after [`MAX_DB_OUTAGE`]: while the database is unavailable, other watchers may
    /// hold their bytes for that long.
    pub(crate) async fn reserve_page(
        &self,
        tenant: TenantId,
        with_content: bool,
    ) -> Result<BudgetPermit, Failure> {
        let most = if with_content {
            // The limit of a page does not apply to its first message.
            MESSAGE_BYTES
        } else {
            PAGE_CONTENT_BYTES as usize
        };
        self.reserve(tenant, most).await
    }

    async fn reserve(&self, tenant: TenantId, bytes: usize) -> Result<BudgetPermit, Failure> {
        let acquiring = self.0.acquire(tenant, units(bytes));
        tokio::time::timeout(MAX_DB_OUTAGE, acquiring)
            .await
            .map_err(|_| Failure::Overloaded)?
            .map(BudgetPermit)
    }
}

impl BudgetPermit {
    /// Splits off the bytes of an event, or all that is left.
    pub(crate) fn split(&mut self, bytes: usize) -> Option<Self> {
        let wanted = (units(bytes) as usize).min(self.0.count());
        self.0.split(wanted).map(Self)
    }
}

/// Permits for this many bytes, at most the whole budget.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.min(MAX_HELD_BYTES).div_ceil(UNIT_BYTES))
        .expect("the whole budget is 262,144 permits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unused_bytes_are_released_at_once_and_the_rest_with_each_event() {
        let budget = WatchBudget::new(TenantShare::Whole);
        let all = budget.0.available();
        let mut permit = budget
            .reserve_page(TenantId::DEFAULT, true)
            .await
            .expect("the bytes are free");
        assert_eq!(all - budget.0.available(), MESSAGE_BYTES / UNIT_BYTES);
        let events: Vec<_> = (0..2).map(|_| permit.split(10 * UNIT_BYTES + 1)).collect();
        drop(permit);
        assert_eq!(
            all - budget.0.available(),
            22,
            "eleven permits for each event: ten, and one for a single byte"
        );
        drop(events);
        assert_eq!(budget.0.available(), all);
        let mut permit = budget
            .reserve(TenantId::DEFAULT, MAX_HELD_BYTES * 2)
            .await
            .expect("a reservation above the budget takes all of it");
        assert_eq!(budget.0.available(), 0);
        assert!(permit.split(MAX_HELD_BYTES * 2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_fails_if_the_bytes_do_not_become_free_in_time() {
        let budget = WatchBudget::new(TenantShare::Whole);
        let held = budget
            .reserve(TenantId::DEFAULT, MAX_HELD_BYTES)
            .await
            .expect("the bytes are free");
        assert!(matches!(
            budget.reserve_page(TenantId::DEFAULT, false).await,
            Err(Failure::Overloaded)
        ));
        drop(held);
        budget
            .reserve_page(TenantId::DEFAULT, false)
            .await
            .expect("the bytes are free again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_with_stalled_readers_holds_at_most_its_share() {
        let budget = WatchBudget::new(TenantShare::Percent(50));
        let (slow, other) = (TenantId::DEFAULT, TenantId(uuid::Uuid::nil()));
        // Two pages of 64 MiB are half of the budget.
        let held = [
            budget
                .reserve_page(slow, true)
                .await
                .expect("the bytes are free"),
            budget
                .reserve_page(slow, true)
                .await
                .expect("the bytes are free"),
        ];
        assert!(matches!(
            budget.reserve_page(slow, false).await,
            Err(Failure::Overloaded)
        ));
        let others = [
            budget
                .reserve_page(other, true)
                .await
                .expect("the bytes are free"),
            budget
                .reserve_page(other, true)
                .await
                .expect("the bytes are free"),
        ];
        drop((held, others));
        budget
            .reserve_page(slow, false)
            .await
            .expect("the bytes are free again");
    }
}
