//! The settings section `server`: addresses, protection and limits of the process.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
};

use serde::{Deserialize, Serialize};

use crate::cors_origins::CorsOrigins;

/// Addresses and limits of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// The address of gRPC.
    pub grpc_address: SocketAddr,
    /// The address of HTTP/JSON, `/healthz`, `/readyz` and `/metrics`.
    pub http_address: SocketAddr,
    /// The address of `/healthz`, `/readyz` and `/metrics`, without TLS and credentials; None:
    /// `http_address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_address: Option<SocketAddr>,
    /// The origins whose pages may call the HTTP API (CORS); empty: none.
    pub cors_origins: CorsOrigins,
    /// Further Host names that HTTP accepts while callers need no credential;
    /// `http/allowed_hosts.rs` says which it accepts anyway. With credentials it accepts any.
    pub http_hosts: Vec<String>,
    /// The certificate chain of gRPC and HTTP (PEM); empty: no TLS.
    pub tls_certificate_file: String,
    /// The certificate's private key (PEM).
    pub tls_key_file: String,
    /// The CA of client certificates (PEM); empty: clients are not asked for a certificate.
    pub tls_client_ca_file: String,
    /// Serve without TLS or without credentials on an address that is not loopback, or with TLS but
    /// without credentials on any address.
    pub insecure: bool,
    /// Connections to gRPC and HTTP together; one with many streams counts several times. A
    /// sixteenth is reserved for connections without an authenticated call. Above its share a
    /// tenant loses one of its own connections, an idle one first. Above the limit the oldest
    /// connection without a credential is closed.
    pub connections: NonZeroU32,
    /// Whether gRPC reflection is served.
    pub reflection: bool,
    /// Concurrent calls other than turns and watches; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_calls: u32,
    /// Concurrent turns over gRPC and HTTP; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_turns: NonZeroU32,
    /// Concurrent readers of turns over HTTP; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_readers: u32,
    /// Concurrent AppendLargeMessage calls; each may hold 64 MiB.
    pub concurrent_large_appends: u32,
    /// Concurrent WatchConversation calls; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_watches: u32,
    /// Milliseconds between two polls of the watched conversations.
    pub watch_poll_ms: u32,
    /// Seconds without progress after which the reader of a watch is disconnected.
    pub watch_stall_seconds: u32,
    /// Milliseconds between NOT_SERVING and the refusal of new connections, for load balancers to
    /// notice.
    pub drain_delay_ms: u32,
    /// Seconds that turns under way get to finish once new connections are refused.
    pub stop_seconds: u32,
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
