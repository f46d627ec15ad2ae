//! API keys. The text of a key is `anneal_`, its id, `_` and its secret. The database stores only a
//! digest of the secret. `cache.rs` sets how long the result of a lookup is used: 10 s, and for a
//! key that exists 30 s while the database does not answer.

use std::{
    collections::HashSet,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, Once, PoisonError},
    time::{Duration, Instant},
};

use anneal_core::caller::{Bound, Caller};
use anneal_store::{ActiveKey, Store};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use moka::sync::Cache;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tracing::warn;
use uuid::Uuid;

use super::{
    cache::{CredentialCache, LookupLimits},
    key_usage::KeyUsage,
    unknown_key_limit::UnknownKeyLimit,
};
use crate::failure::{AuthError, Failure};

const PREFIX: &str = "anneal_";
/// Bytes of a secret, from the random source of the system.
const SECRET_BYTES: usize = 32;
/// Characters of an id: a UUID without dashes.
const ID_CHARACTERS: usize = 32;

/// A key in the form that its holder has: id and secret.
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
    /// Parses a key. None: the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, rest) = text.strip_prefix(PREFIX)?.split_at_checked(ID_CHARACTERS)?;
        let secret = rest.strip_prefix('_').filter(|secret| !secret.is_empty())?;
        Some(Self {
            id: Uuid::try_parse(id).ok()?,
            secret: secret.to_owned(),
        })
    }

    /// The id, which may be shown.
    pub(crate) const fn id(&self) -> Uuid {
        self.id
    }

    /// SHA-256 of the secret; of a key that is bound, of secret, 0 and binding. So the key works
    /// with exactly this binding, and a server that knows no bindings refuses it.
    fn digest(&self, bound: Option<&Bound>) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.secret.as_bytes());
        if let Some(bound) = bound {
            hash.update([0]);
            hash.update(bound.setting().as_bytes());
        }
        hash.finalize().into()
    }
}

/// A new API key. Its text can be shown only now, because the secret is not stored.
pub struct GeneratedKey {
    /// The id, which may be shown later.
    pub id: Uuid,
    /// The whole key.
    pub text: String,
    /// SHA-256 of the secret and of what the key is bound to. The database stores this.
    pub digest: [u8; 32],
}

impl GeneratedKey {
    /// Makes a new key, bound to a user, an agent or a conversation, or to nothing.
    ///
    /// Fails if the system has no random bytes.
    pub fn make(bound: Option<&Bound>) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        let key = KeyText {
            id: Uuid::now_v7(),
            secret: URL_SAFE_NO_PAD.encode(bytes),
        };
        let text = format!("{PREFIX}{}_{}", key.id.simple(), key.secret);
        Ok(Self {
            id: key.id,
            text,
            digest: key.digest(bound),
        })
    }
}

/// A key that was read from the database.
struct CachedKey {
    key: ActiveKey,
    /// When the lookup began. `key.ends_in` counts from then.
    looked_up_at: Instant,
}

impl CachedKey {
    /// Whether the key has expired since it was read.
    fn has_expired(&self) -> bool {
        self.key
            .ends_in
            .is_some_and(|ends_in| self.looked_up_at.elapsed() >= ends_in)
    }
}

/// How long a key is remembered after its last use. A remembered key is looked up even if its
/// address has presented too many unknown keys.
const RECENTLY_USED_TTL: Duration = Duration::from_hours(24);
/// Most keys that are remembered after their last use.
const MAX_RECENTLY_USED: u64 = 100_000;

/// Looks up API keys.
pub(super) struct Keys {
    store: Store,
    cache: CredentialCache<Uuid, Arc<CachedKey>>,
    recently_used: Cache<Uuid, ()>,
    unknown_key_limit: UnknownKeyLimit,
    /// Ids of keys that are being looked up.
    lookups_in_flight: Mutex<HashSet<Uuid>>,
    usage: KeyUsage,
    /// Warns once that bound keys are refused.
    warn_without_policies: Once,
}

impl Keys {
    /// Looks up keys in this store. One address may present `unknown_per_minute` unknown keys a
    /// minute; 0: any number.
    pub(super) fn new(store: Store, limits: LookupLimits, unknown_per_minute: u32) -> Self {
        let recently_used = Cache::builder()
            .max_capacity(MAX_RECENTLY_USED)
            .time_to_idle(RECENTLY_USED_TTL)
            .build();
        Self {
            store,
            cache: CredentialCache::new(limits),
            recently_used,
            unknown_key_limit: UnknownKeyLimit::new(unknown_per_minute),
            lookups_in_flight: Mutex::default(),
            usage: KeyUsage::new(),
            warn_without_policies: Once::new(),
        }
    }

    /// Authenticates a key that was presented from `address`. `address` is None when the key is
    /// checked again during a call, or if the request came over no connection (fuzz targets).
    pub(super) async fn caller(
        &self,
        key: &KeyText,
        address: Option<IpAddr>,
    ) -> Result<Caller, Failure> {
        let found = self
            .find(key.id, address)
            .await?
            .filter(|found| !found.has_expired());
        // Compare the whole digest in constant time, so that the time does not reveal how much of a
        // guess is right.
        let found = found.filter(|found| {
            let digest = key.digest(found.key.bound.as_ref());
            bool::from(found.key.secret_digest.as_slice().ct_eq(&digest))
        });
        let found = found.ok_or(AuthError::Unknown)?;
        if found.key.bound.is_some() && !found.key.has_policies {
            self.warn_without_policies.call_once(|| {
                warn!(
                    "keys that are bound to a user, an agent or a conversation are refused: this server's role owns the tables, and policies would not restrict it; set database.role"
                );
            });
            return Err(AuthError::Unknown.into());
        }
        // Reading renews the entry, and costs less than inserting it with every call.
        if self.recently_used.get(&key.id).is_none() {
            self.recently_used.insert(key.id, ());
        }
        self.usage.record(key.id);
        let caller = Caller::with(found.key.tenant, found.key.verbs);
        Ok(match found.key.bound {
            Some(bound) => caller.bound_to(bound),
            None => caller,
        })
    }

    /// Finds a key in the cache or the database. A key that was not used recently and is not cached
    /// counts as an unknown key of its address, until the lookup has found it or failed.
    async fn find(
        &self,
        id: Uuid,
        address: Option<IpAddr>,
    ) -> Result<Option<Arc<CachedKey>>, Failure> {
        // A cached answer causes no lookup, so it does not count, even if the key does not exist.
        if let Ok(answer) = self.cache.peek(&id).await {
            return Ok(answer);
        }
        let is_exempt = self.recently_used.contains_key(&id) || self.cache.contains(&id);
        // A client that has just started may make many first calls with one key. They share one
        // lookup and count once.
        let lookup = LookupGuard::begin(&self.lookups_in_flight, id);
        let attempt = match address.filter(|_| !is_exempt && lookup.is_some()) {
            Some(address) => self.unknown_key_limit.charge(address)?,
            None => None,
        };
        let (store, looked_up_at) = (self.store.clone(), Instant::now());
        let lookup_future = async move {
            Ok(store
                .find_key(id)
                .await?
                .map(|key| Arc::new(CachedKey { key, looked_up_at })))
        };
        let found = self.cache.find(id, Box::pin(lookup_future)).await;
        if let Some(attempt) = attempt.filter(|_| !matches!(found, Ok(None))) {
            attempt.refund();
        }
        found
    }

    /// Writes to the database which keys are used, until the future is dropped.
    pub(super) async fn write_usage(&self) {
        self.usage.run(&self.store).await;
    }
}

/// Marks a key as being looked up, until it is dropped.
struct LookupGuard<'k> {
    in_flight: &'k Mutex<HashSet<Uuid>>,
    id: Uuid,
}

impl<'k> LookupGuard<'k> {
    /// None: the key is already being looked up.
    fn begin(in_flight: &'k Mutex<HashSet<Uuid>>, id: Uuid) -> Option<Self> {
        let is_first = in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        // `then` builds the guard only for the first lookup: to drop another one would remove the
        // first one's mark.
        is_first.then(|| Self { in_flight, id })
    }
}

impl Drop for LookupGuard<'_> {
    fn drop(&mut self) {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use anneal_core::caller::BoundId;

    use super::*;

    #[test]
    fn a_new_key_can_be_parsed_and_debug_hides_its_secret() {
        let made = GeneratedKey::make(None).expect("random bytes");
        let read = KeyText::parse(&made.text).expect("is a key");
        assert_eq!((read.id, read.digest(None)), (made.id, made.digest));
        assert!(!format!("{read:?}").contains(&read.secret));
        assert_ne!(
            GeneratedKey::make(None).expect("random bytes").text,
            made.text
        );
    }

    #[test]
    fn the_digest_of_a_bound_key_is_that_of_its_binding_only() {
        let bound = |id| Bound::User(BoundId::new(id).expect("an id"));
        let made = GeneratedKey::make(Some(&bound("anna"))).expect("random bytes");
        let read = KeyText::parse(&made.text).expect("is a key");
        assert_eq!(read.digest(Some(&bound("anna"))), made.digest);
        assert_ne!(read.digest(Some(&bound("bert"))), made.digest);
        assert_ne!(read.digest(None), made.digest);
    }

    #[test]
    fn a_key_stays_marked_until_its_first_lookup_has_ended() {
        let (in_flight, id) = (Mutex::default(), Uuid::from_u128(1));
        let first = LookupGuard::begin(&in_flight, id).expect("no other lookup runs");
        for _ in 0..2 {
            assert!(LookupGuard::begin(&in_flight, id).is_none());
        }
        drop(first);
        assert!(LookupGuard::begin(&in_flight, id).is_some());
    }

    #[test]
    fn text_that_is_no_key_is_not_parsed_as_one() {
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
