//! Tokens of an identity provider (JWT), signed with EdDSA or ES256. The keys come from a file;
//! nothing is fetched over the network. To rotate keys, replace the file.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anneal_core::caller::{Verb, Verbs};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use moka::sync::Cache;
use rustls::pki_types::UnixTime;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tracing::warn;

use crate::{
    failure::AuthError,
    identity::Identity,
    reloaded_files::ReloadedFiles,
    settings::{AuthSettings, AuthSettingsError},
};

/// Seconds by which the clocks of provider and server may differ.
const LEEWAY_SECONDS: u64 = 30;
/// Most verified tokens that are remembered.
const MAX_VERIFIED: u64 = 10_000;
/// How long a verified token is remembered, unless it expires before.
const VERIFIED_TTL: Duration = Duration::from_mins(5);
/// Prefix of a verb in the `scope` claim.
const SCOPE_PREFIX: &str = "anneal.";

/// The provider's keys by id, each with its only algorithm.
type Keys = HashMap<String, (DecodingKey, Algorithm)>;

/// Verifies tokens.
pub(crate) struct TokenVerifier {
    keys: ReloadedFiles<Keys>,
    audience: String,
    issuer: String,
    tenant_claim: String,
    /// None: a token may be valid for any time.
    max_lifetime_seconds: Option<u32>,
    /// Verified tokens, by the SHA-256 of their text. To verify a signature takes tens of
    /// microseconds, also for a call that is then refused.
    verified: Cache<[u8; 32], Arc<VerifiedToken>>,
}

/// A token that was verified. It is valid until it expires, or until the keys are replaced.
struct VerifiedToken {
    claims: Arc<TokenClaims>,
    /// The keys that it was verified with.
    keys: Arc<Keys>,
}

/// The claims of a token about its holder, and its key.
pub(crate) struct TokenClaims {
    /// The name of the tenant.
    pub(crate) tenant: String,
    pub(crate) verbs: Verbs,
    /// The provider's name for the holder.
    pub(crate) identity: Identity,
    /// The claim `sub`; empty: there is none.
    pub(crate) subject: String,
    /// The id (`kid`) of the key that has signed the token.
    pub(crate) key: String,
    /// The claim `exp`: seconds since 1970.
    pub(crate) expires: f64,
}

impl TokenClaims {
    /// Time until the token expires.
    pub(super) fn time_left(&self) -> Duration {
        let seconds = self.expires - UnixTime::now().as_secs() as f64;
        Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
    }
}

impl TokenVerifier {
    pub(crate) fn new(settings: &AuthSettings) -> Result<Self, AuthSettingsError> {
        let path = PathBuf::from(&settings.jwks_file);
        let keys = ReloadedFiles::read(vec![path.clone()], |files| parse_keys(&files[0])).map_err(
            |error| match error {
                crate::reloaded_files::ReloadError::File(file, error) => {
                    AuthSettingsError::File(file, error)
                }
                crate::reloaded_files::ReloadError::Content(why) => {
                    AuthSettingsError::Keys(path.clone(), why)
                }
            },
        )?;
        // The file may become empty later, to withdraw all keys. An empty file at startup is a
        // mistake.
        if keys.current().is_empty() {
            return Err(AuthSettingsError::Keys(
                path,
                "the file must hold an Ed25519 or P-256 key with a kid".into(),
            ));
        }
        Ok(Self {
            keys,
            audience: settings.audience.clone(),
            issuer: settings.issuer.clone(),
            tenant_claim: settings.tenant_claim.clone(),
            max_lifetime_seconds: Some(settings.token_lifetime_seconds)
                .filter(|seconds| *seconds > 0),
            verified: Cache::builder()
                .max_capacity(MAX_VERIFIED)
                .time_to_live(VERIFIED_TTL)
                .build(),
        })
    }

    /// Reloads the file when it changes, until the future is dropped.
    pub(super) async fn reload_on_change(&self) {
        self.keys.keep_reloading().await;
    }

    /// Whether tokens of the key with this id (`kid`) are accepted.
    pub(super) fn has_key(&self, id: &str) -> bool {
        self.keys.current().contains_key(id)
    }

    /// Verifies a token, and reads its claims.
    pub(crate) fn verify(&self, token: &str) -> Result<Arc<TokenClaims>, AuthError> {
        let keys = self.keys.current();
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let now = UnixTime::now().as_secs() as f64;
        if let Some(verified) = self.verified.get(&digest)
            && Arc::ptr_eq(&verified.keys, &keys)
            && verified.claims.expires + LEEWAY_SECONDS as f64 > now
        {
            return Ok(Arc::clone(&verified.claims));
        }
        let claims = Arc::new(self.verify_with(&keys, token)?);
        let verified = VerifiedToken {
            claims: Arc::clone(&claims),
            keys,
        };
        self.verified.insert(digest, Arc::new(verified));
        Ok(claims)
    }

    /// Verifies the signature and the claims of a token. Returns the claims about its holder.
    fn verify_with(&self, keys: &Keys, token: &str) -> Result<TokenClaims, AuthError> {
        let header = decode_header(token).map_err(|_| AuthError::Unknown)?;
        if header.crit.is_some() {
            // `crit` lists extensions that a verifier must support (RFC 7515, 4.1.11). This
            // verifier supports none.
            return Err(AuthError::Token(
                "its header demands extensions that this server does not support (crit)",
            ));
        }
        let id = header
            .kid
            .ok_or(AuthError::Token("it names no key (kid)"))?;
        let (key, algorithm) = keys
            .get(&id)
            .ok_or(AuthError::Token("its key (kid) is not known here"))?;
        let claims = decode::<Map<String, Value>>(token, key, &self.validation(*algorithm))
            .map_err(|error| {
                AuthError::Token(match error.kind() {
                    ErrorKind::ExpiredSignature => "it has expired",
                    ErrorKind::ImmatureSignature => "it is not valid yet",
                    ErrorKind::InvalidAudience => "it is for another audience",
                    ErrorKind::InvalidIssuer => "it is from another issuer",
                    ErrorKind::InvalidAlgorithm => {
                        "it is signed with another algorithm than its key is for"
                    }
                    ErrorKind::MissingRequiredClaim(_) => {
                        "its exp, aud or iss is missing or malformed"
                    }
                    _ => "its signature or its claims are not valid",
                })
            })?;
        self.check_lifetime(&claims.claims)?;
        let tenant = claims
            .claims
            .get(&self.tenant_claim)
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let tenant = tenant.ok_or(AuthError::Token("it names no tenant"))?;
        let scope = claims
            .claims
            .get("scope")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let verbs = scope
            .split(' ')
            .filter_map(|word| Verb::from_name(word.strip_prefix(SCOPE_PREFIX)?))
            .collect();
        let subject = claims
            .claims
            .get("sub")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // A token without a readable `exp` was refused above.
        let expires = claims.claims.get("exp").and_then(Value::as_f64);
        Ok(TokenClaims {
            tenant: tenant.to_owned(),
            verbs,
            identity: Identity::of_token(subject),
            subject: subject.to_owned(),
            key: id,
            expires: expires.unwrap_or_default(),
        })
    }

    /// Refuses a token that is valid for too long. The time counts from `iat`, or from now if that
    /// is missing or in the future.
    fn check_lifetime(&self, claims: &Map<String, Value>) -> Result<(), AuthError> {
        let Some(max_seconds) = self.max_lifetime_seconds else {
            return Ok(());
        };
        let claim_seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
        let now = UnixTime::now().as_secs() as f64;
        let issued = claim_seconds("iat").map_or(now, |issued| issued.min(now));
        // A token without a readable `exp` was refused before.
        let lifetime = claim_seconds("exp").unwrap_or(f64::INFINITY) - issued;
        if lifetime > f64::from(max_seconds) + LEEWAY_SECONDS as f64 {
            return Err(AuthError::Token(
                "it is valid for longer than auth.token_lifetime_seconds allows",
            ));
        }
        Ok(())
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "aud"]);
        if !self.issuer.is_empty() {
            validation.set_issuer(&[&self.issuer]);
            validation.set_required_spec_claims(&["exp", "aud", "iss"]);
        }
        validation
    }
}

/// The usable keys of a JWK Set: Ed25519 or P-256, with a kid that no other key has. Other keys are
/// skipped: a file with an unusable key must still replace the previous file, which may hold a key
/// that was withdrawn. An empty set is valid: no token is accepted.
fn parse_keys(text: &[u8]) -> Result<Keys, String> {
    let set: KeySet = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut keys = Keys::new();
    let mut duplicates = HashSet::new();
    for (index, value) in set.keys.into_iter().enumerate() {
        let jwk = match serde_json::from_value::<Jwk>(value) {
            Ok(jwk) => jwk,
            Err(error) => {
                warn!("keys[{index}] of the JWK Set is skipped: {error}");
                continue;
            }
        };
        let Some(algorithm) = algorithm(&jwk) else {
            continue;
        };
        let Some(id) = jwk.common.key_id.clone() else {
            continue;
        };
        match DecodingKey::from_jwk(&jwk) {
            Ok(key) => {
                if keys.insert(id.clone(), (key, algorithm)).is_some() {
                    duplicates.insert(id);
                }
            }
            Err(error) => warn!("the key {id} of the JWK Set is skipped: {error}"),
        }
    }
    for id in duplicates {
        warn!("all keys with the kid {id} of the JWK Set are skipped: there are several");
        keys.remove(&id);
    }
    if keys.is_empty() {
        warn!("the JWK Set holds no Ed25519 or P-256 key with a kid: every token is refused");
    }
    Ok(keys)
}

/// A JWK Set whose keys are parsed one by one.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The algorithm for a key. None: the key is for encryption, or of a kind that is not supported.
/// The token's own header never chooses the algorithm.
fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return None;
    }
    let curve = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(key) => &key.curve,
        AlgorithmParameters::OctetKeyPair(key) => &key.curve,
        _ => return None,
    };
    match curve {
        EllipticCurve::Ed25519 => Some(Algorithm::EdDSA),
        EllipticCurve::P256 => Some(Algorithm::ES256),
        _ => None,
    }
}
