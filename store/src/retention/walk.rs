//! Positions in walks through the rows of a tenant. A worker keeps them in its memory: a walk that
//! ends early begins again.

use anneal_core::caller::ConversationId;
use uuid::Uuid;

use crate::{error::StoreError, rows::Micros};

/// How far a walk has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk<Position> {
    /// Before the first row.
    Start,
    /// After this row.
    After(Position),
    /// There are no more rows.
    Ended,
}

impl<Position: Copy> Walk<Position> {
    /// Where the walk goes on after a page of rows: after its last row, or nowhere if the page was
    /// not full.
    pub(super) fn after_page(last: Option<Position>, is_full: bool) -> Self {
        match last {
            Some(last) if is_full => Self::After(last),
            _ => Self::Ended,
        }
    }

    /// The row after which the walk goes on. None: before the first one.
    pub(super) const fn position(&self) -> Option<Position> {
        match self {
            Self::After(position) => Some(*position),
            Self::Start | Self::Ended => None,
        }
    }
}

/// A conversation's place in the order in which conversations were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationPosition {
    pub(super) listed: Micros,
    pub(super) id: ConversationId,
}

impl Walk<ConversationPosition> {
    /// The position as parameters of a statement.
    pub(super) fn columns(&self) -> (Option<i64>, Option<Uuid>) {
        let position = self.position();
        (
            position.map(|position| position.listed.0),
            position.map(|position| position.id.0),
        )
    }
}

/// A step of a walk.
#[derive(Debug)]
pub struct WalkStep<Position> {
    /// Rows that the step has looked at.
    pub read: u64,
    /// Rows that it has deleted.
    pub deleted: u64,
    /// Why it has deleted fewer rows than it should have. The walk goes on after these rows, so
    /// that rows that cannot be deleted do not keep the others.
    pub failure: Option<StoreError>,
    /// Whether it has passed over rows, because other transactions use them.
    pub is_busy: bool,
    /// Where the walk goes on.
    pub walk: Walk<Position>,
}

impl<Position> WalkStep<Position> {
    /// The only step if nothing is to be deleted.
    pub(super) const fn nothing() -> Self {
        Self {
            read: 0,
            deleted: 0,
            failure: None,
            is_busy: false,
            walk: Walk::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_after_a_page_that_is_not_full() {
        assert_eq!(Walk::after_page(Some(7), true), Walk::After(7));
        assert_eq!(Walk::after_page(Some(7), false), Walk::Ended);
        assert_eq!(Walk::<i64>::after_page(None, false), Walk::Ended);
        assert_eq!(Walk::<i64>::Start.position(), None);
    }
}
