//! Background work: its kinds, and how long a failed one waits.

use std::time::Duration;

/// Seconds that a claim holds without a heartbeat.
pub const LEASE_SECONDS: u32 = 15;
/// Seconds between heartbeats.
pub const HEARTBEAT_SECONDS: u32 = 5;
/// Starts without success after which a job is dead.
pub const MAX_ATTEMPTS: i16 = 12;
/// The longest wait between two tries.
pub const BACKOFF_MOST: Duration = Duration::from_mins(5);
const BACKOFF_FIRST: Duration = Duration::from_millis(500);

/// What a job does. At most one job of a kind waits or runs for a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Counts the tokens of new messages, then looks at the triggers.
    CountTokens,
    /// Summarises the older part of the tail.
    Checkpoint,
    /// Summarises the large messages that have no summary.
    SummarizeMessages,
}

impl JobKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::CountTokens, Self::Checkpoint, Self::SummarizeMessages];

    /// The number it is stored as.
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

/// How long a job waits after its `attempts`-th start failed: doubling from half a second to [`BACKOFF_MOST`], of which
/// `jitter` (0 to 1) picks a point in the upper half, so that jobs which failed together do not return together.
pub fn backoff(attempts: i16, jitter: f64) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1).max(0)).unwrap_or(0).min(20);
    let full = BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MOST);
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
        assert_eq!(backoff(i16::MAX, 1.0), BACKOFF_MOST);
    }

    #[test]
    fn every_kind_is_found_by_its_code() {
        for kind in JobKind::ALL {
            assert_eq!(JobKind::from_code(kind.code()), Some(kind));
        }
        assert_eq!(JobKind::from_code(0), None);
    }
}
