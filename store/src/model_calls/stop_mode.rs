//! Whether the answer of a turn that is stopped is kept or dropped.

/// Whether a turn that is stopped keeps what has come of its answer. The greater one wins if both
/// are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopMode {
    /// It stores it.
    Keep,
    /// It drops it.
    Drop,
}

impl StopMode {
    /// The value of `ai_model_lease.stop`.
    pub(super) const fn code(self) -> i16 {
        match self {
            Self::Keep => 1,
            Self::Drop => 2,
        }
    }

    /// The mode with this value of `ai_model_lease.stop`. An unknown one is that of a newer server,
    /// and stops the turn, too.
    pub(super) const fn from_code(code: i16) -> Self {
        match code {
            1 => Self::Keep,
            _ => Self::Drop,
        }
    }
}
