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
    pub(super) slow_calls: Tally,
    /// The names of the running attacks.
    running: Mutex<Vec<&'static str>>,
}

impl Tallies {
    /// Counts an attack that begins.
    pub(super) fn begin_attack(&self, name: &'static str) {
        self.attacks.increment(name);
        lock(&self.running).push(name);
    }

    /// Records the end of an attack.
    pub(super) fn end_attack(&self, name: &'static str) {
        let mut running = lock(&self.running);
        if let Some(place) = running.iter().position(|other| *other == name) {
            running.swap_remove(place);
        }
    }

    /// Counts a slow call of the neighbor for every running attack, each of which may be its
    /// cause.
    pub(super) fn count_slow_call(&self) {
        for attack in lock(&self.running).iter() {
            self.slow_calls.increment(*attack);
        }
    }
}
