//! Authentication, for gRPC and HTTP alike. An API key, a token of an identity provider, or a
//! client certificate decides which tenant calls, and which verbs it has. The fields of a request
//! do not.
//!
//! - `cache`: what the database says about credentials, for some seconds
//! - `certificates`: the configured clients, found by their certificate
//! - `keys`: API keys
//! - `key_usage`: records when each API key was last used
//! - `layer`: the tower layer that authenticates gRPC calls
//! - `tokens`: JWTs
//! - `unknown_key_limit`: limits how many unknown API keys one address may present
//! - `web_sessions`: people who have signed in to the page

mod cache;
mod certificates;
mod key_usage;
mod keys;
mod layer;
mod tokens;
mod unknown_key_limit;
mod web_sessions;

use std::{net::IpAddr, sync::Arc, time::Duration};

use anneal_core::{
    caller::{Caller, TenantId, Verbs},
    limits::DEADLINE_DEFAULT_SECONDS,
};
use anneal_store::Store;
use http::{Extensions, HeaderMap, HeaderValue, header};

pub use self::keys::{GeneratedKey, KeyText};
pub(crate) use self::{
    layer::{AuthLayer, AuthService},
    tokens::TokenVerifier,
    web_sessions::{FromPage, SessionSecret, SessionText},
};

use self::{
    cache::{CACHE_TTL, CredentialCache, LookupLimits},
    certificates::CertificateClients,
    keys::Keys,
    web_sessions::WebSessions,
};
use crate::{
    audit,
    failure::{AuthError, Failure},
    identity::Identity,
    limits::concurrency::TenantShare,
    listen::{ClientCertificate, Peer},
    settings::{AuthSettings, AuthSettingsError, WebSettings},
    traffic::RequestAccounting,
};

/// How long a lookup may take. It needs a deadline of its own, because it goes on when its caller
/// has left, and holds one of the few permits for lookups.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(DEADLINE_DEFAULT_SECONDS);

/// An authenticated caller.
pub(crate) struct Authenticated {
    pub(crate) caller: Caller,
    /// The caller's name for logs.
    pub(crate) identity: Identity,
    /// Checks the credential again. None: callers need no credential.
    pub(crate) proof: Option<Proof>,
}

/// Authenticates callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Authenticator {
    /// None: everyone is the default tenant with all verbs. Only on loopback, or with
    /// `server.insecure`.
    methods: Option<Arc<Methods>>,
}

/// The configured kinds of credentials.
struct Methods {
    tokens: Option<TokenVerifier>,
    keys: Option<Keys>,
    /// None: the page is off.
    sessions: Option<WebSessions>,
    clients: CertificateClients,
    tenants: Tenants,
}

impl Authenticator {
    /// Reads the files that the settings name.
    pub(crate) fn new(
        settings: &AuthSettings,
        web: &WebSettings,
        store: &Store,
    ) -> Result<Self, AuthSettingsError> {
        if !settings.is_on() {
            return Ok(Self { methods: None });
        }
        let store = store.clone().with_deadline(LOOKUP_DEADLINE);
        let lookup_limits = LookupLimits::new(store.outage_log().clone());
        let methods = Methods {
            tokens: (!settings.jwks_file.is_empty())
                .then(|| TokenVerifier::new(settings))
                .transpose()?,
            keys: settings.api_keys.then(|| {
                Keys::new(
                    store.clone(),
                    lookup_limits.clone(),
                    settings.unknown_keys_per_minute,
                )
            }),
            sessions: web.is_on(settings).then(|| {
                WebSessions::new(
                    store.clone(),
                    lookup_limits.clone(),
                    web,
                    settings.unknown_keys_per_minute,
                )
            }),
            clients: CertificateClients::new(&settings.clients),
            tenants: Tenants::new(store, lookup_limits),
        };
        Ok(Self {
            methods: Some(Arc::new(methods)),
        })
    }

    /// Whether callers need no credential.
    pub(crate) fn accepts_anyone(&self) -> bool {
        self.methods.is_none()
    }

    /// The share of each concurrency limit that one tenant gets. Without credentials all callers
    /// are one tenant and share the whole.
    pub(crate) fn tenant_share(&self, percent: u32) -> TenantShare {
        if self.accepts_anyone() {
            TenantShare::Whole
        } else {
            TenantShare::Percent(percent)
        }
    }

    /// Reloads changed files and records which keys are used, until the future is dropped.
    pub(crate) async fn run_background(self) {
        let Some(methods) = self.methods else { return };
        let reload_tokens = async {
            if let Some(tokens) = &methods.tokens {
                tokens.reload_on_change().await;
            }
        };
        let write_key_usage = async {
            if let Some(keys) = &methods.keys {
                keys.write_usage().await;
            }
        };
        tokio::join!(reload_tokens, write_key_usage);
    }

    /// Authenticates a request. Assigns its connection to the tenant, and charges the call to the
    /// tenant's account. Also fails if the tenant is above its rate of calls or bytes.
    pub(crate) async fn authenticate(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Authenticated, Failure> {
        let peer = extensions.get::<Peer>();
        let certificate = peer.and_then(|peer| peer.certificate.as_ref());
        let address = peer.map(|peer| peer.address);
        let found = if web_sessions::is_stray(headers, extensions) {
            Err(AuthError::Unknown.into())
        } else {
            self.identify(headers, certificate, address).await
        };
        let (caller, identity) = found.inspect_err(|failure| {
            audit::log_refused_credential(failure, address, || describe_credential(headers));
        })?;
        if let Some(peer) = peer {
            peer.slot.assign_tenant(caller.tenant());
        }
        if let Some(accounting) = extensions.get::<RequestAccounting>() {
            accounting.admit_call(caller.tenant())?;
        }
        if self.accepts_anyone() {
            return Ok(Authenticated {
                caller,
                identity,
                proof: None,
            });
        }
        let proof = Proof {
            auth: self.clone(),
            // There is at most one: several are refused.
            authorization: headers.get(header::AUTHORIZATION).cloned(),
            certificate: certificate.cloned(),
            caller,
        };
        Ok(Authenticated {
            caller,
            identity,
            proof: Some(proof),
        })
    }

    /// Finds the caller by the credential in these headers, or else by the client certificate.
    /// `address` is None when a credential is checked again during a call, or if the request came
    /// over no connection (fuzz targets).
    async fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
        address: Option<IpAddr>,
    ) -> Result<(Caller, Identity), Failure> {
        let Some(methods) = self.methods.as_deref() else {
            return Ok((Caller::of(TenantId::DEFAULT), Identity::Anyone));
        };
        let Methods {
            tokens,
            keys,
            sessions,
            clients,
            tenants,
        } = methods;
        let Some(credential) = bearer(headers)? else {
            let certificate = certificate.ok_or(AuthError::NoCredential)?;
            if certificate.has_expired() {
                return Err(AuthError::CertificateExpired.into());
            }
            let (name, client) = clients.find(certificate).ok_or(AuthError::Certificate)?;
            let caller = tenants
                .caller(&client.tenant, client.verbs(), AuthError::Certificate)
                .await?;
            return Ok((caller, Identity::of_certificate(name)));
        };
        if let Some(session) = SessionText::parse(credential) {
            let sessions = sessions.as_ref().ok_or(AuthError::Unknown)?;
            return sessions.caller(&session, address, tokens.as_ref()).await;
        }
        if let Some(key) = KeyText::parse(credential) {
            let keys = keys.as_ref().ok_or(AuthError::Unknown)?;
            return Ok((keys.caller(&key, address).await?, Identity::Key(key.id())));
        }
        let tokens = tokens.as_ref().ok_or(AuthError::Unknown)?;
        let claims = tokens.verify(credential)?;
        let unknown = AuthError::Token("its tenant is not known here");
        let caller = tenants
            .caller(&claims.tenant, claims.verbs, unknown)
            .await?;
        Ok((caller, claims.identity.clone()))
    }
}

/// The credential of the authorization header. None: there is no such header.
pub(crate) fn bearer(headers: &HeaderMap) -> Result<Option<&str>, AuthError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(AuthError::NotBearer);
    }
    let (scheme, credential) = first
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or(AuthError::NotBearer)?;
    let credential = credential.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || credential.is_empty() || credential.contains(' ') {
        return Err(AuthError::NotBearer);
    }
    Ok(Some(credential))
}

/// Describes the credential of the authorization header for the audit log: the id of an API key,
/// else only the kind of credential.
fn describe_credential(headers: &HeaderMap) -> String {
    match bearer(headers) {
        Ok(Some(text)) if SessionText::parse(text).is_some() => "session".to_owned(),
        Ok(Some(text)) => KeyText::parse(text)
            .map_or_else(|| "token".to_owned(), |key| format!("key:{}", key.id())),
        Ok(None) => "none".to_owned(),
        Err(_) => "malformed".to_owned(),
    }
}

/// How often the credential of a long call is checked again.
const RECHECK_INTERVAL: Duration = CACHE_TTL;
/// A long call ends after this many failed checks in a row. While the database does not answer, a
/// check succeeds as long as the cache still has the credential.
const MAX_FAILED_CHECKS: u32 = 3;

/// The credential of an authenticated call, to check it again while the call lasts.
#[derive(Clone)]
pub(crate) struct Proof {
    auth: Authenticator,
    /// The authorization header. None: a client certificate is the credential.
    authorization: Option<HeaderValue>,
    certificate: Option<ClientCertificate>,
    caller: Caller,
}

impl Proof {
    /// Returns once the credential is no longer valid (revoked, expired, or for another tenant or
    /// other verbs), or once checks have failed for about a minute because the database is
    /// unavailable. Returns the failure to end the call with.
    pub(crate) async fn wait_until_invalid(&self) -> Failure {
        let mut failed_checks = FailedChecks::default();
        loop {
            tokio::time::sleep(RECHECK_INTERVAL).await;
            if let Some(failure) = failed_checks.record(self.recheck().await) {
                return failure;
            }
        }
    }

    /// Checks now whether the credential is still valid. Fails with `Failure::Store` if the
    /// database is unavailable.
    pub(crate) async fn recheck(&self) -> Result<(), Failure> {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let (caller, _) = self
            .auth
            .identify(&headers, self.certificate.as_ref(), None)
            .await?;
        if caller == self.caller {
            Ok(())
        } else {
            Err(AuthError::Unknown.into())
        }
    }
}

/// Number of consecutive checks that the database did not answer.
#[derive(Default)]
struct FailedChecks(u32);

impl FailedChecks {
    /// Counts a check. Returns the failure that ends the call; None: it goes on.
    fn record(&mut self, check: Result<(), Failure>) -> Option<Failure> {
        match check {
            Ok(()) => {
                self.0 = 0;
                None
            }
            Err(failure @ Failure::Store(_)) => {
                self.0 += 1;
                (self.0 >= MAX_FAILED_CHECKS).then_some(failure)
            }
            Err(failure) => Some(failure),
        }
    }
}

/// Looks up tenants by name.
struct Tenants {
    store: Store,
    cache: CredentialCache<String, TenantId>,
}

impl Tenants {
    fn new(store: Store, lookup_limits: LookupLimits) -> Self {
        Self {
            store,
            cache: CredentialCache::new(lookup_limits),
        }
    }

    /// The caller with these verbs for the tenant of this name. Fails with `not_found` if there is
    /// no such tenant.
    async fn caller(
        &self,
        name: &str,
        verbs: Verbs,
        not_found: AuthError,
    ) -> Result<Caller, Failure> {
        let found = if let Ok(answer) = self.cache.peek(name).await {
            answer
        } else {
            let (store, wanted) = (self.store.clone(), name.to_owned());
            let lookup = Box::pin(async move { store.find_tenant(&wanted).await });
            self.cache.find(name.to_owned(), lookup).await?
        };
        Ok(Caller::with(found.ok_or(not_found)?, verbs))
    }
}

#[cfg(test)]
mod tests {
    use anneal_store::StoreError;

    use super::*;

    #[test]
    fn a_long_call_ends_when_its_credential_is_invalid_or_three_checks_in_a_row_fail() {
        let mut failed_checks = FailedChecks::default();
        for check in ["valid", "busy", "busy", "valid", "busy", "busy"] {
            let check = if check == "valid" {
                Ok(())
            } else {
                Err(StoreError::Busy.into())
            };
            assert!(failed_checks.record(check).is_none());
        }
        assert!(matches!(
            failed_checks.record(Err(StoreError::Busy.into())),
            Some(Failure::Store(_))
        ));
        let revoked = FailedChecks::default().record(Err(AuthError::Unknown.into()));
        assert!(matches!(revoked, Some(Failure::Auth(_))), "{revoked:?}");
    }
}
