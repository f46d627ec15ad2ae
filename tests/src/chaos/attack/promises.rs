//! What the neighbour was promised of one conversation: what it was told is compared with what it hears and reads.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    super::{
        findings::{Findings, held},
        history::{Said, Talk, is_as_said},
    },
    latencies::{Kind, Latencies},
};
use crate::pb;

/// How long after its acknowledgement a watch may tell of a message.
const HEARD_WITHIN: Duration = Duration::from_secs(10);
/// How long after its acknowledgement a message may be uncounted, whatever others have queued.
pub(super) const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// A conversation of the neighbour's.
pub(super) struct Conversation {
    pub(super) talk: Talk,
    /// Messages whose counting was not heard of, and when they were acknowledged.
    uncounted: Waiting,
    /// Messages that were not heard yet, likewise.
    unheard: Waiting,
    /// The newest message that the watch has told of.
    heard: AtomicI64,
    /// Up to which message the watch has said that all are counted.
    counted: AtomicI64,
    /// Messages that were heard before their append was acknowledged.
    early: Mutex<Vec<pb::Message>>,
    /// Ends its watch.
    pub(super) over: CancellationToken,
}

impl Conversation {
    pub(super) fn new(id: String) -> Self {
        Self {
            talk: Talk::new(id),
            uncounted: Mutex::default(),
            unheard: Mutex::default(),
            heard: AtomicI64::new(0),
            counted: AtomicI64::new(0),
            early: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// Notes that messages were acknowledged under these ids, which follow those before.
    pub(super) fn acknowledged(&self, place: usize, said: &Said, ids: &[i64], findings: &Findings) {
        let after = self.talk.acknowledged(place, ids);
        let dense = ids.len() == said.messages.len() && ids.iter().zip(after + 1..).all(|(id, next)| *id == next);
        findings.demand(dense, "order", || format!("messages after {after} were given the ids {ids:?}"));
        let now = Instant::now();
        for id in ids {
            held(&self.uncounted).push_back((*id, now));
            held(&self.unheard).push_back((*id, now));
        }
    }

    /// Compares a message that was read or heard with what was said.
    pub(super) fn compare(&self, stored: &pb::Message, findings: &Findings) {
        match self.talk.told(stored.message_id) {
            Some(said) => findings.demand(is_as_said(stored, &said), "content", || {
                format!("message {} is not what was said", stored.message_id)
            }),
            None => held(&self.early).push(stored.clone()),
        }
    }

    /// The watch has told of a message.
    pub(super) fn hear(&self, message: &pb::Message, findings: &Findings, latencies: &Latencies) {
        let before = self.heard.swap(message.message_id, Ordering::SeqCst);
        findings.demand(message.message_id == before + 1, "watch", || {
            format!("after message {before} the watch told of {}", message.message_id)
        });
        self.compare(message, findings);
        note_waits(&self.unheard, message.message_id, "heard", latencies);
    }

    /// The watch has said that all messages up to this one are counted.
    pub(super) fn hear_counts(&self, through: i64, latencies: &Latencies) {
        self.counted.fetch_max(through, Ordering::SeqCst);
        note_waits(&self.uncounted, through, "counted", latencies);
    }

    /// Whether nothing of it waits to be heard or counted. What waits for too long is a finding.
    pub(super) fn check_waits(&self, findings: &Findings, latencies: &Latencies) -> bool {
        // What was heard before it was acknowledged waits no more.
        note_waits(&self.unheard, self.heard.load(Ordering::SeqCst), "heard", latencies);
        note_waits(&self.uncounted, self.counted.load(Ordering::SeqCst), "counted", latencies);
        let oldest = |waiting: &Waiting| held(waiting).front().map(|(_, since)| since.elapsed());
        let (unheard, uncounted) = (oldest(&self.unheard), oldest(&self.uncounted));
        findings.demand(unheard.is_none_or(|waits| waits <= HEARD_WITHIN), "watch", || {
            format!("a watch has not told of a message within {} s", HEARD_WITHIN.as_secs())
        });
        findings.demand(uncounted.is_none_or(|waits| waits <= COUNTED_WITHIN), "jobs", || {
            format!("a message was not counted within {} s", COUNTED_WITHIN.as_secs())
        });
        unheard.is_none() && uncounted.is_none()
    }

    /// Compares everything that is stored with everything that was said.
    pub(super) fn compare_all(&self, stored: &[pb::Message], findings: &Findings) {
        let ids = stored.iter().map(|message| message.message_id);
        findings.demand(ids.eq(1..=self.talk.newest()), "durability", || {
            format!("{} messages are stored, {} were acknowledged", stored.len(), self.talk.newest())
        });
        let early = std::mem::take(&mut *held(&self.early));
        for message in early.iter().chain(stored) {
            let told = self.talk.told(message.message_id);
            findings.demand(told.is_some_and(|said| is_as_said(message, &said)), "content", || {
                format!("message {} is not what was said", message.message_id)
            });
        }
    }
}

/// Messages, and when they were acknowledged.
type Waiting = Mutex<VecDeque<(i64, Instant)>>;

/// Those up to this one wait no more.
fn note_waits(waiting: &Waiting, through: i64, what: &'static str, latencies: &Latencies) {
    let mut waiting = held(waiting);
    while let Some((_, since)) = waiting.pop_front_if(|(id, _)| *id <= through) {
        latencies.add(Kind::Job, what, since);
    }
}
