//! Appends that wait for a batch, and the order in which they are taken: tenants in turn, each
//! tenant's appends in the order in which they came. Two appends of one conversation are never
//! under way at once, neither in one batch nor in two batches that run at the same time. Also
//! decides when a batch begins.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use anneal_core::caller::{Caller, ConversationId, TenantId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Append, Appended};
use crate::error::StoreError;

/// Most appends in one batch.
pub(super) const BATCH_APPENDS: usize = 128;

/// No append is added to a batch that has this many bytes of content or more.
const BATCH_BYTES: usize = 1024 * 1024;

/// While a batch runs for longer than this, another one begins for the appends that wait, however
/// few: its connection may be dead.
const SLOW_BATCH: Duration = Duration::from_millis(100);

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

/// A conversation as callers name it. The key includes the tenant: another tenant may send the same
/// conversation id, but cannot reach this conversation with it.
pub(super) type ConversationKey = (TenantId, ConversationId);

impl PendingAppend {
    pub(super) const fn key(&self) -> ConversationKey {
        (self.caller.tenant(), self.append.conversation)
    }
}

/// The appends of one conversation.
#[derive(Default)]
struct ConversationQueue {
    /// The oldest first.
    waiting: VecDeque<PendingAppend>,
    /// Whether a running batch has an append of this conversation. The others wait for its end.
    is_taken: bool,
}

/// The appends that wait, and the number of batches that run.
pub(super) struct PendingAppends {
    /// Conversations of which an append waits or is taken.
    conversations: HashMap<ConversationKey, ConversationQueue>,
    /// For each tenant the conversations of which an append can be taken, in the order in which
    /// they are taken.
    ready: HashMap<TenantId, VecDeque<ConversationId>>,
    /// The tenants in `ready`, the next one first.
    tenant_order: VecDeque<TenantId>,
    /// Number of conversations in `ready`: as many appends could be taken now.
    ready_count: usize,
    /// Batches that run.
    running: u32,
    /// Most batches that may run at once.
    most_running: u32,
    /// When the newest batch began. None: none has begun yet.
    last_began: Option<Instant>,
}

impl PendingAppends {
    /// No appends. At most `most_running` batches will run at once.
    pub(super) fn new(most_running: u32) -> Self {
        Self {
            conversations: HashMap::new(),
            ready: HashMap::new(),
            tenant_order: VecDeque::new(),
            ready_count: 0,
            running: 0,
            most_running,
            last_began: None,
        }
    }

    /// Adds an append behind the others of its conversation and of its tenant.
    pub(super) fn push(&mut self, waiting: PendingAppend) {
        let key = waiting.key();
        let queue = self.conversations.entry(key).or_default();
        queue.waiting.push_back(waiting);
        if queue.waiting.len() == 1 && !queue.is_taken {
            self.ready_queue(key.0).push_back(key.1);
        }
    }

    /// The ready conversations of a tenant, to which the caller adds one. If there are none, the
    /// tenant is added to `tenant_order`.
    fn ready_queue(&mut self, tenant: TenantId) -> &mut VecDeque<ConversationId> {
        self.ready_count += 1;
        let queue = self.ready.entry(tenant).or_default();
        if queue.is_empty() {
            self.tenant_order.push_back(tenant);
        }
        queue
    }

    /// Whether a batch begins now. Counts it as running if it does. One batch after the other
    /// stores more appends with less work than several at once, so a further one begins only while
    /// a full batch waits, or if the newest one is slow.
    pub(super) fn begin_batch(&mut self, now: Instant) -> bool {
        let is_slow = || {
            self.last_began
                .is_some_and(|began| now.saturating_duration_since(began) >= SLOW_BATCH)
        };
        let begins = self.ready_count > 0
            && self.running < self.most_running
            && (self.running == 0 || self.ready_count >= BATCH_APPENDS || is_slow());
        if begins {
            self.running += 1;
            self.last_began = Some(now);
        }
        begins
    }

    /// Takes the appends of a batch. Drops appends whose callers have disconnected.
    pub(super) fn take(&mut self) -> Vec<PendingAppend> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH_APPENDS && bytes < BATCH_BYTES {
            let Some(tenant) = self.tenant_order.pop_front() else {
                break;
            };
            let Some(queue) = self.ready.get_mut(&tenant) else {
                continue;
            };
            let next = queue.pop_front();
            if queue.is_empty() {
                self.ready.remove(&tenant);
            } else {
                self.tenant_order.push_back(tenant);
            }
            let Some(conversation) = next else {
                continue;
            };
            self.ready_count -= 1;
            if let Some(waiting) = self.take_of((tenant, conversation)) {
                bytes += waiting.append.content_bytes();
                batch.push(waiting);
            }
        }
        batch
    }

    /// Takes the oldest append of a conversation. None: all callers have disconnected.
    fn take_of(&mut self, key: ConversationKey) -> Option<PendingAppend> {
        let queue = self.conversations.get_mut(&key)?;
        while let Some(waiting) = queue.waiting.pop_front() {
            if !waiting.answer.is_closed() {
                queue.is_taken = true;
                return Some(waiting);
            }
        }
        self.conversations.remove(&key);
        None
    }

    /// Ends a batch that had appends of these conversations. The appends that it has `skipped` wait
    /// again, before the others of their conversations and of their tenants.
    pub(super) fn end_batch(&mut self, taken: &[ConversationKey], skipped: Vec<PendingAppend>) {
        self.running -= 1;
        for waiting in skipped {
            let queue = self.conversations.entry(waiting.key()).or_default();
            queue.waiting.push_front(waiting);
        }
        // The last one first, because each is put before the others.
        for key in taken.iter().rev() {
            let Some(queue) = self.conversations.get_mut(key) else {
                continue;
            };
            queue.is_taken = false;
            if queue.waiting.is_empty() {
                self.conversations.remove(key);
            } else {
                self.ready_queue(key.0).push_front(key.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anneal_core::message::{Message, Part, Role};
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
        let append = Append::new(id, Some(request_id.into()), None, &[message], None);
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

    /// Adds appends in this order. Their callers wait as long as the result exists.
    fn push_all<'a>(
        pending: &mut PendingAppends,
        appends: impl IntoIterator<Item = (u128, u128, &'a str)>,
    ) -> Vec<oneshot::Receiver<BatchAnswer>> {
        let push = |(tenant, conversation, name)| {
            let (waiting, answered) = waiting(tenant, conversation, name);
            pending.push(waiting);
            answered
        };
        appends.into_iter().map(push).collect()
    }

    /// Begins a batch and takes its appends.
    fn begin(pending: &mut PendingAppends) -> Vec<PendingAppend> {
        assert!(pending.begin_batch(Instant::now()), "no batch may begin");
        pending.take()
    }

    /// Ends a batch. Skips all of its appends or none.
    fn end(pending: &mut PendingAppends, batch: Vec<PendingAppend>, skips: bool) {
        let taken: Vec<ConversationKey> = batch.iter().map(PendingAppend::key).collect();
        pending.end_batch(&taken, if skips { batch } else { Vec::new() });
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
        let mut pending = PendingAppends::new(1);
        let _callers = push_all(
            &mut pending,
            [
                (1, 1, "a1"),
                (1, 2, "a2"),
                (1, 3, "a3"),
                (2, 4, "b1"),
                (3, 5, "c1"),
                (2, 6, "b2"),
            ],
        );
        let batch = begin(&mut pending);
        assert_eq!(names(&batch), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        end(&mut pending, batch, false);
        assert!(!pending.begin_batch(Instant::now()), "nothing waits");
    }

    #[test]
    fn a_flood_of_one_tenant_does_not_displace_the_others() {
        let mut pending = PendingAppends::new(1);
        let flood = (0..10 * BATCH_APPENDS as u128).map(|number| (1, number, "flood"));
        let _callers = push_all(&mut pending, flood.chain([(2, u128::MAX, "late")]));
        let batch = begin(&mut pending);
        assert_eq!(batch.len(), BATCH_APPENDS);
        assert_eq!(names(&batch)[1], "late", "the tenants take turns");
    }

    #[test]
    fn appends_of_one_conversation_are_taken_one_after_the_other() {
        let mut pending = PendingAppends::new(1);
        let _callers = push_all(
            &mut pending,
            [
                (1, 1, "first"),
                (1, 1, "second"),
                (1, 2, "other"),
                (1, 1, "third"),
                (1, 3, "later"),
            ],
        );
        let batch = begin(&mut pending);
        assert_eq!(names(&batch), ["first", "other", "later"]);
        end(&mut pending, batch, false);
        let batch = begin(&mut pending);
        assert_eq!(names(&batch), ["second"]);
        end(&mut pending, batch, true);
        let batch = begin(&mut pending);
        assert_eq!(
            names(&batch),
            ["second"],
            "an append that was skipped is taken before the others of its conversation"
        );
        end(&mut pending, batch, false);
        assert_eq!(names(&begin(&mut pending)), ["third"]);
    }

    #[test]
    fn two_batches_that_run_at_once_have_no_conversation_in_common() {
        let mut pending = PendingAppends::new(2);
        let conversations = 0..BATCH_APPENDS as u128;
        let _first = push_all(&mut pending, conversations.clone().map(|id| (1, id, "1")));
        let first = begin(&mut pending);
        let others = BATCH_APPENDS as u128..2 * BATCH_APPENDS as u128;
        let _second = push_all(
            &mut pending,
            conversations.chain(others).map(|id| (1, id, "2")),
        );
        let second = begin(&mut pending);
        assert_eq!(second.len(), BATCH_APPENDS);
        let taken: Vec<ConversationKey> = first.iter().map(PendingAppend::key).collect();
        assert!(
            !second.iter().any(|waiting| taken.contains(&waiting.key())),
            "an append overtakes the one before it"
        );
        end(&mut pending, first, false);
        let third = begin(&mut pending);
        assert!(third.iter().all(|waiting| taken.contains(&waiting.key())));
        assert_eq!(third.len(), BATCH_APPENDS);
    }

    #[test]
    fn a_second_batch_begins_only_while_a_full_one_waits_or_the_first_is_slow() {
        let mut pending = PendingAppends::new(2);
        let now = Instant::now();
        assert!(!pending.begin_batch(now), "nothing waits");
        let _first = push_all(&mut pending, [(1, 0, "first")]);
        assert!(pending.begin_batch(now));
        assert_eq!(pending.take().len(), 1);
        let few = (1..BATCH_APPENDS as u128).map(|id| (1, id, "few"));
        // Appends that wait for a running batch could not be taken, so they do not count.
        let blocked = (0..BATCH_APPENDS).map(|_| (1, 0, "blocked"));
        let _few = push_all(&mut pending, few.chain(blocked));
        assert!(!pending.begin_batch(now + SLOW_BATCH / 2));
        let _last = push_all(&mut pending, [(2, 0, "last")]);
        assert!(pending.begin_batch(now), "a full batch waits");
        assert!(!pending.begin_batch(now), "two run");
        assert_eq!(pending.take().len(), BATCH_APPENDS);

        let mut pending = PendingAppends::new(2);
        let _callers = push_all(&mut pending, [(1, 0, "slow")]);
        assert!(pending.begin_batch(now));
        assert_eq!(pending.take().len(), 1);
        let _waits = push_all(&mut pending, [(1, 1, "waits")]);
        assert!(!pending.begin_batch(now));
        assert!(pending.begin_batch(now + SLOW_BATCH), "the first is slow");
    }

    #[test]
    fn a_conversation_id_of_another_tenant_does_not_block_an_append() {
        let mut pending = PendingAppends::new(1);
        let _callers = push_all(&mut pending, [(2, 1, "foreign"), (1, 1, "own")]);
        assert_eq!(names(&begin(&mut pending)), ["foreign", "own"]);
    }

    #[test]
    fn appends_of_callers_that_have_disconnected_are_dropped() {
        let mut pending = PendingAppends::new(1);
        drop(push_all(&mut pending, [(1, 1, "abandoned")]));
        let batch = begin(&mut pending);
        assert!(batch.is_empty());
        end(&mut pending, batch, false);
        assert!(!pending.begin_batch(Instant::now()), "nothing waits");
        let _caller = push_all(&mut pending, [(1, 1, "next")]);
        assert_eq!(names(&begin(&mut pending)), ["next"]);
    }
}
