//! What callers may take.

use serde::{Deserialize, Serialize};

/// What one server lets callers take of it. Each server counts for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// Calls of one tenant a second; 0: any number.
    pub calls_per_second: u32,
    /// Calls of one tenant at once, after a while without any.
    pub calls_burst: u32,
    /// Bytes of one tenant's requests and answers a second; 0: any number.
    pub bytes_per_second: u64,
    /// Bytes of one tenant's requests and answers at once, after a while without any.
    pub bytes_burst: u64,
    /// Bytes of requests that have not come whole and of answers that were not read, of all tenants together.
    pub waiting_bytes: u64,
    /// Messages that one tenant may store; 0: any number.
    pub tenant_messages: u64,
    /// Bytes of content that one tenant may store; 0: any number.
    pub tenant_content_bytes: u64,
    /// What one tenant may have of `waiting_bytes` and of each of the server's rooms, where callers need credentials: percent.
    pub tenant_share_percent: u32,
    /// Seconds that a request may take to come whole.
    pub receive_seconds: u32,
    /// Seconds that the reader of an answer may take nothing of what is there for it; then its connection is closed.
    pub stall_seconds: u32,
    /// Seconds after which a connection is asked to leave, a tenth more or less; 0: never.
    pub connection_age_seconds: u32,
    /// Seconds that its calls under way then have.
    pub connection_grace_seconds: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            calls_per_second: 2_000,
            calls_burst: 10_000,
            bytes_per_second: 64 * 1024 * 1024,
            bytes_burst: 512 * 1024 * 1024,
            waiting_bytes: 256 * 1024 * 1024,
            tenant_messages: 0,
            tenant_content_bytes: 0,
            tenant_share_percent: 50,
            receive_seconds: 60,
            stall_seconds: 60,
            connection_age_seconds: 0,
            connection_grace_seconds: 600,
        }
    }
}

impl LimitSettings {
    /// One tenant's share of what there is for all.
    pub(crate) fn share_of(&self, all: u64) -> u64 {
        all.saturating_mul(self.tenant_share_percent.into()) / 100
    }
}
