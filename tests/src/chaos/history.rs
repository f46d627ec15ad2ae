//! What clients did and were told: the history that a checker compares with what is stored.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering},
    },
};

use super::findings::held;
use crate::pb;

/// One append, however often it was sent.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) request_id: String,
    pub(super) messages: Vec<pb::NewMessage>,
    /// What its client was told; empty until then.
    pub(super) ids: Vec<i64>,
    /// The newest message that anybody had been told of when it was begun: its own come after.
    pub(super) after: i64,
}

impl Said {
    /// What is about to be sent.
    pub(super) const fn new(request_id: String, messages: Vec<pb::NewMessage>) -> Self {
        Self { request_id, messages, ids: Vec::new(), after: 0 }
    }
}

/// The separators of a conversation, as far as clients know.
#[derive(Default)]
pub(super) struct Marks {
    /// Those that stand, by the message before each.
    pub(super) after: BTreeSet<i64>,
    /// Somebody was never told what became of one: what stands is not known any more.
    pub(super) unsure: bool,
}

/// A conversation that clients share.
pub(super) struct Talk {
    pub(super) id: String,
    said: Mutex<Vec<Said>>,
    /// The newest message that anybody was told of.
    newest: AtomicI64,
    life: AtomicU8,
    /// Clients in the middle of an append.
    under_way: AtomicU32,
    /// Who puts or takes away a separator holds them meanwhile.
    pub(super) marks: tokio::sync::Mutex<Marks>,
}

const ALIVE: u8 = 0;
const CLOSED: u8 = 1;
const DYING: u8 = 2;
const DEAD: u8 = 3;

/// Whether a stored message is what was said.
pub(super) fn is_as_said(stored: &pb::Message, said: &pb::NewMessage) -> bool {
    said.role == stored.role && said.parts == stored.parts && said.metadata == stored.metadata
}

impl Talk {
    pub(super) fn new(id: String) -> Self {
        Self {
            id,
            said: Mutex::default(),
            newest: AtomicI64::new(0),
            life: AtomicU8::new(ALIVE),
            under_way: AtomicU32::new(0),
            marks: tokio::sync::Mutex::default(),
        }
    }

    /// Begins an append; its place in the history.
    pub(super) fn begin(&self, append: &Said) -> usize {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let mut said = held(&self.said);
        said.push(Said { after: self.newest(), ..append.clone() });
        said.len() - 1
    }

    /// It was acknowledged; the newest message that anybody had been told of when it was begun.
    pub(super) fn acknowledged(&self, place: usize, ids: &[i64]) -> i64 {
        let after = {
            let said = &mut held(&self.said)[place];
            said.ids = ids.to_vec();
            said.after
        };
        if let Some(last) = ids.last() {
            self.newest.fetch_max(*last, Ordering::SeqCst);
        }
        self.ended();
        after
    }

    /// What was said in the message that somebody was told has this id; None: nobody was, yet.
    pub(super) fn told(&self, id: i64) -> Option<pb::NewMessage> {
        let said = held(&self.said);
        let told = said.iter().rev().find(|said| said.ids.contains(&id))?;
        told.messages.iter().zip(&told.ids).find_map(|(message, other)| (*other == id).then(|| message.clone()))
    }

    /// It will not be sent again.
    pub(super) fn ended(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Everything said, acknowledged or not.
    pub(super) fn said(&self) -> Vec<Said> {
        held(&self.said).clone()
    }

    pub(super) fn appends(&self) -> usize {
        held(&self.said).len()
    }

    /// An earlier append that was acknowledged.
    pub(super) fn earlier(&self, random: &mut fastrand::Rng) -> Option<Said> {
        let said = held(&self.said);
        let done: Vec<&Said> = said.iter().filter(|said| !said.ids.is_empty()).collect();
        random.choice(done).cloned()
    }

    /// The newest message that anybody was told of: whoever reads from now on finds it.
    pub(super) fn newest(&self) -> i64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Nobody begins anything with it any more.
    pub(super) fn close(&self) {
        let _ = self.life.compare_exchange(ALIVE, CLOSED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Its deletion is under way: it may be there or not.
    pub(super) fn die(&self) {
        self.life.store(DYING, Ordering::SeqCst);
    }

    /// Its deletion was acknowledged.
    pub(super) fn died(&self) {
        self.life.store(DEAD, Ordering::SeqCst);
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life.load(Ordering::SeqCst) == ALIVE
    }

    /// Whether it is there for certain.
    pub(super) fn is_there(&self) -> bool {
        self.life.load(Ordering::SeqCst) < DYING
    }

    pub(super) fn is_dead(&self) -> bool {
        self.life.load(Ordering::SeqCst) == DEAD
    }
}

/// All conversations: those in use, and those that were.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Vec<Arc<Talk>>>);

impl Ledger {
    pub(super) fn add(&self, talk: Arc<Talk>) {
        held(&self.0).push(talk);
    }

    pub(super) fn all(&self) -> Vec<Arc<Talk>> {
        held(&self.0).clone()
    }

    /// One of those in use.
    pub(super) fn alive(&self, random: &mut fastrand::Rng) -> Option<Arc<Talk>> {
        let all = held(&self.0);
        let alive: Vec<&Arc<Talk>> = all.iter().filter(|talk| talk.is_alive()).collect();
        random.choice(alive).map(Arc::clone)
    }

    pub(super) fn alive_count(&self) -> usize {
        held(&self.0).iter().filter(|talk| talk.is_alive()).count()
    }
}
