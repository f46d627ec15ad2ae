//! Appends that wait for a batch, and the order in which they are taken: tenants in turn, each
//! tenant's appends in the order in which they came, and never two appends of one conversation in
//! one batch.

use std::collections::{HashMap, HashSet, VecDeque};

use anneal_core::caller::{Caller, TenantId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Append, Appended};
use crate::error::StoreError;

/// Most appends in one batch.
pub(super) const BATCH_APPENDS: usize = 128;

/// No append is added to a batch that has this many bytes of content or more.
const BATCH_BYTES: usize = 1024 * 1024;

/// The batcher's answer to an append.
pub(super) enum BatchAnswer {
    /// The append is stored, or has failed.
    Ended(Result<Appended, StoreError>),
    /// The caller has to store the append alone, under its conversation's lock. There it can wait
    /// for the lock, and learns why the append is refused.
    StoreUnderLock,
}

/// An append, and the channel to its caller.
pub(super) struct PendingAppend {
    pub(super) caller: Caller,
    pub(super) append: Append,
    pub(super) answer: oneshot::Sender<BatchAnswer>,
    /// How often the append was skipped because its conversation could not be locked.
    pub(super) skips: u8,
    /// The permits for the memory that the append takes while it waits, one per KiB.
    pub(super) _memory: OwnedSemaphorePermit,
}

/// The appends that wait for one batch worker.
#[derive(Default)]
pub(super) struct PendingAppends {
    tenants: HashMap<TenantId, VecDeque<PendingAppend>>,
    /// Tenants with waiting appends, the next one first.
    tenant_order: VecDeque<TenantId>,
}

impl PendingAppends {
    pub(super) fn is_empty(&self) -> bool {
        self.tenant_order.is_empty()
    }

    /// Adds an append behind the others of its tenant.
    pub(super) fn push(&mut self, waiting: PendingAppend) {
        self.queue_of(waiting.caller.tenant()).push_back(waiting);
    }

    /// Puts appends that were taken but not stored back in front of the other appends of their
    /// tenants. `skipped` has the oldest first.
    pub(super) fn put_back(&mut self, skipped: Vec<PendingAppend>) {
        for waiting in skipped.into_iter().rev() {
            self.queue_of(waiting.caller.tenant()).push_front(waiting);
        }
    }

    /// The queue of a tenant, to which the caller adds an append. If the queue is empty, the tenant
    /// is added to `tenant_order`.
    fn queue_of(&mut self, tenant: TenantId) -> &mut VecDeque<PendingAppend> {
        let queue = self.tenants.entry(tenant).or_default();
        if queue.is_empty() {
            self.tenant_order.push_back(tenant);
        }
        queue
    }

    /// Takes the appends of the next batch. Drops appends whose callers have disconnected.
    pub(super) fn take(&mut self) -> Vec<PendingAppend> {
        let (mut batch, mut later, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut conversations = HashSet::new();
        while batch.len() < BATCH_APPENDS && bytes < BATCH_BYTES {
            let Some(tenant) = self.tenant_order.pop_front() else {
                break;
            };
            let Some(mut queue) = self.tenants.remove(&tenant) else {
                continue;
            };
            let Some(waiting) = queue.pop_front() else {
                continue;
            };
            if !queue.is_empty() {
                self.tenants.insert(tenant, queue);
                self.tenant_order.push_back(tenant);
            }
            if waiting.answer.is_closed() {
                continue;
            }
            // The key includes the tenant: another tenant may send the same conversation id, but
            // cannot reach this conversation with it.
            if conversations.insert((tenant, waiting.append.conversation)) {
                bytes += waiting.append.content_bytes();
                batch.push(waiting);
            } else {
                later.push(waiting);
            }
        }
        self.put_back(later);
        batch
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anneal_core::{
        caller::ConversationId,
        message::{Message, Part, Role},
    };
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;

    /// An append of a tenant to a conversation, identified by its request id.
    fn waiting(
        tenant: u128,
        conversation: u128,
        request_id: &str,
    ) -> (PendingAppend, oneshot::Receiver<BatchAnswer>) {
        let message = Message {
            role: Role::User,
            parts: vec![Part::Text { text: "x".into() }],
            metadata: std::collections::BTreeMap::new(),
        };
        let id = ConversationId(Uuid::from_u128(conversation));
        let append = Append::new(id, Some(request_id.into()), None, &[message]);
        let (answer, answered) = oneshot::channel();
        let caller = Caller::of(TenantId(Uuid::from_u128(tenant)));
        let memory = Arc::new(Semaphore::new(1))
            .try_acquire_owned()
            .expect("the semaphore is new");
        (
            PendingAppend {
                caller,
                append,
                answer,
                skips: 0,
                _memory: memory,
            },
            answered,
        )
    }

    /// The request ids of a batch's appends.
    fn names(batch: &[PendingAppend]) -> Vec<&str> {
        batch
            .iter()
            .filter_map(|waiting| waiting.append.request_id.as_deref())
            .collect()
    }

    #[test]
    fn tenants_are_served_in_turn_each_in_its_own_order() {
        let mut pending = PendingAppends::default();
        let mut receivers = Vec::new();
        for (tenant, conversation, name) in [
            (1, 1, "a1"),
            (1, 2, "a2"),
            (1, 3, "a3"),
            (2, 4, "b1"),
            (3, 5, "c1"),
            (2, 6, "b2"),
        ] {
            let (waiting, answered) = waiting(tenant, conversation, name);
            pending.push(waiting);
            receivers.push(answered);
        }
        assert_eq!(names(&pending.take()), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(pending.is_empty());
    }

    #[test]
    fn a_flood_of_one_tenant_does_not_displace_the_others() {
        let mut pending = PendingAppends::default();
        let mut receivers = Vec::new();
        for number in 0..10 * BATCH_APPENDS as u128 {
            let (waiting, answered) = waiting(1, number, "flood");
            pending.push(waiting);
            receivers.push(answered);
        }
        let (late, _answered) = waiting(2, u128::MAX, "late");
        pending.push(late);
        let batch = pending.take();
        assert_eq!(batch.len(), BATCH_APPENDS);
        assert_eq!(names(&batch)[1], "late", "the tenants take turns");
    }

    #[test]
    fn appends_of_one_conversation_are_taken_one_after_the_other() {
        let mut pending = PendingAppends::default();
        let mut receivers = Vec::new();
        for (conversation, name) in [(1, "first"), (1, "second"), (2, "other"), (1, "third")] {
            let (waiting, answered) = waiting(1, conversation, name);
            pending.push(waiting);
            receivers.push(answered);
        }
        assert_eq!(names(&pending.take()), ["first", "other"]);
        let second = pending.take();
        assert_eq!(names(&second), ["second"]);
        pending.put_back(second);
        assert_eq!(
            names(&pending.take()),
            ["second"],
            "an append that was put back is taken first"
        );
        assert_eq!(names(&pending.take()), ["third"]);
    }

    #[test]
    fn a_conversation_id_of_another_tenant_does_not_block_an_append() {
        let mut pending = PendingAppends::default();
        let (foreign, _answered_foreign) = waiting(2, 1, "foreign");
        let (own, _answered) = waiting(1, 1, "own");
        pending.push(foreign);
        pending.push(own);
        assert_eq!(names(&pending.take()), ["foreign", "own"]);
    }

    #[test]
    fn appends_of_callers_that_have_disconnected_are_dropped() {
        let mut pending = PendingAppends::default();
        let (abandoned, answered) = waiting(1, 1, "abandoned");
        drop(answered);
        pending.push(abandoned);
        assert!(pending.take().is_empty());
        assert!(pending.is_empty());
    }
}
