//! What the watchers of a process hold of messages, together: a page is read only when there is room for the largest that
//! it can be, and each of its events gives its room back when its reader is done with it.

use std::sync::Arc;

use anneal_core::limits::{MESSAGE_BYTES, PAGE_CONTENT_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::registry::PATIENCE;
use crate::status::Failure;

/// Bytes that watchers hold at most: four of the largest messages.
const BYTES: usize = 4 * MESSAGE_BYTES;
/// Room is counted in so many bytes.
const UNIT: usize = 1024;

/// Room for messages that were read and not yet taken.
pub(super) struct Budget(Arc<Semaphore>);

/// Some of it, given back when dropped.
#[derive(Debug)]
pub(super) struct Room(OwnedSemaphorePermit);

impl Budget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(units(BYTES) as usize)))
    }

    /// Room for a page of messages whose sizes are not known yet, once there is any; who asks first gets it first.
    pub(super) async fn page(&self, with_content: bool) -> Result<Room, Failure> {
        let most = if with_content { MESSAGE_BYTES } else { PAGE_CONTENT_BYTES as usize };
        self.room(most).await
    }

    async fn room(&self, bytes: usize) -> Result<Room, Failure> {
        let asked = Arc::clone(&self.0).acquire_many_owned(units(bytes));
        let given = tokio::time::timeout(PATIENCE, asked).await.map_err(|_| Failure::Overloaded)?;
        given.map(Room).map_err(|_| Failure::Panicked)
    }
}

impl Room {
    /// Splits off what an event of so many bytes takes, or all that is left.
    pub(super) fn part(&mut self, bytes: usize) -> Option<Self> {
        let wanted = (units(bytes) as usize).min(self.0.num_permits());
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
        let budget = Budget::new();
        let all = budget.0.available_permits();
        let mut room = budget.page(true).await.expect("there is room");
        assert_eq!(all - budget.0.available_permits(), MESSAGE_BYTES / UNIT);
        let events: Vec<_> = (0..2).map(|_| room.part(10 * UNIT + 1)).collect();
        drop(room);
        assert_eq!(all - budget.0.available_permits(), 22);
        drop(events);
        assert_eq!(budget.0.available_permits(), all);
        let mut room = budget.room(BYTES * 2).await.expect("the largest takes all of it");
        assert_eq!(budget.0.available_permits(), 0);
        assert!(room.part(BYTES * 2).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_room_for_a_minute_is_turned_away() {
        let budget = Budget::new();
        let held = budget.room(BYTES).await.expect("there is room");
        assert!(matches!(budget.page(false).await, Err(Failure::Overloaded)));
        drop(held);
        budget.page(false).await.expect("there is room again");
    }
}
