//! The account of each tenant, and the tab of each call.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anneal_core::caller::TenantId;
use anneal_proto::codec::ENTRY_BYTES;

use super::{
    meter::{Meter, Rate},
    settings::LimitSettings,
};
use crate::status::Failure;

/// What requests and answers weigh beside their bytes while they wait: heads, streams, tasks.
pub(super) const WEIGHT: u64 = 16 * 1024;
/// The part of the room for waiting bytes that those may take who have shown no credential.
const NOBODY: u64 = 16;
/// Accounts beyond which those with nothing in them are closed.
const ACCOUNTS: usize = 1_024;

/// What is taken of a server, by tenant. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Traffic(Arc<Inner>);

struct Inner {
    calls: Option<Rate>,
    bytes: Option<Rate>,
    /// Most that may wait, of all and of one tenant.
    waiting_most: u64,
    waiting_share: u64,
    receive: Duration,
    began: Instant,
    waiting: AtomicU64,
    accounts: Mutex<Accounts>,
    /// Of those who have shown no credential.
    nobody: Arc<Account>,
}

#[derive(Default)]
struct Accounts {
    by_tenant: HashMap<TenantId, Arc<Account>>,
    /// How many there may be until idle ones are closed.
    close_at: usize,
}

/// What one tenant takes.
#[derive(Default)]
struct Account {
    meters: Mutex<Meters>,
    /// Bytes that wait.
    waiting: AtomicU64,
}

#[derive(Default)]
struct Meters {
    calls: Meter,
    bytes: Meter,
}

/// One call's way to the account that it goes on, once it is known whose that is. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tab(Arc<OpenTab>);

struct OpenTab {
    traffic: Traffic,
    account: OnceLock<Arc<Account>>,
}

/// Bytes that wait here, given back when dropped.
pub(super) struct Waiting {
    tab: Tab,
    /// The account that it was taken from.
    account: Option<Arc<Account>>,
    bytes: u64,
}

impl Traffic {
    /// As the settings say. Where everybody is one tenant (`is_open`), one tenant may take all, and as fast as it likes.
    pub(crate) fn new(settings: &LimitSettings, is_open: bool) -> Self {
        let rate = |per_second, burst| Rate::new(per_second, burst).filter(|_| !is_open);
        Self(Arc::new(Inner {
            calls: rate(settings.calls_per_second.into(), settings.calls_burst.into()),
            bytes: rate(settings.bytes_per_second, settings.bytes_burst),
            waiting_most: settings.waiting_bytes,
            waiting_share: if is_open { settings.waiting_bytes } else { settings.share_of(settings.waiting_bytes) },
            receive: Duration::from_secs(settings.receive_seconds.into()),
            began: Instant::now(),
            waiting: AtomicU64::new(0),
            accounts: Mutex::default(),
            nobody: Arc::default(),
        }))
    }

    /// A tab for one call.
    pub(super) fn tab(&self) -> Tab {
        Tab(Arc::new(OpenTab { traffic: self.clone(), account: OnceLock::new() }))
    }

    fn account(&self, tenant: TenantId) -> Arc<Account> {
        let now = self.0.began.elapsed();
        let mut accounts = self.0.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.by_tenant.len() >= accounts.close_at.max(ACCOUNTS) {
            accounts.by_tenant.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_paid(now));
            accounts.close_at = accounts.by_tenant.len() * 2;
        }
        Arc::clone(accounts.by_tenant.entry(tenant).or_default())
    }
}

impl Account {
    fn is_paid(&self, now: Duration) -> bool {
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.calls.is_paid(now) && meters.bytes.is_paid(now)
    }
}

impl Tab {
    /// Puts the call on its tenant's account; refuses it where the tenant calls too often, or has sent and read too much.
    pub(crate) fn begin(&self, tenant: TenantId) -> Result<(), Failure> {
        let Inner { calls, bytes, began, .. } = &*self.0.traffic.0;
        let account = self.0.traffic.account(tenant);
        let now = began.elapsed();
        let mut meters = account.meters.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |limit: &'static str, wait| {
            metrics::counter!("rate_limited_total", "limit" => limit).increment(1);
            Failure::TooFast { limit, wait }
        };
        if let Some(wait) = calls.and_then(|rate| rate.wait(&meters.calls, now)) {
            return Err(refused("calls_per_second", wait));
        }
        if let Some(wait) = bytes.and_then(|rate| rate.wait(&meters.bytes, now)) {
            return Err(refused("bytes_per_second", wait));
        }
        if let Some(rate) = calls {
            rate.take(&mut meters.calls, now, 1);
        }
        drop(meters);
        // A call has one caller.
        let _ = self.0.account.set(account);
        Ok(())
    }

    /// Takes down that so many bytes have come or go.
    pub(super) fn passed(&self, bytes: usize) {
        let inner = &self.0.traffic.0;
        if let (Some(rate), Some(account)) = (inner.bytes, self.0.account.get()) {
            let mut meters = account.meters.lock().unwrap_or_else(PoisonError::into_inner);
            rate.take(&mut meters.bytes, inner.began.elapsed(), bytes as u64);
        }
    }

    /// How long a request may take to come whole.
    pub(super) fn receive_within(&self) -> Duration {
        self.0.traffic.0.receive
    }

    /// Nothing that waits, yet.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting { tab: self.clone(), account: None, bytes: 0 }
    }

    /// Room for a request of which nothing has come, yet.
    pub(super) fn request_room(&self) -> RequestRoom {
        RequestRoom(Arc::new(Mutex::new(self.waiting())))
    }
}

impl Waiting {
    /// Takes so many bytes more, if there is room for them.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Failure> {
        let Inner { waiting, waiting_most, waiting_share, nobody, .. } = &*self.tab.0.traffic.0;
        let account = Arc::clone(self.account.as_ref().or_else(|| self.tab.0.account.get()).unwrap_or(nobody));
        let share = if Arc::ptr_eq(&account, nobody) { *waiting_most / NOBODY } else { *waiting_share };
        let of_one = account.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let of_all = waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        metrics::gauge!("waiting_bytes").increment(bytes as f64);
        self.account = Some(account);
        self.bytes += bytes;
        if of_one > share || of_all > *waiting_most {
            self.shrink(bytes);
            metrics::counter!("waiting_refused_total").increment(1);
            return Err(Failure::Overloaded);
        }
        Ok(())
    }

    /// Gives everything back.
    pub(super) fn clear(&mut self) {
        self.shrink(self.bytes);
    }

    /// Gives so many bytes back.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if let Some(account) = &self.account {
            account.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.tab.0.traffic.0.waiting.fetch_sub(bytes, Ordering::Relaxed);
            metrics::gauge!("waiting_bytes").decrement(bytes as f64);
        }
        self.bytes -= bytes;
    }
}

/// Room for a request: given back when its body, its call and, of a turn, the turn have ended.
#[derive(Clone)]
pub(crate) struct RequestRoom(Arc<Mutex<Waiting>>);

impl RequestRoom {
    /// Takes so many bytes more, if there is room for them.
    pub(super) fn grow(&self, bytes: u64) -> Result<(), Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).grow(bytes)
    }

    /// Takes room for so many entries of lists and maps, which take more memory than bytes on the wire.
    pub(crate) fn grow_by_entries(&self, entries: usize) -> Result<(), Failure> {
        if entries == 0 { Ok(()) } else { self.grow(entries as u64 * ENTRY_BYTES) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.clear();
    }
}
