//! Rooms: what callers may have under way at once. Where callers have tenants of their own, one of them takes at most its share
//! of a room, so that whoever fills it leaves something to the others.

use std::{future::Future, sync::Arc};

use anneal_core::caller::TenantId;
use anneal_store::TenantSemaphores;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::status::Failure;

/// How tenants share rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All callers are one tenant, which may take all of a room.
    Whole,
    /// A tenant takes at most so many percent of a room, and at least one place.
    Percent(u32),
}

/// A room of so many places. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Room {
    all: Arc<Semaphore>,
    shares: Option<Arc<TenantSemaphores>>,
}

/// Places in a room, given back when dropped.
#[derive(Debug)]
pub(crate) struct Places {
    all: OwnedSemaphorePermit,
    share: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// A room of so many places.
    pub(crate) fn new(places: usize, sharing: Sharing) -> Self {
        let shares = match sharing {
            Sharing::Whole => None,
            Sharing::Percent(percent) => Some(Arc::new(TenantSemaphores::new(places, percent))),
        };
        Self { all: Arc::new(Semaphore::new(places)), shares }
    }

    /// A place for a caller of this tenant, or a refusal.
    pub(crate) fn enter(&self, tenant: TenantId) -> Result<Places, Failure> {
        let share = self.shares.as_ref().map(|shares| shares.of(tenant).try_acquire_owned()).transpose();
        let share = share.map_err(|_| Failure::Overloaded)?;
        let all = Arc::clone(&self.all).try_acquire_owned().map_err(|_| Failure::Overloaded)?;
        Ok(Places { all, share })
    }

    /// So many places, once there are any for this tenant; who asks first gets them first. Never more than its share.
    pub(crate) async fn wait(&self, tenant: TenantId, places: u32) -> Result<Places, Failure> {
        Ok(self.wait_in_turn(tenant, places, async {}).await?.0)
    }

    /// The same, where something else has to be waited for: after the tenant's own places, before those of all tenants. So a
    /// tenant has one call at most that waits there for what all tenants share.
    pub(crate) async fn wait_in_turn<T>(
        &self,
        tenant: TenantId,
        places: u32,
        turn: impl Future<Output = T>,
    ) -> Result<(Places, T), Failure> {
        let mut wanted = places;
        let share = match &self.shares {
            Some(shares) => {
                wanted = wanted.min(u32::try_from(shares.permits()).unwrap_or(u32::MAX));
                // Whoever waits for its own tenant's places holds none that others wait for.
                Some(shares.of(tenant).acquire_many_owned(wanted).await.map_err(|_| Failure::Panicked)?)
            }
            None => None,
        };
        let turn = turn.await;
        let all = Arc::clone(&self.all).acquire_many_owned(wanted).await.map_err(|_| Failure::Panicked)?;
        Ok((Places { all, share }, turn))
    }

    /// Places that nobody has taken.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.all.available_permits()
    }
}

impl Places {
    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.all.num_permits()
    }

    /// So many of them by themselves; None: there are fewer.
    pub(crate) fn split(&mut self, places: usize) -> Option<Self> {
        let all = self.all.split(places)?;
        let share = self.share.as_mut().and_then(|share| share.split(places));
        Some(Self { all, share })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ANNA: TenantId = TenantId(Uuid::from_u128(1));
    const BERT: TenantId = TenantId(Uuid::from_u128(2));

    #[test]
    fn a_tenant_takes_half_of_a_room_and_the_only_one_all_of_it() {
        let room = Room::new(4, Sharing::Percent(50));
        let held: Vec<_> = (0..2).map(|_| room.enter(ANNA).expect("there is room")).collect();
        assert!(matches!(room.enter(ANNA), Err(Failure::Overloaded)));
        let others: Vec<_> = (0..2).map(|_| room.enter(BERT).expect("there is room for others")).collect();
        assert!(matches!(room.enter(BERT), Err(Failure::Overloaded)));
        drop((held, others));
        room.enter(ANNA).expect("there is room again");
        let whole = Room::new(3, Sharing::Whole);
        let held: Vec<_> = (0..3).map(|_| whole.enter(ANNA).expect("there is room")).collect();
        assert!(matches!(whole.enter(ANNA), Err(Failure::Overloaded)));
        drop(held);
        Room::new(1, Sharing::Percent(50)).enter(ANNA).expect("a room of one place has it for everyone");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_its_share_does_not_hold_up_others() {
        let room = Room::new(8, Sharing::Percent(50));
        let mut held = room.wait(ANNA, 4).await.expect("there is room");
        let waiting = room.wait(ANNA, 4);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let others = room.wait(BERT, 100).await.expect("there is room for others");
        assert_eq!((others.count(), room.left()), (4, 0), "no more than its share");
        let part = held.split(1).expect("there are four");
        drop(held);
        assert!(futures::poll!(&mut waiting).is_pending(), "one is still taken");
        drop(part);
        assert_eq!(waiting.await.expect("there is room").count(), 4);
    }
}
