//! The slowest calls of the last hour of this process: their RPC, status and duration, without ids
//! and without content. Of each RPC a few are kept, so that turns, which take minutes, do not push
//! out everything else.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use tonic::Code;

use crate::verbs::{RPCS, Rpc};

/// The hour has slots of ten minutes, so that the calls of a slot are forgotten together.
const SLOTS: usize = 6;
const SLOT_SECONDS: u64 = 600;
/// Calls of one RPC that are kept in one slot.
const CALLS_PER_RPC: usize = 5;

/// A call that took long.
#[derive(Clone, Copy)]
pub(crate) struct SlowCall {
    /// Its RPC.
    pub(crate) rpc: &'static Rpc,
    /// How it ended.
    pub(crate) code: Code,
    /// How long it took.
    pub(crate) duration: Duration,
    /// When it ended.
    pub(crate) ended: SystemTime,
}

/// The slowest calls of an hour.
pub(crate) struct SlowCalls {
    /// Of each RPC, in the order of [`RPCS`]: calls that took no longer than these microseconds are
    /// not among the slowest of the slot. So most calls take no lock.
    thresholds: [AtomicU64; RPCS.len()],
    /// The number of the slot to which the thresholds belong.
    slot: AtomicU64,
    slots: Mutex<[Slot; SLOTS]>,
}

/// The slowest calls of ten minutes.
struct Slot {
    /// Ten minutes since 1970.
    number: u64,
    calls: Vec<SlowCall>,
}

impl SlowCalls {
    /// No calls.
    pub(crate) const fn new() -> Self {
        const EMPTY: Slot = Slot {
            number: 0,
            calls: Vec::new(),
        };
        Self {
            thresholds: [const { AtomicU64::new(0) }; RPCS.len()],
            slot: AtomicU64::new(0),
            slots: Mutex::new([EMPTY; SLOTS]),
        }
    }

    /// Keeps the call if it is one of the slowest. `index`: the place of its RPC in [`RPCS`].
    pub(crate) fn offer(&self, index: usize, call: SlowCall) {
        let (number, duration_us) = (slot_number(call.ended), micros(call.duration));
        if self.slot.load(Ordering::Relaxed) == number
            && duration_us <= self.thresholds[index].load(Ordering::Relaxed)
        {
            return;
        }
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[number as usize % SLOTS];
        if slot.number != number {
            *slot = Slot {
                number,
                calls: Vec::new(),
            };
            self.slot.store(number, Ordering::Relaxed);
            for threshold in &self.thresholds {
                threshold.store(0, Ordering::Relaxed);
            }
        }
        let of_rpc = |other: &SlowCall| other.rpc.name == call.rpc.name;
        let calls = &mut slot.calls;
        calls.push(call);
        if calls.iter().filter(|other| of_rpc(other)).count() > CALLS_PER_RPC {
            let quickest = (0..calls.len())
                .filter(|place| of_rpc(&calls[*place]))
                .min_by_key(|place| calls[*place].duration);
            quickest.map(|place| calls.swap_remove(place));
        }
        let kept = calls.iter().filter(|other| of_rpc(other));
        let durations: Vec<Duration> = kept.map(|kept| kept.duration).collect();
        if durations.len() == CALLS_PER_RPC {
            let least = durations.into_iter().min().unwrap_or_default();
            self.thresholds[index].store(micros(least), Ordering::Relaxed);
        }
    }

    /// Up to `limit` calls of the last hour, the slowest first, at most [`CALLS_PER_RPC`] of one
    /// RPC.
    pub(crate) fn list(&self, now: SystemTime, limit: usize) -> Vec<SlowCall> {
        let newest = slot_number(now);
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let in_time = slots
            .iter()
            .filter(|slot| slot.number + SLOTS as u64 > newest);
        let mut calls: Vec<SlowCall> = in_time.flat_map(|slot| slot.calls.clone()).collect();
        drop(slots);
        calls.sort_by_key(|call| std::cmp::Reverse(call.duration));
        let mut listed: Vec<SlowCall> = Vec::new();
        for call in calls {
            let same = listed
                .iter()
                .filter(|other| other.rpc.name == call.rpc.name);
            if listed.len() < limit && same.count() < CALLS_PER_RPC {
                listed.push(call);
            }
        }
        listed
    }
}

fn slot_number(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs() / SLOT_SECONDS
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of the RPC at this place, `seconds` after some time.
    fn call(index: usize, duration_ms: u64, seconds: u64) -> SlowCall {
        SlowCall {
            rpc: &RPCS[index],
            code: Code::Ok,
            duration: Duration::from_millis(duration_ms),
            ended: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_200 + seconds),
        }
    }

    #[test]
    fn the_slowest_calls_of_each_rpc_are_listed_for_an_hour() {
        let slow = SlowCalls::new();
        for duration_ms in 1..=100 {
            slow.offer(0, call(0, duration_ms, 0));
        }
        slow.offer(1, call(1, 7, 0));
        let durations = |seconds| -> Vec<u128> {
            let calls = slow.list(call(0, 0, seconds).ended, 50);
            calls.iter().map(|call| call.duration.as_millis()).collect()
        };
        assert_eq!(durations(0), [100, 99, 98, 97, 96, 7]);
        // Quicker ones are kept in a slot of their own.
        slow.offer(0, call(0, 3, 1_200));
        assert_eq!(durations(2_400), [100, 99, 98, 97, 96, 7]);
        assert_eq!(durations(3_700), [3]);
        assert!(durations(36_000).is_empty());
        assert_eq!(slow.list(call(0, 0, 0).ended, 2).len(), 2);
    }
}
