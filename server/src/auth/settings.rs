//! How callers are known, as an operator sets it.

use std::{collections::BTreeMap, path::PathBuf};

use anneal_core::caller::{Verb, Verbs};
use serde::{Deserialize, Serialize};

use super::certificates::is_uri;

/// Credentials that are taken; with none of them set, callers need none, and the server listens on loopback alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// Whether API keys are taken, which `anneal keys` makes.
    pub api_keys: bool,
    /// The public keys (JWK Set) of the identity provider whose tokens are taken; empty: none are.
    pub jwks_file: String,
    /// The audience (`aud`) that tokens must be for.
    pub audience: String,
    /// The issuer (`iss`) that tokens must be from; empty: any whose key is in the file.
    pub issuer: String,
    /// The claim that names a token's tenant.
    pub tenant_claim: String,
    /// Seconds that a token may be valid from its issue (`iat`) to its end (`exp`); 0: any number.
    pub token_lifetime_seconds: u32,
    /// Keys a minute that one address may show which nobody has, before it has to wait; 0: any number.
    pub unknown_keys_per_minute: u32,
    /// Clients with certificates, by the DNS name or URI in them (subject alternative name).
    pub clients: BTreeMap<String, ClientSettings>,
}

/// For whom the holder of a certificate speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// The tenant's name.
    pub tenant: String,
    /// What it may do.
    #[serde(default = "reading_and_appending")]
    pub verbs: Vec<String>,
}

fn reading_and_appending() -> Vec<String> {
    vec![Verb::Read.name().to_owned(), Verb::Append.name().to_owned()]
}

impl ClientSettings {
    pub(super) fn verbs(&self) -> Verbs {
        self.verbs.iter().filter_map(|name| Verb::named(name)).collect()
    }
}

/// Settings with which no caller could be known, or the wrong ones.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// Tokens for other services would be taken.
    #[error("auth.jwks_file needs auth.audience: without it, tokens that were made for other services would be taken")]
    NoAudience,
    /// No verb of that name.
    #[error("auth.clients.{client:?}: there is no verb {verb:?}; there are read, append, admin and operator")]
    NoSuchVerb {
        /// The name in the certificate.
        client: String,
        /// What was written.
        verb: String,
    },
    /// Neither a DNS name nor a URI that a certificate's could be compared with.
    #[error("auth.clients.{0:?}: a client is named by a DNS name, or by a URI with its scheme and ://")]
    NoName(String),
    /// Certificates that nobody checks.
    #[error("auth.clients needs server.tls_client_ca_file: certificates are taken from whom that authority has signed")]
    NoAuthority,
    /// A file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] std::io::Error),
    /// A file of keys that no token could be checked by.
    #[error("{0} holds no key that tokens can be checked by: {1}")]
    Keys(PathBuf, String),
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            api_keys: false,
            jwks_file: String::new(),
            audience: String::new(),
            issuer: String::new(),
            tenant_claim: "tenant".into(),
            token_lifetime_seconds: 86_400,
            unknown_keys_per_minute: 60,
            clients: BTreeMap::new(),
        }
    }
}

impl AuthSettings {
    /// Whether callers need a credential.
    pub fn is_on(&self) -> bool {
        self.api_keys || !self.jwks_file.is_empty() || !self.clients.is_empty()
    }

    /// Says what could not work; `checks_certificates` is whether the server asks for them.
    pub fn check(&self, checks_certificates: bool) -> Result<(), AuthError> {
        if !self.jwks_file.is_empty() && self.audience.is_empty() {
            return Err(AuthError::NoAudience);
        }
        if !self.clients.is_empty() && !checks_certificates {
            return Err(AuthError::NoAuthority);
        }
        for (client, settings) in &self.clients {
            if client.is_empty() || client.contains(':') && !is_uri(client) {
                return Err(AuthError::NoName(client.clone()));
            }
            if let Some(verb) = settings.verbs.iter().find(|verb| Verb::named(verb).is_none()) {
                return Err(AuthError::NoSuchVerb { client: client.clone(), verb: verb.clone() });
            }
        }
        Ok(())
    }
}
