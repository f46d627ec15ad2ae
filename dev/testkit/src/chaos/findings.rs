//! The findings of a campaign (promises of docs/reliability.md that were found broken), and the
//! campaign's counts.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The name of the promise, a word or two.
    pub promise: &'static str,
    /// The observation, with ids and figures.
    pub observation: String,
    /// The time since the start of the campaign.
    pub after: Duration,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} after {:.1} s: {}",
            self.promise,
            self.after.as_secs_f64(),
            self.observation
        )
    }
}

/// The findings so far. Several checks may report the same finding, so each observation is kept
/// once, and at most fifty in all.
pub struct Findings {
    began: Instant,
    found: Mutex<Vec<Finding>>,
    /// Promise and observation of every finding so far, kept or not.
    known: Mutex<HashSet<String>>,
    added: Notify,
}

/// Maximum number of findings that are kept.
const MAX_FINDINGS: usize = 50;

impl Default for Findings {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            found: Mutex::default(),
            known: Mutex::default(),
            added: Notify::new(),
        }
    }
}

impl Findings {
    /// Adds a finding.
    pub(super) fn add(&self, promise: &'static str, observation: impl Into<String>) {
        let (observation, after) = (observation.into(), self.began.elapsed());
        if lock(&self.known).insert(format!("{promise}: {observation}")) {
            let mut found = lock(&self.found);
            if found.len() < MAX_FINDINGS {
                found.push(Finding {
                    promise,
                    observation,
                    after,
                });
            }
            self.added.notify_waiters();
        }
    }

    /// Adds a finding unless `holds`.
    pub(super) fn demand(
        &self,
        holds: bool,
        promise: &'static str,
        observe: impl FnOnce() -> String,
    ) {
        if !holds {
            self.add(promise, observe());
        }
    }

    /// All findings, in order.
    pub fn all(&self) -> Vec<Finding> {
        lock(&self.found).clone()
    }

    /// Waits for the first finding.
    pub async fn wait_for_first(&self) -> Finding {
        loop {
            let added = self.added.notified();
            if let Some(first) = lock(&self.found).first() {
                return first.clone();
            }
            added.await;
        }
    }
}

/// Counts by name.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<Cow<'static, str>, u64>>);

impl Tally {
    pub(super) fn add(&self, what: impl Into<Cow<'static, str>>, more: u64) {
        *lock(&self.0).entry(what.into()).or_default() += more;
    }

    pub(super) fn increment(&self, what: impl Into<Cow<'static, str>>) {
        self.add(what, 1);
    }

    /// The count under this name.
    pub fn count(&self, what: &str) -> u64 {
        lock(&self.0).get(what).copied().unwrap_or_default()
    }

    /// Adds all counts of another tally.
    pub fn merge(&self, other: &Self) {
        for (what, more) in lock(&other.0).iter() {
            self.add(what.clone(), *more);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = lock(&self.0);
        let parts: Vec<String> = counted
            .iter()
            .map(|(what, times)| format!("{times} {what}"))
            .collect();
        f.write_str(&parts.join(", "))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
