//! The memory of turn logs, per tenant and in all. Above the limit a log discards its content: its
//! readers are disconnected, come back with the id of their last event, and get the rest from the
//! store.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use anneal_core::caller::TenantId;

/// The memory limit of all logs. Cheap to clone.
#[derive(Clone)]
pub(in crate::http) struct LogBudget(Arc<Inner>);

struct Inner {
    /// Most bytes of all logs together.
    max: u64,
    /// Most bytes of the logs of one tenant.
    share: u64,
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    bytes: u64,
    /// The number that was last given to a log.
    last_number: u64,
    tenants: HashMap<TenantId, TenantUsage>,
}

#[derive(Default)]
struct TenantUsage {
    bytes: u64,
    logs: BTreeMap<EvictionRank, LogUsage>,
}

/// The order in which logs discard their content: first those of ended turns, in the order of their
/// ends; then those of running turns, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionRank {
    is_running: bool,
    number: u64,
}

struct LogUsage {
    log: Weak<dyn DiscardableLog>,
    bytes: u64,
}

/// A log whose memory the budget limits.
pub(super) trait DiscardableLog: Send + Sync {
    /// Discards the content, because its memory is needed.
    fn discard(&self);
}

/// The bytes that one log uses of the budget. Released when dropped.
pub(super) struct LogAllocation {
    budget: LogBudget,
    tenant: TenantId,
    rank: Mutex<EvictionRank>,
}

impl LogBudget {
    /// A budget of `max` bytes, of which one tenant's logs may use `share`.
    pub(in crate::http) fn new(max: u64, share: u64) -> Self {
        Self(Arc::new(Inner {
            max,
            share,
            usage: Mutex::default(),
        }))
    }

    /// Registers a new log of this tenant.
    pub(super) fn register(
        &self,
        tenant: TenantId,
        log: Weak<dyn DiscardableLog>,
    ) -> LogAllocation {
        let mut usage = self.usage();
        let rank = EvictionRank {
            is_running: true,
            number: usage.next_number(),
        };
        usage
            .tenants
            .entry(tenant)
            .or_default()
            .logs
            .insert(rank, LogUsage { log, bytes: 0 });
        LogAllocation {
            budget: self.clone(),
            tenant,
            rank: Mutex::new(rank),
        }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.0.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Usage {
    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Uncounts the bytes of the tenant's log that is to be discarded next, and returns that log.
    /// None: no log of the tenant has bytes.
    fn evict_next(&mut self, tenant: TenantId) -> Option<Weak<dyn DiscardableLog>> {
        let tenant_usage = self.tenants.get_mut(&tenant)?;
        let log = tenant_usage.logs.values_mut().find(|log| log.bytes > 0)?;
        let bytes = std::mem::take(&mut log.bytes);
        tenant_usage.bytes -= bytes;
        self.bytes -= bytes;
        Some(Weak::clone(&log.log))
    }

    fn largest_tenant(&self) -> Option<TenantId> {
        self.tenants
            .iter()
            .max_by_key(|(_, tenant_usage)| tenant_usage.bytes)
            .map(|(tenant, _)| *tenant)
    }
}

impl LogAllocation {
    fn rank(&self) -> MutexGuard<'_, EvictionRank> {
        self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts more bytes of this log. Returns the logs that the caller must discard: logs of this
    /// tenant if it exceeds its share, logs of the tenants with the most bytes if all logs together
    /// exceed the limit. This log may be among them.
    pub(super) fn charge(&self, bytes: u64) -> Vec<Arc<dyn DiscardableLog>> {
        let Inner { max, share, .. } = &*self.budget.0;
        let rank = self.rank();
        let mut usage = self.budget.usage();
        let Some(tenant_usage) = usage.tenants.get_mut(&self.tenant) else {
            return Vec::new();
        };
        let Some(log) = tenant_usage.logs.get_mut(&rank) else {
            return Vec::new();
        };
        log.bytes += bytes;
        tenant_usage.bytes += bytes;
        let mut tenant_bytes = tenant_usage.bytes;
        usage.bytes += bytes;
        let mut evicted = Vec::new();
        while tenant_bytes > *share {
            let Some(log) = usage.evict_next(self.tenant) else {
                break;
            };
            evicted.push(log);
            tenant_bytes = usage
                .tenants
                .get(&self.tenant)
                .map_or(0, |tenant_usage| tenant_usage.bytes);
        }
        while usage.bytes > *max {
            let Some(log) = usage
                .largest_tenant()
                .and_then(|tenant| usage.evict_next(tenant))
            else {
                break;
            };
            evicted.push(log);
        }
        metrics::gauge!("anneal_answer_log_bytes").set(usage.bytes as f64);
        drop(usage);
        metrics::counter!("anneal_answer_logs_let_go_total").increment(evicted.len() as u64);
        // After the lock is released: dropping a log locks the budget.
        evicted.iter().filter_map(Weak::upgrade).collect()
    }

    /// Releases all bytes.
    pub(super) fn release(&self) {
        let rank = self.rank();
        let mut usage = self.budget.usage();
        let Some(tenant_usage) = usage.tenants.get_mut(&self.tenant) else {
            return;
        };
        let Some(log) = tenant_usage.logs.get_mut(&rank) else {
            return;
        };
        let bytes = std::mem::take(&mut log.bytes);
        tenant_usage.bytes -= bytes;
        usage.bytes -= bytes;
        metrics::gauge!("anneal_answer_log_bytes").set(usage.bytes as f64);
    }

    /// Marks the turn as ended. Logs of ended turns are discarded first.
    pub(super) fn mark_ended(&self) {
        let mut rank = self.rank();
        let mut usage = self.budget.usage();
        let ended = EvictionRank {
            is_running: false,
            number: usage.next_number(),
        };
        let Some(tenant_usage) = usage.tenants.get_mut(&self.tenant) else {
            return;
        };
        if let Some(log) = tenant_usage.logs.remove(&rank) {
            tenant_usage.logs.insert(ended, log);
            *rank = ended;
        }
    }
}

impl Drop for LogAllocation {
    fn drop(&mut self) {
        self.release();
        let rank = *self.rank();
        let mut usage = self.budget.usage();
        if let Some(tenant_usage) = usage.tenants.get_mut(&self.tenant) {
            tenant_usage.logs.remove(&rank);
            if tenant_usage.logs.is_empty() {
                usage.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::http::resumable_turns::turn_log::TurnLog;

    const ANNA: TenantId = TenantId(Uuid::from_u128(1));
    const EVE: TenantId = TenantId(Uuid::from_u128(2));

    fn bytes_and_logs(budget: &LogBudget) -> (u64, usize) {
        let usage = budget.usage();
        (
            usage.bytes,
            usage
                .tenants
                .values()
                .map(|tenant_usage| tenant_usage.logs.len())
                .sum(),
        )
    }

    fn is_same(evicted: &Arc<dyn DiscardableLog>, log: &Arc<TurnLog>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(evicted), Arc::as_ptr(log))
    }

    #[test]
    fn logs_of_ended_turns_are_discarded_first_and_then_the_oldest() {
        let budget = LogBudget::new(100, 50);
        let logs: Vec<Arc<TurnLog>> = (0..3).map(|_| TurnLog::new(&budget, EVE).0).collect();
        let anna = TurnLog::new(&budget, ANNA).0;
        assert!(anna.allocation().charge(50).is_empty());
        for log in &logs {
            assert!(log.allocation().charge(15).is_empty());
        }
        logs[1].allocation().mark_ended();
        // 55 bytes: 5 above eve's share.
        let first = logs[2].allocation().charge(10);
        assert!(
            first.len() == 1 && is_same(&first[0], &logs[1]),
            "the log whose turn has ended"
        );
        // 70 bytes: 15 of log 0 and 55 of log 2. Without log 0 eve is still above her share, so
        // log 2 is discarded, too.
        let next = logs[2].allocation().charge(30);
        assert!(next.len() == 2 && is_same(&next[0], &logs[0]) && is_same(&next[1], &logs[2]));
        assert_eq!(
            bytes_and_logs(&budget),
            (50, 4),
            "anna's log keeps its bytes"
        );
        drop((logs, first, next, anna));
        assert_eq!(bytes_and_logs(&budget), (0, 0));
    }

    #[test]
    fn above_the_total_the_tenant_with_the_most_bytes_loses_a_log() {
        let budget = LogBudget::new(100, 80);
        let (eve, anna) = (TurnLog::new(&budget, EVE).0, TurnLog::new(&budget, ANNA).0);
        assert!(eve.allocation().charge(70).is_empty());
        let evicted = anna.allocation().charge(40);
        assert!(evicted.len() == 1 && is_same(&evicted[0], &eve));
        assert_eq!(bytes_and_logs(&budget), (40, 2));
        anna.allocation().release();
        assert_eq!(bytes_and_logs(&budget), (0, 2));
    }
}
