//! Checks the promises to the neighbor about one conversation: messages that are read or watched
//! are compared with those that were acknowledged, and must arrive and be counted in time.

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
        findings::{Findings, lock},
        history::{RecordedAppend, RecordedConversation},
        message_states::matches_sent,
    },
    latencies::{Kind, Latencies},
};
use crate::pb;

/// The longest allowed time from an acknowledgement until the watch delivers the message.
const WATCHED_WITHIN: Duration = Duration::from_secs(10);
/// The longest allowed time from an acknowledgement until the message is counted, however many jobs
/// other tenants have queued.
pub(super) const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// A conversation of the neighbor with a running watch.
pub(super) struct WatchedConversation {
    pub(super) recorded: RecordedConversation,
    /// Acknowledged messages whose count the watch has not reported.
    uncounted: PendingMessages,
    /// Acknowledged messages that the watch has not delivered.
    undelivered: PendingMessages,
    /// The id of the newest message that the watch has delivered; 0 if there is none.
    last_delivered: AtomicI64,
    /// The watch has reported that all messages up to this one are counted.
    counted_through: AtomicI64,
    /// Messages that were read or delivered before their append was acknowledged. They are compared
    /// at the end.
    unacknowledged: Mutex<Vec<pb::Message>>,
    /// Ends the watch.
    pub(super) over: CancellationToken,
}

impl WatchedConversation {
    pub(super) fn new(id: String) -> Self {
        Self {
            recorded: RecordedConversation::new(id),
            uncounted: Mutex::default(),
            undelivered: Mutex::default(),
            last_delivered: AtomicI64::new(0),
            counted_through: AtomicI64::new(0),
            unacknowledged: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    /// Records the acknowledgement of the append at the index `place` of the history, and checks
    /// that its ids follow the previous ones.
    pub(super) fn record_acknowledged(
        &self,
        place: usize,
        append: &RecordedAppend,
        ids: &[i64],
        findings: &Findings,
    ) {
        let after = self.recorded.record_acknowledged(place, ids);
        let dense = ids.len() == append.messages.len()
            && ids.iter().zip(after + 1..).all(|(id, next)| *id == next);
        findings.demand(dense, "order", || {
            format!("messages after {after} were given the ids {ids:?}")
        });
        let now = Instant::now();
        for id in ids {
            lock(&self.uncounted).push_back((*id, now));
            lock(&self.undelivered).push_back((*id, now));
        }
    }

    /// Compares a message that was read or watched with the appended one, or keeps it for
    /// [`Self::compare_all`] if its append is not acknowledged yet.
    pub(super) fn compare(&self, stored: &pb::Message, findings: &Findings) {
        match self.recorded.find_message(stored.message_id) {
            Some(sent) => findings.demand(matches_sent(stored, &sent), "content", || {
                format!("message {} is not what was sent", stored.message_id)
            }),
            None => lock(&self.unacknowledged).push(stored.clone()),
        }
    }

    /// Records a message that the watch has delivered.
    pub(super) fn record_message(
        &self,
        message: &pb::Message,
        findings: &Findings,
        latencies: &Latencies,
    ) {
        let before = self
            .last_delivered
            .swap(message.message_id, Ordering::SeqCst);
        findings.demand(message.message_id == before + 1, "watch", || {
            format!(
                "after message {before} the watch delivered {}",
                message.message_id
            )
        });
        self.compare(message, findings);
        record_waits(
            &self.undelivered,
            message.message_id,
            "delivered",
            latencies,
        );
    }

    /// Records that the watch has reported all messages up to this one as counted.
    pub(super) fn record_counts(&self, through: i64, latencies: &Latencies) {
        self.counted_through.fetch_max(through, Ordering::SeqCst);
        record_waits(&self.uncounted, through, "counted", latencies);
    }

    /// Checks how long messages have been pending: not delivered or not counted. Returns whether
    /// no message is pending.
    pub(super) fn check_waits(&self, findings: &Findings, latencies: &Latencies) -> bool {
        // Messages that were delivered or counted before their acknowledgement are no longer
        // pending.
        record_waits(
            &self.undelivered,
            self.last_delivered.load(Ordering::SeqCst),
            "delivered",
            latencies,
        );
        record_waits(
            &self.uncounted,
            self.counted_through.load(Ordering::SeqCst),
            "counted",
            latencies,
        );
        let oldest =
            |pending: &PendingMessages| lock(pending).front().map(|(_, since)| since.elapsed());
        let (undelivered, uncounted) = (oldest(&self.undelivered), oldest(&self.uncounted));
        findings.demand(
            undelivered.is_none_or(|waits| waits <= WATCHED_WITHIN),
            "watch",
            || {
                format!(
                    "a watch has not delivered a message within {} s",
                    WATCHED_WITHIN.as_secs()
                )
            },
        );
        findings.demand(
            uncounted.is_none_or(|waits| waits <= COUNTED_WITHIN),
            "jobs",
            || {
                format!(
                    "a message was not counted within {} s",
                    COUNTED_WITHIN.as_secs()
                )
            },
        );
        undelivered.is_none() && uncounted.is_none()
    }

    /// Compares all stored messages, and those kept by [`Self::compare`], with the acknowledged
    /// ones.
    pub(super) fn compare_all(&self, stored: &[pb::Message], findings: &Findings) {
        let ids = stored.iter().map(|message| message.message_id);
        findings.demand(ids.eq(1..=self.recorded.newest()), "durability", || {
            format!(
                "{} messages are stored, {} were acknowledged",
                stored.len(),
                self.recorded.newest()
            )
        });
        let unacknowledged = std::mem::take(&mut *lock(&self.unacknowledged));
        for message in unacknowledged.iter().chain(stored) {
            let sent = self.recorded.find_message(message.message_id);
            findings.demand(
                sent.is_some_and(|sent| matches_sent(message, &sent)),
                "content",
                || format!("message {} is not what was sent", message.message_id),
            );
        }
    }
}

/// Pending messages and the times of their acknowledgements.
type PendingMessages = Mutex<VecDeque<(i64, Instant)>>;

/// Removes the messages up to `through` and records how long they were pending.
fn record_waits(
    pending: &PendingMessages,
    through: i64,
    what: &'static str,
    latencies: &Latencies,
) {
    let mut pending = lock(pending);
    while let Some((_, since)) = pending.pop_front_if(|(id, _)| *id <= through) {
        latencies.add(Kind::Job, what, since);
    }
}
