//! The checked rows of a conversation, and the values that the checks of messages and checkpoints
//! pass on to the check of changes.

/// How much of a conversation is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything.
    Whole,
    /// The messages after this one (0: all of them), the newest changes, and one page of the
    /// versions that no longer stand, without their content.
    Newest(i64),
}

impl Extent {
    /// The message after which messages are checked.
    pub(super) const fn after(self) -> i64 {
        match self {
            Self::Whole => 0,
            Self::Newest(after) => after,
        }
    }
}

/// Most messages or versions that one statement reads, and most messages whose digests are added
/// before the task yields.
pub(super) const MESSAGES_PER_STEP: i64 = 2_000;

/// A message that was checked by itself.
pub(super) struct CheckedMessage {
    pub(super) id: i64,
    /// Digest of its content.
    pub(super) digest: Vec<u8>,
    pub(super) is_withdrawn: bool,
    /// When its summary was stored. None: it has none.
    pub(super) summary: Option<Made>,
}

/// A checkpoint that stands.
pub(super) struct StandingCheckpoint {
    /// The first message of its range.
    pub(super) first: i64,
    /// The last message of its range.
    pub(super) last: i64,
    pub(super) made: Made,
}

/// When a summary was stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made {
    /// Its number among the summaries, checkpoints and changes of its conversation. 0: it has none,
    /// because a fork has copied it, or an older version has stored it.
    pub(super) change_id: i64,
    /// Microseconds since 1970.
    pub(super) created_us: i64,
}
