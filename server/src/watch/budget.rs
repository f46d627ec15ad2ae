//! What the watchers of a process hold of messages, together: a page is read only when there is room for the largest that
//! it can be, and each of its events gives its room back when its reader is done with it.

use anneal_core::{
    caller::TenantId,
    limits::{MESSAGE_BYTES, PAGE_CONTENT_BYTES},
};

use super::registry::PATIENCE;
use crate::{
    room::{Places, Room, Sharing},
    status::Failure,
};

/// Bytes that watchers hold at most: four of the largest messages.
const BYTES: usize = 4 * MESSAGE_BYTES;
/// Room is counted in so many bytes.
const UNIT: usize = 1024;

/// Room for messages that were read and not yet taken.
pub(super) struct Budget(Room);

/// Some of it, given back when dropped.
#[derive(Debug)]
pub(super) struct Held(Places);

impl Budget {
    pub(super) fn new(sharing: Sharing) -> Self {
        Self(Room::new(units(BYTES) as usize, sharing))
    }

    /// Room for a page of messages whose sizes are not known yet, once there is any; who asks first gets it first.
    pub(super) async fn page(&self, tenant: TenantId, with_content: bool) -> Result<Held, Failure> {
        let most = if with_content { MESSAGE_BYTES } else { PAGE_CONTENT_BYTES as usize };
        self.room(tenant, most).await
    }

    async fn room(&self, tenant: TenantId, bytes: usize) -> Result<Held, Failure> {
        let asked = self.0.wait(tenant, units(bytes));
        tokio::time::timeout(PATIENCE, asked).await.map_err(|_| Failure::Overloaded)?.map(Held)
    }
}

impl Held {
    /// Splits off what an event of so many bytes takes, or all that is left.
    pub(super) fn part(&mut self, bytes: usize) -> Option<Self> {
        let wanted = (units(bytes) as usize).min(self.0.count());
        self.0.split(wanted).map(Self)
    }
}

/// What this takes of the budget: no more than all of it.
fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.min(BYTES).div_ceil(UNIT)).expect("all of it is 262,144 units")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_not_needed_is_given_back_at_once_and_the_rest_when_its_event_is_gone() {
        let budget = Budget::new(Sharing::Whole);
        let all = budget.0.left();
        let mut room = budget.page(TenantId::DEFAULT, true).await.expect("there is room");
        assert_eq!(all - budget.0.left(), MESSAGE_BYTES / UNIT);
        let events: Vec<_> = (0..2).map(|_| room.part(10 * UNIT + 1)).collect();
        drop(room);
        assert_eq!(all - budget.0.left(), 22);
        drop(events);
        assert_eq!(budget.0.left(), all);
        let mut room = budget.room(TenantId::DEFAULT, BYTES * 2).await.expect("the largest takes all of it");
        assert_eq!(budget.0.left(), 0);
        assert!(room.part(BYTES * 2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_room_for_a_minute_is_turned_away() {
        let budget = Budget::new(Sharing::Whole);
        let held = budget.room(TenantId::DEFAULT, BYTES).await.expect("there is room");
        assert!(matches!(budget.page(TenantId::DEFAULT, false).await, Err(Failure::Overloaded)));
        drop(held);
        budget.page(TenantId::DEFAULT, false).await.expect("there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_whose_readers_take_nothing_leaves_half_to_the_others() {
        let budget = Budget::new(Sharing::Percent(50));
        let (slow, other) = (TenantId::DEFAULT, TenantId(uuid::Uuid::nil()));
        let held = [budget.page(slow, true).await.expect("room"), budget.page(slow, true).await.expect("room")];
        assert!(matches!(budget.page(slow, false).await, Err(Failure::Overloaded)));
        let others = [budget.page(other, true).await.expect("room"), budget.page(other, true).await.expect("room")];
        drop((held, others));
        budget.page(slow, false).await.expect("there is room again");
    }
}
