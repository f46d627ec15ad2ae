//! Counts of the attacker's actions and of their effects.

use std::sync::Mutex;

use super::super::findings::{Tally, lock};

/// Counts of the attacker's actions and of their effects.
#[derive(Default)]
pub(super) struct Tallies {
    /// Attacks, by name.
    pub(super) attacks: Tally,
    /// Calls and requests, by attack.
    pub(super) calls: Tally,
    /// Refusals by reason.
    pub(super) refusals: Tally,
    /// Slow calls of the neighbor, by the attacks that were running when the call ended.
    pub(super) slow: Tally,
    /// The names of the running attacks.
    under_way: Mutex<Vec<&'static str>>,
}

impl Tallies {
    /// Counts an attack that begins.
    pub(super) fn begin_attack(&self, name: &'static str) {
        self.attacks.increment(name);
        lock(&self.under_way).push(name);
    }

    /// Records the end of an attack.
    pub(super) fn end_attack(&self, name: &'static str) {
        let mut under_way = lock(&self.under_way);
        if let Some(place) = under_way.iter().position(|running| *running == name) {
            under_way.swap_remove(place);
        }
    }

    /// Counts a slow call of the neighbor for every running attack, each of which may be its
    /// cause.
    pub(super) fn count_slow_call(&self) {
        for attack in lock(&self.under_way).iter() {
            self.slow.increment(*attack);
        }
    }
}
