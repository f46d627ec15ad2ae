//! What was found broken, and what was counted, while it was found or not.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// A promise that was seen broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which one, in a word or two.
    pub promise: &'static str,
    /// What was seen; ids and figures.
    pub seen: String,
    /// How long after the start.
    pub after: Duration,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {:.1} s: {}", self.promise, self.after.as_secs_f64(), self.seen)
    }
}

/// What was found so far. One broken promise is seen by many: each description is kept once, and fifty in all.
pub struct Findings {
    began: Instant,
    found: Mutex<Vec<Finding>>,
    known: Mutex<HashSet<String>>,
    news: Notify,
}

/// Findings that are kept.
const MOST: usize = 50;

impl Default for Findings {
    fn default() -> Self {
        Self { began: Instant::now(), found: Mutex::default(), known: Mutex::default(), news: Notify::new() }
    }
}

impl Findings {
    /// Notes a broken promise.
    pub(super) fn add(&self, promise: &'static str, seen: impl Into<String>) {
        let (seen, after) = (seen.into(), self.began.elapsed());
        if held(&self.known).insert(format!("{promise}: {seen}")) {
            let mut found = held(&self.found);
            if found.len() < MOST {
                found.push(Finding { promise, seen, after });
            }
            self.news.notify_waiters();
        }
    }

    /// Notes it unless `holds`.
    pub(super) fn demand(&self, holds: bool, promise: &'static str, seen: impl FnOnce() -> String) {
        if !holds {
            self.add(promise, seen());
        }
    }

    /// Everything found, in the order of finding.
    pub fn all(&self) -> Vec<Finding> {
        held(&self.found).clone()
    }

    /// Returns once something is found.
    pub async fn first(&self) -> Finding {
        loop {
            let news = self.news.notified();
            if let Some(first) = held(&self.found).first() {
                return first.clone();
            }
            news.await;
        }
    }
}

/// What was done, by name.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<Cow<'static, str>, u64>>);

impl Tally {
    pub(super) fn add(&self, what: impl Into<Cow<'static, str>>, more: u64) {
        *held(&self.0).entry(what.into()).or_default() += more;
    }

    pub(super) fn one(&self, what: impl Into<Cow<'static, str>>) {
        self.add(what, 1);
    }

    /// How often this was done.
    pub fn of(&self, what: &str) -> u64 {
        held(&self.0).get(what).copied().unwrap_or_default()
    }

    /// Adds what another has counted.
    pub fn take_in(&self, other: &Self) {
        for (what, more) in held(&other.0).iter() {
            self.add(what.clone(), *more);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = held(&self.0);
        let said: Vec<String> = counted.iter().map(|(what, times)| format!("{times} {what}")).collect();
        f.write_str(&said.join(", "))
    }
}

pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
