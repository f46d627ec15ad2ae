//! Whose call it is, for both doors: an API key, a token of an identity provider, or a client certificate names the tenant
//! and what may be done. Nothing else does: no request says for whom it speaks.

mod brake;
mod certificates;
mod identity;
mod keys;
mod layer;
mod memory;
mod settings;
mod tokens;
mod uses;

use std::{net::IpAddr, sync::Arc, time::Duration};

use anneal_core::caller::{Caller, TenantId, Verbs};
use anneal_store::Store;
use http::{Extensions, HeaderMap, header};

#[cfg(feature = "fuzzing")]
pub(crate) use self::tokens::Tokens as Jwts;
pub(crate) use self::{
    certificates::Certificate,
    identity::Identity,
    layer::{Asking, AuthLayer, OPEN},
};
pub use self::{
    keys::{KeyText, NewSecret},
    settings::{AuthError, AuthSettings, ClientSettings},
};

use self::{
    certificates::Clients,
    keys::Keys,
    memory::{BELIEVED, Lookups, Memory},
    tokens::Tokens,
};
use crate::{audit, listen::Peer, room::Sharing, status::Failure, traffic::Tab};

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
    #[error("the client certificate has expired")]
    Expired,
}

impl Stranger {
    /// Why, as a metric's label and in the audit log.
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::NotBearer => "malformed",
            Self::Unknown => "unknown",
            Self::Token(_) => "token",
            Self::Certificate => "certificate",
            Self::Expired => "certificate_expired",
        }
    }
}

/// A caller who was let in.
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    /// With what.
    pub(crate) identity: Identity,
    /// What it takes to ask again; None: nothing can change.
    pub(crate) proof: Option<Proof>,
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
        let lookups = Lookups::default();
        let known = Known {
            tokens: (!settings.jwks_file.is_empty()).then(|| Tokens::new(settings)).transpose()?,
            keys: settings
                .api_keys
                .then(|| Keys::new(store.clone(), lookups.clone(), settings.unknown_keys_per_minute)),
            clients: Clients::new(&settings.clients),
            tenants: Tenants::new(store.clone(), lookups),
        };
        Ok(Self { known: Some(Arc::new(known)) })
    }

    /// Whether callers need no credential.
    pub(crate) fn is_open(&self) -> bool {
        self.known.is_none()
    }

    /// How callers share the server's rooms, where a tenant may take so much of each: those that need no credential are one.
    pub(crate) fn sharing(&self, percent: u32) -> Sharing {
        if self.is_open() { Sharing::Whole } else { Sharing::Percent(percent) }
    }

    /// Keeps up with the files, and writes down which keys are used, until the future is dropped.
    pub(crate) async fn run(self) {
        let Some(known) = self.known else { return };
        let follow = async {
            if let Some(tokens) = &known.tokens {
                tokens.follow().await;
            }
        };
        let write = async {
            if let Some(keys) = &known.keys {
                keys.write_uses().await;
            }
        };
        tokio::join!(follow, write);
    }

    /// Who makes a request with these headers and extensions. Its connection is known from then on, and the call is on its tenant's
    /// account.
    pub(crate) async fn admit(&self, headers: &HeaderMap, extensions: &Extensions) -> Result<Admitted, Failure> {
        let peer = extensions.get::<Peer>();
        let certificate = peer.and_then(|peer| peer.certificate.as_ref());
        let address = peer.map(|peer| peer.address);
        let known = self.caller(headers, certificate, address).await;
        let (caller, identity) = known.inspect_err(|failure| audit::refused(failure, address, headers))?;
        if let Some(peer) = peer {
            peer.place.becomes_known(caller.tenant());
        }
        if let Some(tab) = extensions.get::<Tab>() {
            tab.begin(caller.tenant())?;
        }
        if self.is_open() {
            return Ok(Admitted { caller, identity, proof: None });
        }
        let shown = headers.get_all(header::AUTHORIZATION).iter().map(|value| (header::AUTHORIZATION, value.clone()));
        let proof = Proof { auth: self.clone(), headers: shown.collect(), certificate: certificate.cloned(), caller };
        Ok(Admitted { caller, identity, proof: Some(proof) })
    }

    /// Who calls with these headers, over a connection of this certificate, from this address (None: it was let in before).
    async fn caller(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Certificate>,
        address: Option<IpAddr>,
    ) -> Result<(Caller, Identity), Failure> {
        let Some(known) = self.known.as_deref() else {
            return Ok((Caller::of(TenantId::DEFAULT), Identity::Anyone));
        };
        let Known { tokens, keys, clients, tenants } = known;
        let Some(credential) = bearer(headers)? else {
            let certificate = certificate.ok_or(Stranger::NoCredential)?;
            if certificate.has_expired() {
                return Err(Stranger::Expired.into());
            }
            let (name, client) = clients.find(certificate).ok_or(Stranger::Certificate)?;
            let caller = tenants.caller(&client.tenant, client.verbs(), Stranger::Certificate).await?;
            return Ok((caller, Identity::of_certificate(name)));
        };
        if let Some(key) = KeyText::parse(credential) {
            let keys = keys.as_ref().ok_or(Stranger::Unknown)?;
            return Ok((keys.caller(&key, address).await?, Identity::Key(key.id())));
        }
        let tokens = tokens.as_ref().ok_or(Stranger::Unknown)?;
        let holder = tokens.read(credential)?;
        let unknown = Stranger::Token("its tenant is not known here");
        let caller = tenants.caller(&holder.tenant, holder.verbs, unknown).await?;
        Ok((caller, Identity::of_token(&holder.subject)))
    }
}

/// The credential of the authorization header; None where there is no such header.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Stranger> {
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

/// How often a call that stays is asked again whether its caller is still known.
const ASKED_AGAIN: Duration = BELIEVED;
/// A call that stays ends when so many of these in a row were not answered, beyond those that what was known bridges.
const UNANSWERED: u32 = 3;

/// What a call was let in with: it is looked at again where the call stays.
#[derive(Clone)]
pub(crate) struct Proof {
    auth: Auth,
    headers: HeaderMap,
    certificate: Option<Certificate>,
    caller: Caller,
}

impl Proof {
    /// Returns, with what to tell, when the credential does not hold any more: revoked, expired, or no longer for the same
    /// tenant and verbs; or when for about a minute nobody could say.
    pub(crate) async fn ends(&self) -> Failure {
        let mut unanswered = Unanswered::default();
        loop {
            tokio::time::sleep(ASKED_AGAIN).await;
            if let Some(failure) = unanswered.after(self.holds().await) {
                return failure;
            }
        }
    }

    /// Whether the credential holds now.
    pub(crate) async fn holds(&self) -> Result<(), Failure> {
        let (caller, _) = self.auth.caller(&self.headers, self.certificate.as_ref(), None).await?;
        if caller == self.caller { Ok(()) } else { Err(Stranger::Unknown.into()) }
    }
}

/// Checks of a credential in a row that nobody has answered.
#[derive(Default)]
struct Unanswered(u32);

impl Unanswered {
    /// Takes in a check; whether it was the last, and how it all ended.
    fn after(&mut self, check: Result<(), Failure>) -> Option<Failure> {
        match check {
            Ok(()) => {
                self.0 = 0;
                None
            }
            Err(failure @ Failure::Store(_)) => {
                self.0 += 1;
                (self.0 >= UNANSWERED).then_some(failure)
            }
            Err(failure) => Some(failure),
        }
    }
}

/// Tenants by name.
struct Tenants {
    store: Store,
    known: Memory<String, TenantId>,
}

impl Tenants {
    fn new(store: Store, lookups: Lookups) -> Self {
        Self { store, known: Memory::new(lookups) }
    }

    async fn caller(&self, name: &str, verbs: Verbs, otherwise: Stranger) -> Result<Caller, Failure> {
        let (store, wanted) = (self.store.clone(), name.to_owned());
        let found = self.known.find(name.to_owned(), Box::pin(async move { store.find_tenant(&wanted).await })).await?;
        Ok(Caller::with(found.ok_or(otherwise)?, verbs))
    }
}

#[cfg(test)]
mod tests {
    use anneal_store::StoreError;

    use super::*;

    #[test]
    fn what_stays_ends_when_its_credential_does_or_when_nobody_can_say_for_long() {
        let mut unanswered = Unanswered::default();
        for check in ["holds", "busy", "busy", "holds", "busy", "busy"] {
            let check = if check == "holds" { Ok(()) } else { Err(StoreError::Busy.into()) };
            assert!(unanswered.after(check).is_none());
        }
        assert!(matches!(unanswered.after(Err(StoreError::Busy.into())), Some(Failure::Store(_))));
        let revoked = Unanswered::default().after(Err(Stranger::Unknown.into()));
        assert!(matches!(revoked, Some(Failure::Stranger(_))), "{revoked:?}");
    }
}
