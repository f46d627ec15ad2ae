//! Background jobs: their kinds, leases, and the backoff after a failure.
//! `worker/src/retry_policy.rs` decides whether a failed job is retried. `store/sql/fail_job.sql`
//! gives up a job that fails after [`MAX_ATTEMPTS`] starts.

use std::time::Duration;

/// Seconds that a lease lasts without a heartbeat.
pub const LEASE_SECONDS: u32 = 15;
/// Seconds between heartbeats.
pub const HEARTBEAT_SECONDS: u32 = 5;
/// Starts after which a job that fails is dead: it is not started again unless an operator requeues
/// it. A start whose process was killed counts too.
pub const MAX_ATTEMPTS: i16 = 12;
/// The longest backoff between two starts.
pub const BACKOFF_MAX: Duration = Duration::from_mins(5);
/// The longest backoff after the first start failed.
const BACKOFF_BASE: Duration = Duration::from_millis(500);

/// The kind of a job. At most one job of a kind is queued or running for a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Counts the messages that were not counted when they were appended, if there are any. Then
    /// evaluates the triggers.
    CountTokens,
    /// Summarizes the older part of the tail.
    Checkpoint,
    /// Summarizes the large messages that have no summary yet.
    SummarizeMessages,
}

impl JobKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::CountTokens, Self::Checkpoint, Self::SummarizeMessages];

    /// The number stored in `ai_job`.
    pub const fn code(self) -> i16 {
        match self {
            Self::CountTokens => 1,
            Self::Checkpoint => 2,
            Self::SummarizeMessages => 3,
        }
    }

    /// The kind stored as `code`.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// The name in logs, metrics and commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CountTokens => "count_tokens",
            Self::Checkpoint => "checkpoint",
            Self::SummarizeMessages => "summarize_messages",
        }
    }
}

/// The backoff after the `attempts`-th start failed. It doubles from half a second up to
/// [`BACKOFF_MAX`]. `jitter` (0 to 1) picks a point in its upper half, so that jobs which failed
/// together do not retry together.
pub fn backoff(attempts: i16, jitter: f64) -> Duration {
    // 20 doublings are beyond `BACKOFF_MAX`, and more than 31 would overflow the shift.
    let doublings = u32::try_from(attempts.saturating_sub(1).max(0))
        .unwrap_or(0)
        .min(20);
    let full = BACKOFF_BASE.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_five_minutes() {
        assert_eq!(backoff(1, 1.0), Duration::from_millis(500));
        assert_eq!(backoff(1, 0.0), Duration::from_millis(250));
        assert_eq!(backoff(2, 1.0), Duration::from_secs(1));
        assert_eq!(backoff(i16::MAX, 1.0), BACKOFF_MAX);
    }

    #[test]
    fn every_kind_is_found_by_its_code() {
        for kind in JobKind::ALL {
            assert_eq!(JobKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(JobKind::from_code(0), None);
    }
}
