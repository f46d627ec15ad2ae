//! A brake for keys that somebody makes up: an address that has shown many keys which nobody has may have the database asked for few
//! more. Keys that this server has met are not concerned.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use moka::sync::Cache;

use crate::{
    status::Failure,
    traffic::{Meter, Rate},
};

/// Addresses that are remembered at once; those heard of least lately, and seldom, are forgotten first.
const ADDRESSES: u64 = 50_000;
/// How long an address is remembered that shows no more keys: by then everything is forgiven.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);
/// What one key costs, so that a rate by the minute can be counted by the second.
const SECONDS: u64 = 60;

/// Counts unknown keys by the address that they come from.
pub(super) struct Brake {
    /// None: there is no limit.
    rate: Option<Rate>,
    began: Instant,
    addresses: Cache<IpAddr, Arc<Mutex<Meter>>>,
}

/// A key whose lookup is under way, counted as unknown until it is forgiven.
pub(super) struct Attempt {
    rate: Rate,
    meter: Arc<Mutex<Meter>>,
}

impl Brake {
    /// A brake for addresses that show more unknown keys a minute than this; 0: none.
    pub(super) fn new(per_minute: u32) -> Self {
        Self {
            rate: Rate::new(per_minute.into(), u64::from(per_minute) * SECONDS),
            began: Instant::now(),
            addresses: Cache::builder().max_capacity(ADDRESSES).time_to_idle(FORGOTTEN_AFTER).build(),
        }
    }

    /// Counts a key from this address before it is looked up; refuses it where there were too many. None: nothing is counted.
    pub(super) fn begin(&self, address: IpAddr) -> Result<Option<Attempt>, Failure> {
        let Some(rate) = self.rate else { return Ok(None) };
        let (now, meter) = (self.began.elapsed(), self.addresses.get_with(household(address), Arc::default));
        let mut counted = meter.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = rate.wait(&counted, now) {
            return Err(Failure::TooManyUnknownKeys { wait: wait.max(Duration::from_secs(1)) });
        }
        rate.take(&mut counted, now, SECONDS);
        drop(counted);
        Ok(Some(Attempt { rate, meter }))
    }
}

impl Attempt {
    /// The key is known after all, or nobody could say.
    pub(super) fn forgive(self) {
        self.rate.give_back(&mut self.meter.lock().unwrap_or_else(PoisonError::into_inner), SECONDS);
    }
}

/// The addresses that one customer of a provider has: one of IPv4, 2^64 of IPv6.
fn household(address: IpAddr) -> IpAddr {
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
    fn unknown_keys_of_one_address_are_counted_and_those_of_others_and_known_ones_are_not() {
        let brake = Brake::new(5);
        for _ in 0..100 {
            brake.begin(address("192.0.2.1")).expect("is let in").expect("is counted").forgive();
        }
        for _ in 0..5 {
            brake.begin(address("192.0.2.1")).expect("is let in");
        }
        assert!(matches!(brake.begin(address("::ffff:192.0.2.1")), Err(Failure::TooManyUnknownKeys { .. })));
        brake.begin(address("192.0.2.2")).expect("is let in");
        for n in 0..5 {
            brake.begin(address(&format!("2001:db8::{n}"))).expect("is let in");
        }
        assert!(brake.begin(address("2001:db8::ffff:ffff:ffff:ffff")).is_err(), "of the same 64 bits");
        brake.begin(address("2001:db8:0:1::")).expect("is let in");
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let brake = Brake::new(0);
        assert!((0..1_000).all(|_| brake.begin(address("192.0.2.1")).is_ok_and(|attempt| attempt.is_none())));
    }
}
