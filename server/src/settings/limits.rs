//! The settings section `limits`: what callers may use.

use anneal_core::{
    limits::MESSAGE_BYTES,
    message::{Message, plain_text_bytes},
};
use serde::{Deserialize, Serialize};

/// Limits of one server, which counts for itself. Only the storage quotas of tenants
/// (`tenant_messages`, `tenant_content_bytes`) cover all servers together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitSettings {
    /// Calls per second of one tenant; 0: no limit.
    pub calls_per_second: u32,
    /// Calls that one tenant may make at once after a pause.
    pub calls_burst: u32,
    /// Bytes per second of one tenant's requests and answers; 0: no limit.
    pub bytes_per_second: u64,
    /// Bytes of requests and answers that one tenant may transfer at once after a pause.
    pub bytes_burst: u64,
    /// Bytes of incomplete requests and unread answers in memory, of all tenants together.
    pub waiting_bytes: u64,
    /// Bytes of one message's text, from 1 MiB to [`MESSAGE_BYTES`].
    pub message_bytes: u32,
    /// Messages that one tenant may store; 0: no limit.
    pub tenant_messages: u64,
    /// Bytes of content that one tenant may store; 0: no limit.
    pub tenant_content_bytes: u64,
    /// Bytes of stored content that reads hold in memory, of all tenants together. Turns may hold
    /// the same amount again.
    pub content_bytes: u64,
    /// Bytes of answers of turns that are kept for HTTP readers, of all tenants together.
    pub answer_log_bytes: u64,
    /// One tenant's share in percent, where callers need credentials: of `waiting_bytes`,
    /// `content_bytes`, `answer_log_bytes`, connections, each concurrency limit of the server, and
    /// its database connections.
    pub tenant_share_percent: u32,
    /// Seconds within which a request must arrive completely.
    pub receive_seconds: u32,
    /// Seconds that a client may read nothing of its waiting answers before its connection is
    /// closed.
    pub stall_seconds: u32,
    /// Seconds after which a client is asked to close its connection, plus or minus a tenth; 0:
    /// never.
    pub connection_age_seconds: u32,
    /// Seconds that the calls in flight on a connection of that age get to finish.
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
            message_bytes: MESSAGE_BYTES as u32,
            tenant_messages: 0,
            tenant_content_bytes: 0,
            content_bytes: 64 * 1024 * 1024,
            answer_log_bytes: 128 * 1024 * 1024,
            tenant_share_percent: 50,
            receive_seconds: 60,
            stall_seconds: 60,
            connection_age_seconds: 0,
            connection_grace_seconds: 600,
        }
    }
}

impl LimitSettings {
    /// These limits with those of `new` that a running server can replace. The others size
    /// semaphores, or are read when a connection is opened.
    #[must_use]
    pub fn with_reloadable(&self, new: &Self) -> Self {
        Self {
            calls_per_second: new.calls_per_second,
            calls_burst: new.calls_burst,
            bytes_per_second: new.bytes_per_second,
            bytes_burst: new.bytes_burst,
            waiting_bytes: new.waiting_bytes,
            message_bytes: new.message_bytes,
            tenant_messages: new.tenant_messages,
            tenant_content_bytes: new.tenant_content_bytes,
            receive_seconds: new.receive_seconds,
            ..self.clone()
        }
    }

    /// The least value of `message_bytes`.
    pub const MIN_MESSAGE_BYTES: u32 = 1024 * 1024;

    /// Bytes of one message's text.
    pub(crate) const fn message_bytes(&self) -> usize {
        self.message_bytes as usize
    }

    /// Whether the message has more text than one message may have.
    pub(crate) fn is_too_large(&self, message: &Message) -> bool {
        plain_text_bytes(&message.parts) > self.message_bytes()
    }

    /// One tenant's share of `all`.
    pub(crate) fn share_of(&self, all: u64) -> u64 {
        all.saturating_mul(self.tenant_share_percent.into()) / 100
    }
}
