//! Stops of turns that a caller asks for.

/// What a turn that is stopped does with what has come of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopMode {
    /// It stores it.
    Keep,
    /// It drops it.
    Drop,
}
