//! The accounts of tenants: the rates at which they call and transfer bytes, and the waiting bytes
//! (incomplete requests and unread answers in memory).

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anneal_core::caller::TenantId;
use anneal_proto::codec::ENTRY_BYTES;
use metrics::Gauge;

use super::{
    rate::{Rate, RateDebt, RateFigures},
    recent_traffic::RecentTraffic,
};
use crate::{failure::Failure, settings::CurrentSettings};

/// Bytes that a waiting request or answer takes beside its content: headers, stream, task.
pub(super) const OVERHEAD_BYTES: u64 = 16 * 1024;
/// All unauthenticated callers together may take a sixteenth of the waiting bytes.
const UNAUTHENTICATED_DIVISOR: u64 = 16;
/// Idle accounts are removed only when there are at least this many accounts.
const MIN_SWEEP_SIZE: usize = 1_024;

/// The handle of the metric, which several steps of each call change.
static WAITING_BYTES: LazyLock<Gauge> = LazyLock::new(|| metrics::gauge!("anneal_waiting_bytes"));

/// Rates and waiting bytes of all tenants. Cheap to clone.
#[derive(Clone)]
pub(crate) struct TrafficLimits(Arc<Inner>);

struct Inner {
    settings: CurrentSettings,
    /// Whether callers need no credential. Then all are one tenant: it may use everything, and no
    /// rate applies.
    accepts_anyone: bool,
    /// The start of the clock for debts.
    began: Instant,
    /// Waiting bytes of all accounts together.
    waiting: AtomicU64,
    accounts: Mutex<Accounts>,
    /// The account of all callers that have not authenticated.
    unauthenticated: Arc<Account>,
}

#[derive(Default)]
struct Accounts {
    by_tenant: HashMap<TenantId, Arc<Account>>,
    /// Idle accounts are removed next when there are this many accounts.
    sweep_at: usize,
}

/// One tenant's use of the rates and of memory.
#[derive(Default)]
struct Account {
    debts: Mutex<RateDebts>,
    /// Bytes of the tenant's requests and answers that wait in memory.
    waiting: AtomicU64,
}

#[derive(Default)]
struct RateDebts {
    calls: RateDebt,
    bytes: RateDebt,
    /// Both, whether or not there are limits.
    recent: RecentTraffic,
}

/// How often a tenant calls this server, and how many bytes it transfers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TenantRates {
    pub(crate) tenant: TenantId,
    pub(crate) calls_per_second: f64,
    pub(crate) bytes_per_second: f64,
}

/// The account that one call is charged to, once its tenant is known. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RequestAccounting(Arc<AccountingState>);

struct AccountingState {
    traffic: TrafficLimits,
    limits: CallLimits,
    account: OnceLock<Arc<Account>>,
    /// The rest of the tenant's burst of calls after this one.
    call_figures: OnceLock<RateFigures>,
}

/// The limits that were in force when a call began.
struct CallLimits {
    /// The rate of the tenant's calls. None: no limit.
    calls: Option<Rate>,
    /// The rate of the bytes that the tenant transfers. None: no limit.
    bytes: Option<Rate>,
    /// Most waiting bytes of all accounts together.
    waiting: u64,
    /// Most waiting bytes of the tenant.
    waiting_of_tenant: u64,
    /// How long the request may take to arrive completely.
    receive: Duration,
}

/// Bytes of a request or an answer that wait in memory. Released when dropped.
pub(super) struct WaitingBytes {
    accounting: RequestAccounting,
    /// The account that the bytes are charged to. None: nothing was reserved yet.
    account: Option<Arc<Account>>,
    bytes: u64,
}

impl TrafficLimits {
    /// Applies to each call the limits that are in force when it begins.
    pub(crate) fn new(settings: CurrentSettings, accepts_anyone: bool) -> Self {
        Self(Arc::new(Inner {
            settings,
            accepts_anyone,
            began: Instant::now(),
            waiting: AtomicU64::new(0),
            accounts: Mutex::default(),
            unauthenticated: Arc::default(),
        }))
    }

    /// Up to `limit` tenants that have called this server within the last seconds, those that call
    /// most often first.
    pub(crate) fn top_rates(&self, limit: usize) -> Vec<TenantRates> {
        let now = self.0.began.elapsed();
        let accounts = self.lock_accounts();
        let rates = accounts.by_tenant.iter();
        let rates = rates.map(|(tenant, account)| account.rates(*tenant, now));
        let mut rates: Vec<TenantRates> = rates
            .filter(|rates| rates.calls_per_second > 0.0 || rates.bytes_per_second > 0.0)
            .collect();
        drop(accounts);
        rates.sort_by(|a, b| b.calls_per_second.total_cmp(&a.calls_per_second));
        rates.truncate(limit);
        rates
    }

    /// Calls and bytes per second of the tenant on this server.
    pub(crate) fn rates_of(&self, tenant: TenantId) -> (f64, f64) {
        let account = self.lock_accounts().by_tenant.get(&tenant).cloned();
        account.map_or((0.0, 0.0), |account| {
            let rates = account.rates(tenant, self.0.began.elapsed());
            (rates.calls_per_second, rates.bytes_per_second)
        })
    }

    fn lock_accounts(&self) -> MutexGuard<'_, Accounts> {
        let accounts = self.0.accounts.lock();
        accounts.unwrap_or_else(PoisonError::into_inner)
    }

    /// The accounting of one new call.
    pub(super) fn accounting(&self) -> RequestAccounting {
        RequestAccounting(Arc::new(AccountingState {
            traffic: self.clone(),
            limits: self.0.call_limits(),
            account: OnceLock::new(),
            call_figures: OnceLock::new(),
        }))
    }

    /// Finds or creates the tenant's account. Removes idle accounts if there are many.
    fn account(&self, tenant: TenantId) -> Arc<Account> {
        let now = self.0.began.elapsed();
        let mut accounts = self.lock_accounts();
        if accounts.by_tenant.len() >= accounts.sweep_at.max(MIN_SWEEP_SIZE) {
            // An account in use is kept: its calls and their waiting bytes hold references to it.
            accounts
                .by_tenant
                .retain(|_, account| Arc::strong_count(account) > 1 || !account.is_settled(now));
            accounts.sweep_at = accounts.by_tenant.len() * 2;
        }
        Arc::clone(accounts.by_tenant.entry(tenant).or_default())
    }
}

impl Inner {
    /// The limits of a call that begins now.
    fn call_limits(&self) -> CallLimits {
        let settings = self.settings.get();
        let limits = &settings.limits;
        let rate = |per_second: u64, burst: u64| {
            (!self.accepts_anyone)
                .then(|| Rate::new(per_second, burst))
                .flatten()
        };
        CallLimits {
            calls: rate(limits.calls_per_second.into(), limits.calls_burst.into()),
            bytes: rate(limits.bytes_per_second, limits.bytes_burst),
            waiting: limits.waiting_bytes,
            waiting_of_tenant: if self.accepts_anyone {
                limits.waiting_bytes
            } else {
                limits.share_of(limits.waiting_bytes)
            },
            receive: Duration::from_secs(limits.receive_seconds.into()),
        }
    }
}

impl Account {
    fn rates(&self, tenant: TenantId, now: Duration) -> TenantRates {
        let debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls_per_second, bytes_per_second) = debts.recent.per_second(now);
        TenantRates {
            tenant,
            calls_per_second,
            bytes_per_second,
        }
    }

    /// Whether the account has no debts (`rate.rs`) and was not used within the last seconds.
    fn is_settled(&self, now: Duration) -> bool {
        let debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner);
        debts.calls.is_settled(now)
            && debts.bytes.is_settled(now)
            && debts.recent.per_second(now) == (0.0, 0.0)
    }
}

impl RequestAccounting {
    /// Charges the call to its tenant's account. Fails if the tenant calls too often or has
    /// transferred too many bytes.
    pub(crate) fn admit_call(&self, tenant: TenantId) -> Result<(), Failure> {
        let account = self.0.traffic.account(tenant);
        let now = self.0.traffic.0.began.elapsed();
        let mut debts = account.debts.lock().unwrap_or_else(PoisonError::into_inner);
        let charged = self.charge_call(&mut debts, now);
        if let Some(rate) = self.0.limits.calls {
            // Set before for a connection whose messages are calls: the figures are of the first.
            let _ = self.0.call_figures.set(rate.figures(&mut debts.calls, now));
        }
        drop(debts);
        charged?;
        // The account is not set yet, because a call is authenticated once.
        let _ = self.0.account.set(account);
        Ok(())
    }

    /// The rest of the tenant's burst of calls when this call was admitted or refused. None: the
    /// tenant's calls have no limit, or the tenant is not known.
    pub(crate) fn call_figures(&self) -> Option<RateFigures> {
        self.0.call_figures.get().copied()
    }

    fn charge_call(&self, debts: &mut RateDebts, now: Duration) -> Result<(), Failure> {
        let CallLimits { calls, bytes, .. } = self.0.limits;
        let refused = |limit: &'static str, wait| {
            metrics::counter!("anneal_rate_limited_total", "limit" => limit).increment(1);
            Failure::RateExceeded { limit, wait }
        };
        if let Some(wait) = calls.and_then(|rate| rate.wait_time(&mut debts.calls, now)) {
            return Err(refused("calls_per_second", wait));
        }
        if let Some(wait) = bytes.and_then(|rate| rate.wait_time(&mut debts.bytes, now)) {
            return Err(refused("bytes_per_second", wait));
        }
        if let Some(rate) = calls {
            rate.charge(&mut debts.calls, now, 1);
        }
        debts.recent.count(now, 1, 0);
        Ok(())
    }

    /// Charges transferred bytes, of the request or of the answer. Does nothing before the tenant
    /// is known.
    pub(super) fn charge_bytes(&self, bytes: usize) {
        if let Some(account) = self.0.account.get() {
            let now = self.0.traffic.0.began.elapsed();
            let mut debts = account.debts.lock().unwrap_or_else(PoisonError::into_inner);
            debts.recent.count(now, 0, bytes as u64);
            if let Some(rate) = self.0.limits.bytes {
                rate.charge(&mut debts.bytes, now, bytes as u64);
            }
        }
    }

    /// How long a request may take to arrive completely.
    pub(super) fn receive_timeout(&self) -> Duration {
        self.0.limits.receive
    }

    /// A new counter of waiting bytes, at 0.
    pub(super) fn waiting_bytes(&self) -> WaitingBytes {
        WaitingBytes {
            accounting: self.clone(),
            account: None,
            bytes: 0,
        }
    }

    /// A new counter of the request's memory, at 0.
    pub(super) fn request_memory(&self) -> RequestMemory {
        RequestMemory(Arc::new(Mutex::new(self.waiting_bytes())))
    }
}

impl WaitingBytes {
    /// Reserves more bytes. Fails with `Overloaded` above the limit of the account or of all
    /// accounts.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Failure> {
        let AccountingState {
            traffic, limits, ..
        } = &*self.accounting.0;
        let Inner {
            waiting,
            unauthenticated,
            ..
        } = &*traffic.0;
        let account = Arc::clone(
            self.account
                .as_ref()
                .or_else(|| self.accounting.0.account.get())
                .unwrap_or(unauthenticated),
        );
        let max_for_account = if Arc::ptr_eq(&account, unauthenticated) {
            limits.waiting / UNAUTHENTICATED_DIVISOR
        } else {
            limits.waiting_of_tenant
        };
        let account_total = account.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let total = waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        WAITING_BYTES.increment(bytes as f64);
        self.account = Some(account);
        self.bytes += bytes;
        if account_total > max_for_account || total > limits.waiting {
            self.release(bytes);
            metrics::counter!("anneal_waiting_refused_total").increment(1);
            return Err(Failure::Overloaded);
        }
        Ok(())
    }

    pub(super) fn release_all(&mut self) {
        self.release(self.bytes);
    }

    /// Releases bytes, at most those that are reserved.
    pub(super) fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if let Some(account) = &self.account {
            account.waiting.fetch_sub(bytes, Ordering::Relaxed);
            let all_waiting = &self.accounting.0.traffic.0.waiting;
            all_waiting.fetch_sub(bytes, Ordering::Relaxed);
            WAITING_BYTES.decrement(bytes as f64);
        }
        self.bytes -= bytes;
    }
}

/// Memory of one request, counted as waiting bytes. Released when its body, its call and, for a
/// chat or a watch, the turn or the watch have ended.
#[derive(Clone)]
pub(crate) struct RequestMemory(Arc<Mutex<WaitingBytes>>);

impl RequestMemory {
    /// Reserves more bytes. Fails with `Overloaded` above the limit of the account or of all
    /// accounts.
    pub(super) fn reserve(&self, bytes: u64) -> Result<(), Failure> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reserve(bytes)
    }

    /// Reserves memory for entries of decoded lists and maps, which take more of it than their
    /// bytes on the wire.
    pub(crate) fn reserve_entries(&self, entries: usize) -> Result<(), Failure> {
        if entries == 0 {
            Ok(())
        } else {
            self.reserve(entries as u64 * ENTRY_BYTES)
        }
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        self.release_all();
    }
}
