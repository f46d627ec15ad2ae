//! What an operator sets for the server.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Addresses and limits of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Where gRPC listens.
    pub grpc_address: SocketAddr,
    /// Where `/healthz`, `/readyz` and `/metrics` are.
    pub http_address: SocketAddr,
    /// Allow addresses that are not loopback although there is no authentication yet: only on a private network.
    pub insecure: bool,
    /// Whether gRPC reflection answers.
    pub reflection: bool,
    /// Calls under way at once; more are refused with RESOURCE_EXHAUSTED.
    pub concurrent_calls: u32,
    /// AppendLargeMessage calls under way at once: each may hold 64 MiB.
    pub concurrent_large_appends: u32,
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

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            grpc_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 50_051)),
            http_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8_080)),
            insecure: false,
            reflection: true,
            concurrent_calls: 1_024,
            concurrent_large_appends: 4,
            drain_delay_ms: 1_000,
            stop_seconds: 20,
        }
    }
}
