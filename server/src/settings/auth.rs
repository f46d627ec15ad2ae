//! The settings section `auth`: how callers are authenticated.

use std::{collections::BTreeMap, path::PathBuf};

use anneal_core::caller::{Verb, Verbs};
use serde::{Deserialize, Serialize};

/// The accepted credentials. With none of them set, callers need no credential, and the server
/// listens on loopback only, unless `server.insecure` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSettings {
    /// Whether API keys are accepted. `anneal keys` makes them.
    pub api_keys: bool,
    /// File with the public keys (JWK Set) of the identity provider; empty: tokens are not
    /// accepted.
    pub jwks_file: String,
    /// The audience (`aud`) that tokens must have.
    pub audience: String,
    /// The issuer (`iss`) that tokens must have; empty: any issuer whose key is in the file.
    pub issuer: String,
    /// The claim that names the tenant.
    pub tenant_claim: String,
    /// Most seconds from a token's issue (`iat`) to its end (`exp`); 0: any number.
    pub token_lifetime_seconds: u32,
    /// Unknown keys that one address may present per minute before it is refused; 0: any number.
    pub unknown_keys_per_minute: u32,
    /// Clients with certificates, by the DNS name or URI in their certificate (subject alternative
    /// name).
    pub clients: BTreeMap<String, ClientSettings>,
}

/// The tenant and the verbs of the holder of a client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSettings {
    /// The tenant's name.
    pub tenant: String,
    /// The allowed verbs.
    #[serde(default = "reading_and_appending")]
    pub verbs: Vec<String>,
}

fn reading_and_appending() -> Vec<String> {
    vec![Verb::Read.name().to_owned(), Verb::Append.name().to_owned()]
}

impl ClientSettings {
    /// The allowed verbs, parsed. Unknown names are left out: [`AuthSettings::check`] refuses them.
    pub(crate) fn verbs(&self) -> Verbs {
        self.verbs
            .iter()
            .filter_map(|name| Verb::from_name(name))
            .collect()
    }
}

/// Whether a client's name is a URI; otherwise it is a DNS name.
pub(crate) fn is_uri(name: &str) -> bool {
    name.contains("://")
}

/// Settings under which no caller could be authenticated, or the wrong ones would be.
#[derive(Debug, thiserror::Error)]
pub enum AuthSettingsError {
    /// Without an audience, tokens for other services would be accepted.
    #[error(
        "auth.jwks_file needs auth.audience: without it, tokens for other services would be accepted"
    )]
    NoAudience,
    /// There is no verb of that name.
    #[error(
        "auth.clients.{client:?}: there is no verb {verb:?}; there are read, append, admin and operator"
    )]
    NoSuchVerb {
        /// The name in the certificate.
        client: String,
        /// The unknown verb.
        verb: String,
    },
    /// The name is neither a DNS name nor a URI.
    #[error(
        "auth.clients.{0:?}: the name of a client must be a DNS name, or a URI with its scheme and ://"
    )]
    InvalidName(String),
    /// No authority is set that would check client certificates.
    #[error(
        "auth.clients needs server.tls_client_ca_file: only certificates that this authority has signed are accepted"
    )]
    NoAuthority,
    /// A file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] std::io::Error),
    /// A file has no key that tokens can be verified with.
    #[error("{0} holds no key that can verify tokens: {1}")]
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

    /// Checks the settings. `checks_certificates`: whether the server asks clients for
    /// certificates.
    pub fn check(&self, checks_certificates: bool) -> Result<(), AuthSettingsError> {
        if !self.jwks_file.is_empty() && self.audience.is_empty() {
            return Err(AuthSettingsError::NoAudience);
        }
        if !self.clients.is_empty() && !checks_certificates {
            return Err(AuthSettingsError::NoAuthority);
        }
        for (client, settings) in &self.clients {
            if client.is_empty() || client.contains(':') && !is_uri(client) {
                return Err(AuthSettingsError::InvalidName(client.clone()));
            }
            if let Some(verb) = settings
                .verbs
                .iter()
                .find(|verb| Verb::from_name(verb).is_none())
            {
                return Err(AuthSettingsError::NoSuchVerb {
                    client: client.clone(),
                    verb: verb.clone(),
                });
            }
        }
        Ok(())
    }
}
