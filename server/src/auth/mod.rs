//! Whose call it is, for both doors: an API key, a token of an identity provider, or a client certificate names the tenant
//! and what may be done. Nothing else does: no request says for whom it speaks.

mod certificates;
mod keys;
mod layer;
mod settings;
mod tokens;

use std::{sync::Arc, time::Duration};

use anneal_core::caller::{Caller, TenantId, Verbs};
use anneal_store::{Store, StoreError};
use http::{Extensions, HeaderMap, header};
use tokio::sync::Semaphore;
use tracing::warn;

pub(crate) use self::{
    certificates::Certificate,
    layer::{AuthLayer, OPEN},
};
pub use self::{
    keys::{KeyText, NewSecret},
    settings::{AuthError, AuthSettings, ClientSettings},
};

use self::{certificates::Clients, keys::Keys, tokens::Tokens};
use crate::{listen::Peer, room::Sharing, status::Failure};

/// Why a caller is not known. What is wrong with a credential is told; whether it exists elsewhere is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error("no credential: send `authorization: Bearer …`")]
    NoCredential,
    #[error("the authorization header is not `Bearer` and one credential")]
    NotBearer,
    #[error("the credential is not known here, has expired, or was revoked")]
    Unknown,
    #[error("the token is refused: {0}")]
    Token(&'static str),
    #[error("the client certificate names nobody who is known here")]
    Certificate,
}

/// What knows callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Auth {
    /// None: everyone is the default tenant and may do everything; loopback, or an operator's explicit wish.
    known: Option<Arc<Known>>,
}

/// Who is known: only who shows a credential.
struct Known {
    tokens: Option<Tokens>,
    keys: Option<Keys>,
    clients: Clients,
    tenants: Tenants,
}

impl Auth {
    /// As the settings say; files are read now, and again when they change.
    pub(crate) fn new(settings: &AuthSettings, store: &Store) -> Result<Self, AuthError> {
        if !settings.is_on() {
            return Ok(Self { known: None });
        }
        let lookups = Arc::new(Semaphore::new(LOOKUPS));
        let known = Known {
            tokens: (!settings.jwks_file.is_empty()).then(|| Tokens::new(settings)).transpose()?,
            keys: settings.api_keys.then(|| Keys::new(store.clone(), Arc::clone(&lookups))),
            clients: Clients::new(&settings.clients),
            tenants: Tenants::new(store.clone(), lookups),
        };
        Ok(Self { known: Some(Arc::new(known)) })
    }

    /// Whether callers need no credential.
    pub(crate) fn is_open(&self) -> bool {
        self.known.is_none()
    }

    /// How callers share the server's rooms: those that need no credential are one tenant.
    pub(crate) fn sharing(&self) -> Sharing {
        if self.is_open() { Sharing::Whole } else { Sharing::Halves }
    }

    /// Keeps up with the files, until the future is dropped.
    pub(crate) async fn run(self) {
        if let Some(tokens) = self.known.as_ref().and_then(|known| known.tokens.as_ref()) {
            tokens.follow().await;
        }
    }

    /// Who makes a request with these headers and extensions, and what it takes to ask again (None: nothing can change). Its
    /// connection is known from then on.
    pub(crate) async fn admit(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<(Caller, Option<Proof>), Failure> {
        let peer = extensions.get::<Peer>();
        let certificate = peer.and_then(|peer| peer.certificate.as_ref());
        let caller = self.caller(headers, certificate).await?;
        if let Some(peer) = peer {
            peer.place.becomes_known();
        }
        if self.is_open() {
            return Ok((caller, None));
        }
        let shown = headers.get_all(header::AUTHORIZATION).iter().map(|value| (header::AUTHORIZATION, value.clone()));
        let proof = Proof { auth: self.clone(), headers: shown.collect(), certificate: certificate.cloned(), caller };
        Ok((caller, Some(proof)))
    }

    /// Who calls with these headers, over a connection of this certificate.
    async fn caller(&self, headers: &HeaderMap, certificate: Option<&Certificate>) -> Result<Caller, Failure> {
        let Some(known) = self.known.as_deref() else { return Ok(Caller::of(TenantId::DEFAULT)) };
        let Known { tokens, keys, clients, tenants } = known;
        let Some(credential) = bearer(headers)? else {
            let certificate = certificate.ok_or(Stranger::NoCredential)?;
            let client = clients.find(certificate).ok_or(Stranger::Certificate)?;
            return tenants.caller(&client.tenant, client.verbs(), Stranger::Certificate).await;
        };
        if let Some(key) = KeyText::parse(credential) {
            let keys = keys.as_ref().ok_or(Stranger::Unknown)?;
            return keys.caller(&key).await;
        }
        let tokens = tokens.as_ref().ok_or(Stranger::Unknown)?;
        let (tenant, verbs) = tokens.read(credential)?;
        tenants.caller(&tenant, verbs, Stranger::Token("its tenant is not known here")).await
    }
}

/// The credential of the authorization header; None where there is no such header.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Stranger> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(Stranger::NotBearer);
    }
    let (scheme, credential) = first.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Stranger::NotBearer)?;
    let credential = credential.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || credential.is_empty() || credential.contains(' ') {
        return Err(Stranger::NotBearer);
    }
    Ok(Some(credential))
}

/// Seconds that what the database says of a credential is believed: so long a revoked key may still be taken.
const BELIEVED_SECONDS: u64 = 10;
/// Credentials and tenants that are remembered at once.
const REMEMBERED: u64 = 10_000;

/// How often a call that stays is asked again whether its caller is still known.
const ASKED_AGAIN: Duration = Duration::from_secs(BELIEVED_SECONDS);

/// What a call was let in with: it is looked at again where the call stays.
#[derive(Clone)]
pub(crate) struct Proof {
    auth: Auth,
    headers: HeaderMap,
    certificate: Option<Certificate>,
    caller: Caller,
}

impl Proof {
    /// Returns when the credential does not hold any more: revoked, expired, or no longer for the same tenant and verbs. A
    /// database that does not answer ends nothing.
    pub(crate) async fn ends(&self) {
        loop {
            tokio::time::sleep(ASKED_AGAIN).await;
            match self.auth.caller(&self.headers, self.certificate.as_ref()).await {
                Ok(caller) if caller == self.caller => {}
                Err(Failure::Store(_)) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// A cache of what the database says, for a while. Many who ask for the same at once ask it once.
fn remembered<K, V>() -> moka::future::Cache<K, V>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    moka::future::Cache::builder().max_capacity(REMEMBERED).time_to_live(Duration::from_secs(BELIEVED_SECONDS)).build()
}

/// Lookups of credentials under way at once: whoever makes up keys must not take the database from those who have one.
const LOOKUPS: usize = 32;

/// Tenants by name.
struct Tenants {
    store: Store,
    lookups: Arc<Semaphore>,
    known: moka::future::Cache<String, Option<TenantId>>,
}

impl Tenants {
    fn new(store: Store, lookups: Arc<Semaphore>) -> Self {
        Self { store, lookups, known: remembered() }
    }

    async fn caller(&self, name: &str, verbs: Verbs, otherwise: Stranger) -> Result<Caller, Failure> {
        let asked = bounded(&self.lookups, self.store.find_tenant(name));
        let found = Box::pin(self.known.try_get_with_by_ref(name, asked)).await.map_err(unanswered)?;
        Ok(Caller::with(found.ok_or(otherwise)?, verbs))
    }
}

/// A lookup, if not too many are under way.
fn bounded<T>(
    lookups: &Arc<Semaphore>,
    asked: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    let (lookups, asked) = (Arc::clone(lookups), Box::pin(asked));
    async move {
        let _room = lookups.try_acquire().map_err(|_| StoreError::Busy)?;
        asked.await
    }
}

/// The same failure for everyone who waited for it: the database did not answer, and may do so later.
#[expect(clippy::needless_pass_by_value, reason = "the shape of the cache's errors")]
fn unanswered(error: Arc<StoreError>) -> Failure {
    warn!("cannot look up a credential: {error}");
    Failure::Store(match *error {
        StoreError::Busy => StoreError::Busy,
        _ => StoreError::Silent,
    })
}
