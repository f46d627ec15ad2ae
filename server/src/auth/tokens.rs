//! Tokens of an identity provider (JWT), signed with EdDSA or ES256 by a key in a file. Nothing is asked over the network;
//! whoever rotates keys replaces the file.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use anneal_core::caller::{Verb, Verbs};
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::ErrorKind,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use rustls::pki_types::UnixTime;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::warn;

use super::{
    Stranger,
    settings::{AuthError, AuthSettings},
};
use crate::reload::Reloaded;

/// Seconds by which the clocks of provider and server may differ.
const LEEWAY_SECONDS: u64 = 30;
/// What stands before a verb in a token's `scope`.
const SCOPE_PREFIX: &str = "anneal.";

/// The keys of a provider by their id, each with the one algorithm that it is for.
type Keys = HashMap<String, (DecodingKey, Algorithm)>;

/// What checks tokens.
pub(crate) struct Tokens {
    keys: Reloaded<Keys>,
    audience: String,
    issuer: String,
    tenant_claim: String,
    /// Seconds that a token may be valid; None: any number.
    lifetime: Option<u32>,
}

/// What a token says of its holder.
pub(crate) struct Holder {
    /// The name of its tenant.
    pub(crate) tenant: String,
    pub(crate) verbs: Verbs,
    /// Who it is to the provider; empty: it does not say.
    pub(crate) subject: String,
}

impl Tokens {
    pub(crate) fn new(settings: &AuthSettings) -> Result<Self, AuthError> {
        let path = PathBuf::from(&settings.jwks_file);
        let keys = Reloaded::read(vec![path.clone()], |files| keys(&files[0])).map_err(|error| match error {
            crate::reload::Unread::File(unread, error) => AuthError::File(unread, error),
            crate::reload::Unread::Content(why) => AuthError::Keys(path.clone(), why),
        })?;
        // Later it may be emptied, to withdraw them all. To begin so is a mistake.
        if keys.now().is_empty() {
            return Err(AuthError::Keys(path, "it takes an Ed25519 or P-256 key with a kid".into()));
        }
        Ok(Self {
            keys,
            audience: settings.audience.clone(),
            issuer: settings.issuer.clone(),
            tenant_claim: settings.tenant_claim.clone(),
            lifetime: Some(settings.token_lifetime_seconds).filter(|seconds| *seconds > 0),
        })
    }

    /// Reads the file again whenever it changes, until the future is dropped.
    pub(super) async fn follow(&self) {
        self.keys.follow().await;
    }

    /// Whom a token is about, and what it allows.
    pub(crate) fn read(&self, token: &str) -> Result<Holder, Stranger> {
        let header = decode_header(token).map_err(|_| Stranger::Unknown)?;
        if header.crit.is_some() {
            // Its owner wants it refused by whoever does not understand these (RFC 7515, 4.1.11), and we understand none.
            return Err(Stranger::Token("its header demands what is not understood here (crit)"));
        }
        let id = header.kid.ok_or(Stranger::Token("it names no key (kid)"))?;
        let keys: Arc<Keys> = self.keys.now();
        let (key, algorithm) = keys.get(&id).ok_or(Stranger::Token("its key (kid) is not known here"))?;
        let claims = decode::<Map<String, Value>>(token, key, &self.validation(*algorithm)).map_err(|error| {
            Stranger::Token(match error.kind() {
                ErrorKind::ExpiredSignature => "it has expired",
                ErrorKind::ImmatureSignature => "it is not valid yet",
                ErrorKind::InvalidAudience => "it is for another audience",
                ErrorKind::InvalidIssuer => "it is from another issuer",
                ErrorKind::InvalidAlgorithm => "it is signed with another algorithm than its key is for",
                ErrorKind::MissingRequiredClaim(_) => "its exp, aud or iss is missing or malformed",
                _ => "its signature or its claims do not hold",
            })
        })?;
        self.check_lifetime(&claims.claims)?;
        let tenant = claims.claims.get(&self.tenant_claim).and_then(Value::as_str).filter(|name| !name.is_empty());
        let tenant = tenant.ok_or(Stranger::Token("it names no tenant"))?;
        let scope = claims.claims.get("scope").and_then(Value::as_str).unwrap_or_default();
        let verbs = scope.split(' ').filter_map(|word| Verb::named(word.strip_prefix(SCOPE_PREFIX)?)).collect();
        let subject = claims.claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        Ok(Holder { tenant: tenant.to_owned(), verbs, subject: subject.to_owned() })
    }

    /// Refuses a token that is valid for too long: from its issue, or from now where it does not say when that was, or says that it is
    /// to come.
    fn check_lifetime(&self, claims: &Map<String, Value>) -> Result<(), Stranger> {
        let Some(most) = self.lifetime else { return Ok(()) };
        let seconds = |name: &str| claims.get(name).and_then(Value::as_f64);
        let now = UnixTime::now().as_secs() as f64;
        let issued = seconds("iat").map_or(now, |issued| issued.min(now));
        // What has no end that can be read was refused before.
        let lifetime = seconds("exp").unwrap_or(f64::INFINITY) - issued;
        if lifetime > f64::from(most) + LEEWAY_SECONDS as f64 {
            return Err(Stranger::Token("it is valid for longer than auth.token_lifetime_seconds allows"));
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

/// The keys of a JWK Set that tokens can be checked by; others are passed over, so that what is wrong with one keeps no other
/// from being taken out. An empty set is a set: no token is taken.
fn keys(text: &[u8]) -> Result<Keys, String> {
    let set: KeySet = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let mut keys = Keys::new();
    let mut twice = HashSet::new();
    for (place, value) in set.keys.into_iter().enumerate() {
        let jwk = match serde_json::from_value::<Jwk>(value) {
            Ok(jwk) => jwk,
            Err(error) => {
                warn!("keys[{place}] of the JWK Set is not taken: {error}");
                continue;
            }
        };
        let Some(algorithm) = algorithm(&jwk) else { continue };
        let Some(id) = jwk.common.key_id.clone() else { continue };
        match DecodingKey::from_jwk(&jwk) {
            Ok(key) => {
                if keys.insert(id.clone(), (key, algorithm)).is_some() {
                    twice.insert(id);
                }
            }
            Err(error) => warn!("the key {id} of the JWK Set is not taken: {error}"),
        }
    }
    for id in twice {
        warn!("none of the keys {id} of the JWK Set is taken: there are several of this id");
        keys.remove(&id);
    }
    if keys.is_empty() {
        warn!("the JWK Set holds no Ed25519 or P-256 key with a kid: no token is taken");
    }
    Ok(keys)
}

/// A JWK Set whose keys are looked at one by one.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The algorithm that a key is for, if it is one of ours. Never the token's own word.
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
