//! The history of a campaign: what clients sent and which answers they got. The checker compares it
//! with the stored rows.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU8, Ordering},
    },
};

use super::{findings::lock, message_states::MessageStates};
use crate::pb;

/// One append, however often it was sent.
#[derive(Debug, Clone)]
pub(super) struct RecordedAppend {
    pub(super) request_id: String,
    pub(super) messages: Vec<pb::NewMessage>,
    /// The acknowledged message ids; empty until the acknowledgement.
    pub(super) ids: Vec<i64>,
    /// The id of the newest message that was acknowledged to any client when the append began. The
    /// append's own ids are larger.
    newest_before: i64,
}

impl RecordedAppend {
    /// An append to be sent.
    pub(super) const fn new(request_id: String, messages: Vec<pb::NewMessage>) -> Self {
        Self {
            request_id,
            messages,
            ids: Vec::new(),
            newest_before: 0,
        }
    }
}

/// The separators of a conversation, as far as clients know.
#[derive(Default)]
pub(super) struct Separators {
    /// The ids of the messages that have a separator directly after them.
    pub(super) after: BTreeSet<i64>,
    /// A change was never acknowledged, so the set may be wrong.
    pub(super) is_unknown: bool,
}

/// The changes of a conversation's messages, as far as clients know.
#[derive(Default)]
pub(super) struct Changes {
    /// A change was never acknowledged, so it may have been made or not. There are no further ones.
    pub(super) is_unknown: bool,
}

/// A conversation that clients share.
pub(super) struct RecordedConversation {
    pub(super) id: String,
    appends: Mutex<Vec<RecordedAppend>>,
    /// The newest message that was acknowledged to any client.
    newest: AtomicI64,
    /// One of [`ALIVE`], [`CLOSED`], [`DYING`] and [`DEAD`].
    life: AtomicU8,
    /// A client holds this lock while it inserts or deletes a separator.
    pub(super) separators: tokio::sync::Mutex<Separators>,
    /// A client holds this lock while it changes messages.
    pub(super) changes: tokio::sync::Mutex<Changes>,
    /// The states of the messages.
    pub(super) states: MessageStates,
}

/// Clients use the conversation.
const ALIVE: u8 = 0;
/// Clients no longer choose the conversation. It exists.
const CLOSED: u8 = 1;
/// A client deletes the conversation. It may or may not exist.
const DYING: u8 = 2;
/// The deletion was acknowledged.
const DEAD: u8 = 3;

impl RecordedConversation {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            appends: Mutex::default(),
            newest: AtomicI64::new(0),
            life: AtomicU8::new(ALIVE),
            separators: tokio::sync::Mutex::default(),
            changes: tokio::sync::Mutex::default(),
            states: MessageStates::default(),
        }
    }

    /// Records the start of an append. Returns its index in the history.
    pub(super) fn begin_append(&self, append: &RecordedAppend) -> usize {
        let mut appends = lock(&self.appends);
        appends.push(RecordedAppend {
            newest_before: self.newest(),
            ..append.clone()
        });
        appends.len() - 1
    }

    /// Records the acknowledgement of the append at this index (`place`). Returns the id of the
    /// newest message that had been acknowledged when the append began.
    pub(super) fn record_acknowledged(&self, place: usize, ids: &[i64]) -> i64 {
        let newest_before = {
            let append = &mut lock(&self.appends)[place];
            append.ids = ids.to_vec();
            self.states.add(ids, &append.messages);
            append.newest_before
        };
        if let Some(last) = ids.last() {
            self.newest.fetch_max(*last, Ordering::SeqCst);
        }
        newest_before
    }

    /// Adds messages that were stored under these ids without an append, as those of a fork are.
    pub(super) fn add_stored(&self, ids: Vec<i64>, messages: Vec<pb::NewMessage>) {
        self.states.add(&ids, &messages);
        let newest = ids.last().copied().unwrap_or_default();
        self.newest.fetch_max(newest, Ordering::SeqCst);
        lock(&self.appends).push(RecordedAppend {
            ids,
            ..RecordedAppend::new(String::from("the fork"), messages)
        });
    }

    /// The sent message that was acknowledged under this id; None if there is none yet.
    pub(super) fn find_message(&self, id: i64) -> Option<pb::NewMessage> {
        let appends = lock(&self.appends);
        let append = appends
            .iter()
            .rev()
            .find(|append| append.ids.contains(&id))?;
        append
            .messages
            .iter()
            .zip(&append.ids)
            .find_map(|(message, other)| (*other == id).then(|| message.clone()))
    }

    /// All appends, acknowledged or not.
    pub(super) fn appends(&self) -> Vec<RecordedAppend> {
        lock(&self.appends).clone()
    }

    pub(super) fn append_count(&self) -> usize {
        lock(&self.appends).len()
    }

    /// A random acknowledged append.
    pub(super) fn random_acknowledged(&self, random: &mut fastrand::Rng) -> Option<RecordedAppend> {
        let appends = lock(&self.appends);
        let done: Vec<&RecordedAppend> = appends
            .iter()
            .filter(|append| !append.ids.is_empty())
            .collect();
        random.choice(done).cloned()
    }

    /// The newest acknowledged message; 0 if there is none. Any later read must return it.
    pub(super) fn newest(&self) -> i64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Excludes the conversation from further use.
    pub(super) fn close(&self) {
        let _ = self
            .life
            .compare_exchange(ALIVE, CLOSED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Records that a deletion is in progress: the conversation may or may not exist.
    pub(super) fn begin_deletion(&self) {
        self.life.store(DYING, Ordering::SeqCst);
    }

    /// Records that the deletion was acknowledged.
    pub(super) fn confirm_deletion(&self) {
        self.life.store(DEAD, Ordering::SeqCst);
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life.load(Ordering::SeqCst) == ALIVE
    }

    /// Whether the conversation certainly exists.
    pub(super) fn exists(&self) -> bool {
        self.life.load(Ordering::SeqCst) < DYING
    }

    pub(super) fn is_dead(&self) -> bool {
        self.life.load(Ordering::SeqCst) == DEAD
    }
}

/// All conversations, in use or not.
#[derive(Default)]
pub(super) struct History(Mutex<Vec<Arc<RecordedConversation>>>);

impl History {
    pub(super) fn add(&self, conversation: Arc<RecordedConversation>) {
        lock(&self.0).push(conversation);
    }

    pub(super) fn all(&self) -> Vec<Arc<RecordedConversation>> {
        lock(&self.0).clone()
    }

    /// A random conversation in use.
    pub(super) fn random_alive(
        &self,
        random: &mut fastrand::Rng,
    ) -> Option<Arc<RecordedConversation>> {
        let all = lock(&self.0);
        let alive: Vec<&Arc<RecordedConversation>> = all
            .iter()
            .filter(|conversation| conversation.is_alive())
            .collect();
        random.choice(alive).map(Arc::clone)
    }

    pub(super) fn alive_count(&self) -> usize {
        lock(&self.0)
            .iter()
            .filter(|conversation| conversation.is_alive())
            .count()
    }
}
