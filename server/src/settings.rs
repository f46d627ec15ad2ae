//! What an operator sets for the server.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
};

use anneal_core::{
    limits::{ID_BYTES, SYSTEM_PROMPT_BYTES},
    policy::{PolicyOverrides, Profile, Session},
    tokens::Encoding,
};
use serde::{Deserialize, Serialize};

use crate::http::CorsOrigins;

/// Addresses and limits of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Where gRPC listens.
    pub grpc_address: SocketAddr,
    /// Where HTTP/JSON listens, `/healthz`, `/readyz` and `/metrics` among it.
    pub http_address: SocketAddr,
    /// Where `/healthz`, `/readyz` and `/metrics` answer instead, without TLS or credentials; None: on `http_address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_address: Option<SocketAddr>,
    /// The origins whose pages may ask over HTTP; empty: none.
    pub cors_origins: CorsOrigins,
    /// Names under which HTTP answers besides its own while callers need no credential; with credentials it answers to any.
    pub http_hosts: Vec<String>,
    /// The certificate chain of both ports (PEM); empty: no TLS.
    pub tls_certificate_file: String,
    /// Its key (PEM).
    pub tls_key_file: String,
    /// The authority that signs clients' certificates (PEM); empty: clients are not asked for one.
    pub tls_client_ca_file: String,
    /// Serve where others could listen in or come in: without TLS or without credentials on an address that is not loopback.
    pub insecure: bool,
    /// Places for connections to both ports together; one of many streams takes several. A tenant has its share of them, new
    /// connections a reserve; beyond that, a tenant's own oldest goes, and whoever has shown no credential for longest.
    pub connections: NonZeroU32,
    /// Whether gRPC reflection answers.
    pub reflection: bool,
    /// Calls under way at once; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_calls: u32,
    /// Turns under way at once, over gRPC and HTTP; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_turns: NonZeroU32,
    /// Readers of turns over HTTP at once; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_readers: u32,
    /// AppendLargeMessage calls under way at once: each may hold 64 MiB.
    pub concurrent_large_appends: u32,
    /// WatchConversation calls under way at once; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_watches: u32,
    /// Milliseconds between two looks at the watched conversations.
    pub watch_poll_ms: u32,
    /// Seconds that the reader of a watch may take no event before it is dropped.
    pub watch_stall_seconds: u32,
    /// Milliseconds between NOT_SERVING and closing the door, so that load balancers notice.
    pub drain_delay_ms: u32,
    /// Seconds that turns under way get to finish once the door is closed.
    pub stop_seconds: u32,
}

/// Turns that the server runs itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChatSettings {
    /// The model that answers where neither the call nor the conversation names one; empty: none.
    pub model: String,
}

/// How the conversations of an agent begin, where their callers do not say otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// The profile of their policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Sent before everything else; empty: none.
    pub system_prompt: String,
    /// The model that they are for; empty: none.
    pub model: String,
}

/// The agents that have settings, by name.
pub type Agents = BTreeMap<String, AgentSettings>;

impl AgentSettings {
    /// What it sets of a conversation's policy.
    pub fn policy(&self) -> PolicyOverrides {
        let model = (!self.model.is_empty()).then(|| self.model.clone());
        PolicyOverrides { profile: self.profile, model, ..PolicyOverrides::default() }
    }

    /// Says what conversations could not begin with.
    pub fn check(&self, name: &str, session: &Session) -> Result<(), AgentError> {
        let texts = [
            ("name", name, ID_BYTES),
            ("model", self.model.as_str(), ID_BYTES),
            ("system_prompt", self.system_prompt.as_str(), SYSTEM_PROMPT_BYTES),
        ];
        let refused = |key, must_be| AgentError { agent: name.to_owned(), key, must_be };
        if name.is_empty() {
            return Err(refused("name", "must not be empty".to_owned()));
        }
        for (key, text, most) in texts {
            if text.len() > most {
                return Err(refused(key, format!("has {} bytes; at most {most} are allowed", text.len())));
            }
            if text.contains('\0') {
                return Err(refused(key, "must not contain NUL".to_owned()));
            }
        }
        let prompt = Encoding::of_model(&self.model).unwrap_or_default().counter().count(&self.system_prompt);
        let checked = session.policy(&self.policy(), None).check(prompt);
        checked.map(|_| ()).map_err(|error| refused(error.key, format!("must be {}", error.must_be)))
    }
}

/// Settings of an agent that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agents.{agent:?}: {key} {must_be}")]
pub struct AgentError {
    agent: String,
    key: &'static str,
    must_be: String,
}

/// What applications find: how turns are run, and how their agents' conversations begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplicationSettings {
    /// How turns are run.
    pub chat: ChatSettings,
    /// How conversations begin.
    pub agents: Agents,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            grpc_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 50_051)),
            http_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8_080)),
            probe_address: None,
            cors_origins: CorsOrigins::default(),
            http_hosts: Vec::new(),
            tls_certificate_file: String::new(),
            tls_key_file: String::new(),
            tls_client_ca_file: String::new(),
            insecure: false,
            connections: NonZeroU32::new(10_000).expect("it is not 0"),
            reflection: false,
            concurrent_calls: 1_024,
            concurrent_turns: NonZeroU32::new(256).expect("it is not 0"),
            concurrent_readers: 1_000,
            concurrent_large_appends: 4,
            concurrent_watches: 1_000,
            watch_poll_ms: 200,
            watch_stall_seconds: 30,
            drain_delay_ms: 1_000,
            stop_seconds: 20,
        }
    }
}
