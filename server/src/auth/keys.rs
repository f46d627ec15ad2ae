//! API keys. A key is `anneal_`, its id, `_` and its secret; the database keeps the secret's digest alone.

use std::{
    collections::HashSet,
    fmt,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::caller::Caller;
use anneal_store::{KnownKey, Store};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use moka::sync::Cache;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use super::{
    Stranger,
    brake::Brake,
    memory::{Lookups, Memory},
    uses::Uses,
};
use crate::status::Failure;

const PREFIX: &str = "anneal_";
/// Bytes of a secret, from the system's random source.
const SECRET_BYTES: usize = 32;
/// Letters of an id: a UUID without dashes.
const ID_LETTERS: usize = 32;

/// A key as its holder has it.
#[derive(PartialEq, Eq)]
pub struct KeyText {
    id: Uuid,
    secret: String,
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText({})", self.id)
    }
}

impl KeyText {
    /// Reads what looks like a key; None: it is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, rest) = text.strip_prefix(PREFIX)?.split_at_checked(ID_LETTERS)?;
        let secret = rest.strip_prefix('_').filter(|secret| !secret.is_empty())?;
        Some(Self { id: Uuid::try_parse(id).ok()?, secret: secret.to_owned() })
    }

    /// The part of it that may be shown.
    pub(crate) const fn id(&self) -> Uuid {
        self.id
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.secret.as_bytes()).into()
    }
}

/// A key that was just made: the only moment at which it can be shown.
pub struct NewSecret {
    /// The part of it that may be shown again.
    pub id: Uuid,
    /// The whole key.
    pub text: String,
    /// SHA-256 of its secret part: what is stored.
    pub digest: [u8; 32],
}

impl NewSecret {
    /// A key that nobody has had before.
    ///
    /// Fails where the system has no random bytes to give.
    pub fn make() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        let key = KeyText { id: Uuid::now_v7(), secret: URL_SAFE_NO_PAD.encode(bytes) };
        let text = format!("{PREFIX}{}_{}", key.id.simple(), key.secret);
        Ok(Self { id: key.id, text, digest: key.digest() })
    }
}

/// A key as the database knew it.
#[derive(Clone)]
struct Found {
    key: KnownKey,
    /// When the database was asked.
    asked: Instant,
}

impl Found {
    /// Whether its time is over.
    fn has_expired(&self) -> bool {
        self.key.ends_in.is_some_and(|ends_in| self.asked.elapsed() >= ends_in)
    }
}

/// Keys that have let somebody in are remembered for so long after their last use: they are looked up again whatever else comes from
/// their address.
const MET_FOR: Duration = Duration::from_hours(24);
const MET: u64 = 100_000;

/// The keys in the database, as far as they were asked for.
pub(super) struct Keys {
    store: Store,
    known: Memory<Uuid, Found>,
    met: Cache<Uuid, ()>,
    brake: Brake,
    /// Keys whose lookups are under way.
    looked_up: Mutex<HashSet<Uuid>>,
    uses: Uses,
}

impl Keys {
    /// Keys of this store. An address may show so many a minute that nobody has; 0: any number.
    pub(super) fn new(store: Store, lookups: Lookups, unknown_per_minute: u32) -> Self {
        let met = Cache::builder().max_capacity(MET).time_to_idle(MET_FOR).build();
        Self {
            store,
            known: Memory::new(lookups),
            met,
            brake: Brake::new(unknown_per_minute),
            looked_up: Mutex::default(),
            uses: Uses::new(),
        }
    }

    /// For whom a key speaks that was shown by this address; None: it has been let in before.
    pub(super) async fn caller(&self, key: &KeyText, address: Option<IpAddr>) -> Result<Caller, Failure> {
        let found = self.find(key.id, address).await?.filter(|found| !found.has_expired());
        // The digest of a secret is compared whole, so that the time tells nothing of how far a guess was right.
        let found = found.filter(|found| bool::from(found.key.secret_digest.as_slice().ct_eq(&key.digest())));
        let KnownKey { tenant, verbs, .. } = found.ok_or(Stranger::Unknown)?.key;
        // Reading puts off the end of what is remembered, and costs less than writing it again with every call.
        if self.met.get(&key.id).is_none() {
            self.met.insert(key.id, ());
        }
        self.uses.note(key.id);
        Ok(Caller::with(tenant, verbs))
    }

    /// What the database says of a key. One that was not met is counted for its address.
    async fn find(&self, id: Uuid, address: Option<IpAddr>) -> Result<Option<Found>, Failure> {
        let is_met = self.met.contains_key(&id) || self.known.remembers(&id);
        // Many first calls with one key, as those of a client that has just started, are one lookup.
        let lookup = Lookup::begin(&self.looked_up, id);
        let attempt = match address.filter(|_| !is_met && lookup.is_some()) {
            Some(address) => self.brake.begin(address)?,
            None => None,
        };
        let (store, asked) = (self.store.clone(), Instant::now());
        let looking = async move { Ok(store.find_key(id).await?.map(|key| Found { key, asked })) };
        let found = self.known.find(id, Box::pin(looking)).await;
        if let Some(attempt) = attempt.filter(|_| !matches!(found, Ok(None))) {
            attempt.forgive();
        }
        found
    }

    /// Writes down which keys are used, until the future is dropped.
    pub(super) async fn write_uses(&self) {
        self.uses.write(&self.store).await;
    }
}

/// A lookup of a key; ends when dropped.
struct Lookup<'k> {
    under_way: &'k Mutex<HashSet<Uuid>>,
    id: Uuid,
}

impl<'k> Lookup<'k> {
    /// None: a lookup of this key is under way already.
    fn begin(under_way: &'k Mutex<HashSet<Uuid>>, id: Uuid) -> Option<Self> {
        let is_first = under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        is_first.then_some(Self { under_way, id })
    }
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_made_and_its_secret_is_not_shown() {
        let made = NewSecret::make().expect("random bytes");
        let read = KeyText::parse(&made.text).expect("is a key");
        assert_eq!((read.id, read.digest()), (made.id, made.digest));
        assert!(!format!("{read:?}").contains(&read.secret));
        assert_ne!(NewSecret::make().expect("random bytes").text, made.text);
    }

    #[test]
    fn what_is_no_key_is_something_else() {
        let id = Uuid::now_v7().simple().to_string();
        for text in [
            String::new(),
            "anneal_".into(),
            format!("anneal_{id}"),
            format!("anneal_{id}_"),
            format!("anneal_{}_x", "z".repeat(32)),
            format!("ANNEAL_{id}_x"),
            format!("anneal_{}é_x", &id[..30]),
            format!("eyJ.{id}_x"),
        ] {
            assert_eq!(KeyText::parse(&text), None, "{text}");
        }
    }
}
