//! Limits guesses of API keys: how many unknown keys one address may present a minute, because each
//! causes a database lookup. `keys.rs` does not charge keys that were recently used or are cached.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use moka::sync::Cache;

use crate::{
    failure::Failure,
    traffic::{Rate, RateDebt},
};

/// Most addresses in memory. The least recently and least frequently used are evicted first.
const MAX_ADDRESSES: u64 = 50_000;
/// How long an address is kept after its last lookup. By then its debt is paid off: the debt is at
/// most what one minute pays off, plus one key.
const ADDRESS_TTL: Duration = Duration::from_mins(2);
/// What one key costs, in units of [`Rate`]. The setting counts keys a minute, and `Rate` counts
/// units a second: `n` keys a minute, at 60 units each, are `n` units a second.
const KEY_COST: u64 = 60;

/// Counts unknown keys by address.
pub(super) struct UnknownKeyLimit {
    /// None: no limit.
    rate: Option<Rate>,
    /// The times in a [`RateDebt`] count from here.
    started: Instant,
    addresses: Cache<IpAddr, Arc<Mutex<RateDebt>>>,
}

/// A lookup in progress. It counts as an unknown key until it is refunded.
pub(super) struct Attempt {
    rate: Rate,
    debt: Arc<Mutex<RateDebt>>,
}

impl UnknownKeyLimit {
    /// Allows an address this many unknown keys a minute; 0: no limit.
    pub(super) fn new(per_minute: u32) -> Self {
        Self {
            // The keys of one minute may come at once.
            rate: Rate::new(per_minute.into(), u64::from(per_minute) * KEY_COST),
            started: Instant::now(),
            addresses: Cache::builder()
                .max_capacity(MAX_ADDRESSES)
                .time_to_idle(ADDRESS_TTL)
                .build(),
        }
    }

    /// Counts a key of this address before the lookup. Fails if the address has presented too many
    /// unknown keys. None: there is no limit.
    pub(super) fn charge(&self, address: IpAddr) -> Result<Option<Attempt>, Failure> {
        let Some(rate) = self.rate else {
            return Ok(None);
        };
        let (now, debt) = (
            self.started.elapsed(),
            self.addresses
                .get_with(customer_prefix(address), Arc::default),
        );
        let mut locked = debt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = rate.wait_time(&mut locked, now) {
            return Err(Failure::TooManyUnknownKeys {
                wait: wait.max(Duration::from_secs(1)),
            });
        }
        rate.charge(&mut locked, now, KEY_COST);
        drop(locked);
        Ok(Some(Attempt { rate, debt }))
    }
}

impl Attempt {
    /// Uncounts the key: it is known, or the lookup failed.
    pub(super) fn refund(self) {
        self.rate.refund(
            &mut self.debt.lock().unwrap_or_else(PoisonError::into_inner),
            KEY_COST,
        );
    }
}

/// The addresses that one customer of a provider usually has: one IPv4 address, or an IPv6 network
/// of 64 bits.
fn customer_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn unknown_keys_count_against_their_address_and_known_keys_do_not() {
        let limit = UnknownKeyLimit::new(5);
        for _ in 0..100 {
            limit
                .charge(address("192.0.2.1"))
                .expect("is below the limit")
                .expect("is counted")
                .refund();
        }
        for _ in 0..5 {
            limit
                .charge(address("192.0.2.1"))
                .expect("is below the limit");
        }
        // The same IPv4 address, as a socket for IPv6 shows it.
        assert!(matches!(
            limit.charge(address("::ffff:192.0.2.1")),
            Err(Failure::TooManyUnknownKeys { .. })
        ));
        limit
            .charge(address("192.0.2.2"))
            .expect("is below the limit");
        for n in 0..5 {
            limit
                .charge(address(&format!("2001:db8::{n}")))
                .expect("is below the limit");
        }
        assert!(
            limit
                .charge(address("2001:db8::ffff:ffff:ffff:ffff"))
                .is_err(),
            "the same 64-bit network"
        );
        limit
            .charge(address("2001:db8:0:1::"))
            .expect("is below the limit");
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let limit = UnknownKeyLimit::new(0);
        assert!((0..1_000).all(|_| {
            limit
                .charge(address("192.0.2.1"))
                .is_ok_and(|attempt| attempt.is_none())
        }));
    }
}
