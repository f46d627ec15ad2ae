//! How many bytes the logs of turns hold, of each tenant and in all. Where they are too many, a log lets go of everything: its
//! readers are cut off, come back with the id of their last event, and are told the rest from what is stored.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use anneal_core::caller::TenantId;

use super::log::Log;

/// What logs may hold together. Cheap to clone.
#[derive(Clone)]
pub(in crate::http) struct LogBudget(Arc<Inner>);

struct Inner {
    /// Bytes of all logs, and of those of one tenant.
    most: u64,
    share: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    bytes: u64,
    next: u64,
    tenants: HashMap<TenantId, OfTenant>,
}

#[derive(Default)]
struct OfTenant {
    bytes: u64,
    logs: BTreeMap<Rank, OfLog>,
}

/// In which order logs let go: those of turns that have ended before those of turns that run, and the older before the newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_running: bool,
    number: u64,
}

struct OfLog {
    log: Weak<Log>,
    bytes: u64,
}

/// What one log holds of the budget, given back when dropped.
pub(super) struct Account {
    budget: LogBudget,
    tenant: TenantId,
    rank: Mutex<Rank>,
}

impl LogBudget {
    /// So many bytes in all, of which one tenant's logs may hold `share`.
    pub(in crate::http) fn new(most: u64, share: u64) -> Self {
        Self(Arc::new(Inner { most, share, held: Mutex::default() }))
    }

    /// The account of a new log of this tenant.
    pub(super) fn open(&self, tenant: TenantId, log: Weak<Log>) -> Account {
        let mut held = self.held();
        let rank = Rank { is_running: true, number: held.number() };
        held.tenants.entry(tenant).or_default().logs.insert(rank, OfLog { log, bytes: 0 });
        Account { budget: self.clone(), tenant, rank: Mutex::new(rank) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Takes the bytes of that log of this tenant off the books which has to let go first; None: none holds anything.
    fn let_go(&mut self, tenant: TenantId) -> Option<Weak<Log>> {
        let of_tenant = self.tenants.get_mut(&tenant)?;
        let log = of_tenant.logs.values_mut().find(|log| log.bytes > 0)?;
        let bytes = std::mem::take(&mut log.bytes);
        of_tenant.bytes -= bytes;
        self.bytes -= bytes;
        Some(Weak::clone(&log.log))
    }

    fn largest(&self) -> Option<TenantId> {
        self.tenants.iter().max_by_key(|(_, of_tenant)| of_tenant.bytes).map(|(tenant, _)| *tenant)
    }
}

impl Account {
    fn rank(&self) -> MutexGuard<'_, Rank> {
        self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many bytes more. Returns the logs that have to let go for it: of this tenant where it has more than its share,
    /// of whoever has most where all have too much. This one may be among them.
    pub(super) fn grow(&self, bytes: u64) -> Vec<Arc<Log>> {
        let Inner { most, share, .. } = &*self.budget.0;
        let rank = self.rank();
        let mut held = self.budget.held();
        let Some(of_tenant) = held.tenants.get_mut(&self.tenant) else { return Vec::new() };
        let Some(log) = of_tenant.logs.get_mut(&rank) else { return Vec::new() };
        log.bytes += bytes;
        of_tenant.bytes += bytes;
        let mut of_tenant = of_tenant.bytes;
        held.bytes += bytes;
        let mut leaving = Vec::new();
        while of_tenant > *share {
            let Some(log) = held.let_go(self.tenant) else { break };
            leaving.push(log);
            of_tenant = held.tenants.get(&self.tenant).map_or(0, |of_tenant| of_tenant.bytes);
        }
        while held.bytes > *most {
            let Some(log) = held.largest().and_then(|tenant| held.let_go(tenant)) else { break };
            leaving.push(log);
        }
        metrics::gauge!("answer_log_bytes").set(held.bytes as f64);
        drop(held);
        metrics::counter!("answer_logs_let_go_total").increment(leaving.len() as u64);
        // Whoever is dropped meanwhile locks the budget again.
        leaving.iter().filter_map(Weak::upgrade).collect()
    }

    /// Gives everything back that was taken so far.
    pub(super) fn clear(&self) {
        let rank = self.rank();
        let mut held = self.budget.held();
        let Some(of_tenant) = held.tenants.get_mut(&self.tenant) else { return };
        let Some(log) = of_tenant.logs.get_mut(&rank) else { return };
        let bytes = std::mem::take(&mut log.bytes);
        of_tenant.bytes -= bytes;
        held.bytes -= bytes;
        metrics::gauge!("answer_log_bytes").set(held.bytes as f64);
    }

    /// Notes that its turn has ended: such logs let go first.
    pub(super) fn end(&self) {
        let mut rank = self.rank();
        let mut held = self.budget.held();
        let ended = Rank { is_running: false, number: held.number() };
        let Some(of_tenant) = held.tenants.get_mut(&self.tenant) else { return };
        if let Some(log) = of_tenant.logs.remove(&rank) {
            of_tenant.logs.insert(ended, log);
            *rank = ended;
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.clear();
        let rank = *self.rank();
        let mut held = self.budget.held();
        if let Some(of_tenant) = held.tenants.get_mut(&self.tenant) {
            of_tenant.logs.remove(&rank);
            if of_tenant.logs.is_empty() {
                held.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const ANNA: TenantId = TenantId(Uuid::from_u128(1));
    const EVE: TenantId = TenantId(Uuid::from_u128(2));

    fn numbers(budget: &LogBudget) -> (u64, usize) {
        let held = budget.held();
        (held.bytes, held.tenants.values().map(|of_tenant| of_tenant.logs.len()).sum())
    }

    #[test]
    fn the_oldest_log_of_the_tenant_lets_go_and_those_of_ended_turns_first() {
        let budget = LogBudget::new(100, 50);
        let logs: Vec<Arc<Log>> = (0..3).map(|_| Log::new(&budget, EVE).0).collect();
        let anna = Log::new(&budget, ANNA).0;
        assert!(anna.account().grow(50).is_empty());
        for log in &logs {
            assert!(log.account().grow(15).is_empty());
        }
        logs[1].account().end();
        let first = logs[2].account().grow(10);
        assert!(first.len() == 1 && Arc::ptr_eq(&first[0], &logs[1]), "the one whose turn has ended");
        let next = logs[2].account().grow(30);
        assert!(next.len() == 2 && Arc::ptr_eq(&next[0], &logs[0]) && Arc::ptr_eq(&next[1], &logs[2]));
        assert_eq!(numbers(&budget), (50, 4), "anna's stays");
        drop((logs, first, next, anna));
        assert_eq!(numbers(&budget), (0, 0));
    }

    #[test]
    fn where_all_have_too_much_whoever_has_most_lets_go() {
        let budget = LogBudget::new(100, 80);
        let (eve, anna) = (Log::new(&budget, EVE).0, Log::new(&budget, ANNA).0);
        assert!(eve.account().grow(70).is_empty());
        let leaving = anna.account().grow(40);
        assert!(leaving.len() == 1 && Arc::ptr_eq(&leaving[0], &eve));
        assert_eq!(numbers(&budget), (40, 2));
        anna.account().clear();
        assert_eq!(numbers(&budget), (0, 2));
    }
}
