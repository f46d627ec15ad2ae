//! What waits for a lane, and the order in which it is taken: tenants in turn, what a tenant has sent in its order, and never
//! two appends of one conversation at a time.

use std::collections::{HashMap, HashSet, VecDeque};

use anneal_core::caller::{Caller, TenantId};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Append, lanes::Answer};

/// Appends of one statement, at most.
pub(super) const GROUP_APPENDS: usize = 128;
/// Bytes of content of one statement, beyond its first append.
const GROUP_BYTES: usize = 1024 * 1024;

/// An append, and who waits for its answer.
pub(super) struct Waiting {
    pub(super) caller: Caller,
    pub(super) append: Append,
    pub(super) answer: oneshot::Sender<Answer>,
    /// How often another transaction held its conversation.
    pub(super) passed_over: u8,
    /// What it takes of the room for what waits.
    pub(super) _room: OwnedSemaphorePermit,
}

/// The appends that wait for one lane.
#[derive(Default)]
pub(super) struct Queue {
    tenants: HashMap<TenantId, VecDeque<Waiting>>,
    /// Those that have something waiting, whose turn it is first.
    turns: VecDeque<TenantId>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds what has just come.
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.of(waiting.caller.tenant()).push_back(waiting);
    }

    /// Gives back what could not be done yet, the oldest first: it goes ahead of what its tenants have sent since.
    pub(super) fn put_back(&mut self, group: Vec<Waiting>) {
        for waiting in group.into_iter().rev() {
            self.of(waiting.caller.tenant()).push_front(waiting);
        }
    }

    fn of(&mut self, tenant: TenantId) -> &mut VecDeque<Waiting> {
        let line = self.tenants.entry(tenant).or_default();
        if line.is_empty() {
            self.turns.push_back(tenant);
        }
        line
    }

    /// Takes what one statement may hold. What nobody waits for any more is dropped.
    pub(super) fn take(&mut self) -> Vec<Waiting> {
        let (mut group, mut later, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut conversations = HashSet::new();
        while group.len() < GROUP_APPENDS && bytes < GROUP_BYTES {
            let Some(tenant) = self.turns.pop_front() else { break };
            let Some(mut line) = self.tenants.remove(&tenant) else { continue };
            let Some(waiting) = line.pop_front() else { continue };
            if !line.is_empty() {
                self.tenants.insert(tenant, line);
                self.turns.push_back(tenant);
            }
            if waiting.answer.is_closed() {
                continue;
            }
            // What a foreign tenant calls so is not this conversation.
            if conversations.insert((tenant, waiting.append.conversation)) {
                bytes += waiting.append.content_bytes();
                group.push(waiting);
            } else {
                later.push(waiting);
            }
        }
        self.put_back(later);
        group
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

    /// An append of a tenant to a conversation, told apart by its request id.
    fn waiting(tenant: u128, conversation: u128, request_id: &str) -> (Waiting, oneshot::Receiver<Answer>) {
        let message = Message {
            role: Role::User,
            parts: vec![Part::Text { text: "x".into() }],
            metadata: std::collections::BTreeMap::new(),
        };
        let id = ConversationId(Uuid::from_u128(conversation));
        let append = Append::new(id, Some(request_id.into()), None, &[message]);
        let (answer, answered) = oneshot::channel();
        let caller = Caller::of(TenantId(Uuid::from_u128(tenant)));
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("nobody else is in it");
        (Waiting { caller, append, answer, passed_over: 0, _room: room }, answered)
    }

    fn names(group: &[Waiting]) -> Vec<&str> {
        group.iter().filter_map(|waiting| waiting.append.request_id.as_deref()).collect()
    }

    #[test]
    fn tenants_are_served_in_turn_each_in_its_own_order() {
        let mut queue = Queue::default();
        let mut kept = Vec::new();
        for (tenant, conversation, name) in
            [(1, 1, "a1"), (1, 2, "a2"), (1, 3, "a3"), (2, 4, "b1"), (3, 5, "c1"), (2, 6, "b2")]
        {
            let (waiting, answered) = waiting(tenant, conversation, name);
            queue.push(waiting);
            kept.push(answered);
        }
        assert_eq!(names(&queue.take()), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_flood_of_one_tenant_leaves_room_for_the_others() {
        let mut queue = Queue::default();
        let mut kept = Vec::new();
        for number in 0..10 * GROUP_APPENDS as u128 {
            let (waiting, answered) = waiting(1, number, "flood");
            queue.push(waiting);
            kept.push(answered);
        }
        let (late, _answered) = waiting(2, u128::MAX, "late");
        queue.push(late);
        let group = queue.take();
        assert_eq!(group.len(), GROUP_APPENDS);
        assert_eq!(names(&group)[1], "late");
    }

    #[test]
    fn appends_of_one_conversation_are_taken_one_after_the_other() {
        let mut queue = Queue::default();
        let mut kept = Vec::new();
        for (conversation, name) in [(1, "first"), (1, "second"), (2, "other"), (1, "third")] {
            let (waiting, answered) = waiting(1, conversation, name);
            queue.push(waiting);
            kept.push(answered);
        }
        assert_eq!(names(&queue.take()), ["first", "other"]);
        let second = queue.take();
        assert_eq!(names(&second), ["second"]);
        queue.put_back(second);
        assert_eq!(names(&queue.take()), ["second"], "what is put back goes first");
        assert_eq!(names(&queue.take()), ["third"]);
    }

    #[test]
    fn a_foreign_tenant_that_names_a_conversation_is_not_in_its_way() {
        let mut queue = Queue::default();
        let (foreign, _answered_foreign) = waiting(2, 1, "foreign");
        let (own, _answered) = waiting(1, 1, "own");
        queue.push(foreign);
        queue.push(own);
        assert_eq!(names(&queue.take()), ["foreign", "own"]);
    }

    #[test]
    fn what_nobody_waits_for_is_not_done() {
        let mut queue = Queue::default();
        let (gone, answered) = waiting(1, 1, "gone");
        drop(answered);
        queue.push(gone);
        assert!(queue.take().is_empty());
        assert!(queue.is_empty());
    }
}
