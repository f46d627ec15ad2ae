//! Sessions of people who have signed in to the page. The cookie of a session holds 32 random
//! bytes. The database stores only their digest, with the key or the token that has signed in. A
//! session ends with its key: the API key, or the one that has signed the token. `cache.rs` sets how
//! long the result of a lookup is used.

use std::{
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anneal_core::caller::Caller;
use anneal_store::{ActiveWebSession, NewWebSession, SessionHolder, Store};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Extensions, HeaderMap, HeaderValue, header};
use sha2::{Digest as _, Sha256};

use super::{
    Authenticator, bearer,
    cache::{CredentialCache, LookupLimits},
    tokens::{TokenClaims, TokenVerifier},
    unknown_key_limit::UnknownKeyLimit,
};
use crate::{
    audit::{self, SessionEvent},
    failure::{AuthError, Failure},
    identity::Identity,
    listen::Peer,
    settings::WebSettings,
};

const PREFIX: &str = "anneals_";
const SECRET_BYTES: usize = 32;

/// The random bytes in a cookie of the page.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionSecret([u8; SECRET_BYTES]);

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret")
    }
}

impl SessionSecret {
    /// Makes a new secret. Fails if the system has no random bytes.
    pub(crate) fn make() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    #[cfg(test)]
    pub(crate) const fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads a secret from its text. None: the text is none.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    /// The secret as a text.
    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The secret bytes.
    pub(crate) const fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0).into()
    }
}

/// A session in the form that its cookie has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionText(pub(crate) SessionSecret);

impl SessionText {
    /// Parses a session. None: the text does not have the form of one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        SessionSecret::decode(text.strip_prefix(PREFIX)?).map(Self)
    }

    /// The text of the cookie.
    pub(crate) fn text(&self) -> String {
        format!("{PREFIX}{}", self.0.encode())
    }

    /// The session of the authorization header. None: it has another credential, or none.
    fn of_headers(headers: &HeaderMap) -> Option<Self> {
        bearer(headers).ok().flatten().and_then(Self::parse)
    }
}

/// Extension of a request whose session came in the cookie of the page. Without it, a session is no
/// credential: the other doors do not know the cookie.
#[derive(Clone, Copy)]
pub(crate) struct FromPage;

/// Whether the request has a session as its credential, and does not come from the page.
pub(super) fn is_stray(headers: &HeaderMap, extensions: &Extensions) -> bool {
    SessionText::of_headers(headers).is_some() && extensions.get::<FromPage>().is_none()
}

/// The names that a page shows of a session.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SessionNames {
    /// The name of the key, or the subject of the token.
    pub(crate) holder: String,
    /// The tenant's name.
    pub(crate) tenant: String,
}

/// A session that was read from the database.
struct CachedSession {
    session: ActiveWebSession,
    /// When the lookup began. `session.ends_in` counts from then.
    looked_up_at: Instant,
}

impl CachedSession {
    /// Time until the session ends; zero: it has ended.
    fn time_left(&self) -> Duration {
        self.session
            .ends_in
            .saturating_sub(self.looked_up_at.elapsed())
    }

    fn identity(&self) -> Identity {
        match self.session.key {
            Some(id) => Identity::Key(id),
            None => Identity::of_token(&self.session.holder),
        }
    }
}

/// Looks up sessions.
pub(super) struct WebSessions {
    store: Store,
    cache: CredentialCache<[u8; 32], Arc<CachedSession>>,
    unknown_limit: UnknownKeyLimit,
    /// How long a session lasts after the last visit.
    idle: Duration,
    /// How long a session lasts after the sign-in.
    longest: Duration,
}

impl WebSessions {
    /// Looks up sessions in this store. One address may present `unknown_per_minute` unknown
    /// sessions a minute; 0: any number.
    pub(super) fn new(
        store: Store,
        limits: LookupLimits,
        settings: &WebSettings,
        unknown_per_minute: u32,
    ) -> Self {
        Self {
            store,
            cache: CredentialCache::new(limits),
            unknown_limit: UnknownKeyLimit::new(unknown_per_minute),
            idle: Duration::from_mins(settings.session_minutes.into()),
            longest: Duration::from_hours(settings.session_hours.into()),
        }
    }

    /// Authenticates a session that was presented from `address`. `address` is None when the
    /// session is checked again during a call. `tokens`: those that are accepted now, if any are.
    pub(super) async fn caller(
        &self,
        SessionText(secret): &SessionText,
        address: Option<IpAddr>,
        tokens: Option<&TokenVerifier>,
    ) -> Result<(Caller, Identity), Failure> {
        let found = self.find(secret.digest(), address).await?;
        let found = found.filter(|found| !found.time_left().is_zero());
        let found = found.ok_or(AuthError::Unknown)?;
        if let Some(key) = &found.session.token_key
            && !tokens.is_some_and(|tokens| tokens.has_key(key))
        {
            return Err(AuthError::Unknown.into());
        }
        let caller = Caller::with(found.session.tenant, found.session.verbs);
        let Some(bound) = found.session.bound else {
            return Ok((caller, found.identity()));
        };
        // `keys.rs` refuses such a key, too, and says why in the log.
        if !found.session.has_policies {
            return Err(AuthError::Unknown.into());
        }
        Ok((caller.bound_to(bound), found.identity()))
    }

    async fn find(
        &self,
        digest: [u8; 32],
        address: Option<IpAddr>,
    ) -> Result<Option<Arc<CachedSession>>, Failure> {
        if let Ok(answer) = self.cache.peek(&digest).await {
            return Ok(answer);
        }
        let is_exempt = self.cache.contains(&digest);
        let attempt = match address.filter(|_| !is_exempt) {
            Some(address) => self.unknown_limit.charge(address)?,
            None => None,
        };
        let (store, looked_up_at) = (self.store.clone(), Instant::now());
        let lookup = async move {
            let session = store.find_web_session(digest).await?;
            Ok(session.map(|session| {
                Arc::new(CachedSession {
                    session,
                    looked_up_at,
                })
            }))
        };
        let found = self.cache.find(digest, Box::pin(lookup)).await;
        if let Some(attempt) = attempt.filter(|_| !matches!(found, Ok(None))) {
            attempt.refund();
        }
        found
    }

    /// Makes a session of this caller last from now on, if less than half of its time is left.
    async fn extend(&self, SessionText(secret): &SessionText) {
        let digest = secret.digest();
        let Ok(Some(cached)) = self.cache.peek(&digest).await else {
            return;
        };
        if cached.time_left() >= self.idle / 2 {
            return;
        }
        // A failure is not the page's: the next visit tries again.
        let extended = self.store.extend_web_session(digest, self.idle).await;
        if matches!(extended, Ok(true)) {
            self.cache.forget(&digest).await;
        }
    }
}

impl Authenticator {
    /// Whether people can sign in with an API key.
    pub(crate) fn accepts_keys(&self) -> bool {
        let methods = self.methods.as_deref();
        methods.is_some_and(|methods| methods.keys.is_some())
    }

    /// Whether people can sign in with a token of the identity provider.
    pub(crate) fn accepts_tokens(&self) -> bool {
        let methods = self.methods.as_deref();
        methods.is_some_and(|methods| methods.tokens.is_some())
    }

    fn sessions(&self) -> Option<&WebSessions> {
        self.methods.as_deref()?.sessions.as_ref()
    }

    /// Signs in with a key or a token. Returns the secret of the new session. Fails as any call
    /// with this credential does.
    pub(crate) async fn sign_in(
        &self,
        credential: &str,
        extensions: &Extensions,
    ) -> Result<SessionSecret, Failure> {
        let sessions = self.sessions().ok_or(AuthError::Unknown)?;
        let mut headers = HeaderMap::new();
        let value = HeaderValue::try_from(format!("Bearer {credential}"));
        let mut value = value.map_err(|_| AuthError::NotBearer)?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
        let mut extensions = extensions.clone();
        extensions.remove::<FromPage>();
        let signed_in = self.authenticate(&headers, &extensions).await?;
        let claims;
        let (holder, longest) = match &signed_in.identity {
            Identity::Key(id) => {
                let (id, bound) = (*id, signed_in.caller.bound());
                (SessionHolder::Key { id, bound }, sessions.longest)
            }
            Identity::Token(name) => {
                claims = self.claims(credential)?;
                let holder = SessionHolder::Token {
                    digest: Sha256::digest(credential.as_bytes()).into(),
                    subject: &claims.subject,
                    name,
                    key: &claims.key,
                    verbs: claims.verbs,
                };
                (holder, sessions.longest.min(claims.time_left()))
            }
            Identity::Anyone | Identity::Certificate(_) => return Err(AuthError::Unknown.into()),
        };
        let secret = SessionSecret::make().map_err(|_| Failure::Panicked)?;
        let tenant = signed_in.caller.tenant();
        let new = NewWebSession {
            digest: secret.digest(),
            tenant,
            holder,
            idle: sessions.idle,
            longest,
        };
        sessions.store.put_web_session(&new).await?;
        let address = extensions.get::<Peer>().map(|peer| peer.address);
        audit::log_session(SessionEvent::SignIn, tenant, &signed_in.identity, address);
        Ok(secret)
    }

    /// The claims of a token that has just been accepted.
    fn claims(&self, token: &str) -> Result<Arc<TokenClaims>, AuthError> {
        let methods = self.methods.as_deref();
        let tokens = methods.and_then(|methods| methods.tokens.as_ref());
        tokens.ok_or(AuthError::Unknown)?.verify(token)
    }

    /// Ends a session.
    pub(crate) async fn sign_out(
        &self,
        secret: &SessionSecret,
        extensions: &Extensions,
    ) -> Result<(), Failure> {
        let Some(methods) = self.methods.as_deref() else {
            return Ok(());
        };
        let Some(sessions) = &methods.sessions else {
            return Ok(());
        };
        let session = SessionText(secret.clone());
        let holder = sessions.caller(&session, None, methods.tokens.as_ref());
        let holder = holder.await;
        sessions.store.delete_web_session(secret.digest()).await?;
        sessions.cache.end(&secret.digest()).await;
        // A session that has ended before has no holder any more.
        if let Ok((caller, identity)) = holder {
            let address = extensions.get::<Peer>().map(|peer| peer.address);
            audit::log_session(SessionEvent::SignOut, caller.tenant(), &identity, address);
        }
        Ok(())
    }

    /// Makes the session of these headers last, because its holder has opened a page.
    pub(crate) async fn extend_session(&self, headers: &HeaderMap) {
        if let (Some(sessions), Some(session)) = (self.sessions(), SessionText::of_headers(headers))
        {
            sessions.extend(&session).await;
        }
    }

    /// The names of the session of these headers. None: they have another credential, or none.
    pub(crate) async fn session_names(&self, headers: &HeaderMap) -> Option<SessionNames> {
        let SessionText(secret) = SessionText::of_headers(headers)?;
        let found = self.sessions()?.cache.peek(&secret.digest()).await;
        let found = found.ok().flatten()?;
        Some(SessionNames {
            holder: found.session.holder.clone(),
            tenant: found.session.tenant_name.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_can_be_parsed_and_debug_hides_its_secret() {
        let made = SessionText(SessionSecret::make().expect("random bytes"));
        let read = SessionText::parse(&made.text()).expect("is a session");
        assert_eq!(read, made);
        assert!(!format!("{read:?}").contains(&read.0.encode()));
        assert_ne!(SessionSecret::make().expect("random bytes"), made.0);
    }

    #[test]
    fn text_that_is_no_session_is_not_parsed_as_one() {
        let secret = SessionSecret::from_bytes([7; 32]).encode();
        for text in [
            String::new(),
            "anneals_".into(),
            secret.clone(),
            format!("anneal_{secret}"),
            format!("ANNEALS_{secret}"),
            format!("anneals_{secret}A"),
            format!("anneals_{}", &secret[1..]),
            format!("anneals_{secret}="),
        ] {
            assert_eq!(SessionText::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_session_is_a_credential_only_of_a_request_that_comes_from_the_page() {
        let session = SessionText(SessionSecret::from_bytes([7; 32])).text();
        let mut headers = HeaderMap::new();
        let value = HeaderValue::try_from(format!("Bearer {session}"));
        headers.insert(header::AUTHORIZATION, value.expect("is visible"));
        let mut extensions = Extensions::new();
        assert!(is_stray(&headers, &extensions));
        extensions.insert(FromPage);
        assert!(!is_stray(&headers, &extensions));
        headers.clear();
        assert!(!is_stray(&headers, &Extensions::new()));
    }
}
