//! Positions in walks through the conversations of a tenant, in the order in which they were used.
//! A worker keeps them in its memory: after a restart a walk begins again.

use anneal_core::caller::ConversationId;
use uuid::Uuid;

use super::rules::RetentionLimit;
use crate::{error::StoreError, rows::Micros};

/// How far a walk has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// Before the first conversation.
    Start,
    /// After this conversation.
    After(ConversationPosition),
    /// There are no more conversations.
    Ended,
}

/// A conversation's place in the order in which conversations were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationPosition {
    pub(super) listed: Micros,
    pub(super) id: ConversationId,
}

impl Walk {
    /// Where the walk goes on after a page: after its last conversation, or nowhere if the page was
    /// not full.
    pub(super) fn after_page(last: Option<ConversationPosition>, is_full: bool) -> Self {
        match last {
            Some(last) if is_full => Self::After(last),
            _ => Self::Ended,
        }
    }

    /// The conversation after which the walk goes on, as parameters of a statement. None: before
    /// the first one.
    pub(super) const fn columns(&self) -> (Option<i64>, Option<Uuid>) {
        match self {
            Self::After(position) => (Some(position.listed.0), Some(position.id.0)),
            Self::Start | Self::Ended => (None, None),
        }
    }
}

/// A step of a walk.
#[derive(Debug)]
pub struct WalkStep {
    /// Rows that it has deleted, by the limit that kept them no longer.
    pub deleted: Vec<(RetentionLimit, u64)>,
    /// Conversations that it has passed over because they are kept, although they would be idle for
    /// another agent.
    pub kept: u64,
    /// Why some rows could not be deleted, by the limit that keeps them no longer. The walk goes on
    /// after them, so that they do not keep the others.
    pub failures: Vec<(RetentionLimit, StoreError)>,
    /// Why the walk cannot go on now. It stays where it is.
    pub interruption: Option<StoreError>,
    /// Where the walk goes on.
    pub walk: Walk,
}

impl From<Walk> for WalkStep {
    /// A step that has done nothing yet.
    fn from(walk: Walk) -> Self {
        Self {
            deleted: Vec::new(),
            kept: 0,
            failures: Vec::new(),
            interruption: None,
            walk,
        }
    }
}

impl WalkStep {
    /// Adds deleted rows.
    pub(super) fn add_deleted(&mut self, limit: RetentionLimit, rows: u64) {
        self.deleted.push((limit, rows));
    }

    /// Adds an error at the deletion of rows. Returns whether the step can go on: not if the
    /// database or a pool of connections is the cause.
    pub(super) fn fail(&mut self, limit: RetentionLimit, error: StoreError) -> bool {
        if error.is_outage() {
            self.interruption = Some(error);
            return false;
        }
        self.failures.push((limit, error));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_after_a_page_that_is_not_full() {
        let last = ConversationPosition {
            listed: Micros(7),
            id: ConversationId(Uuid::nil()),
        };
        assert_eq!(Walk::after_page(Some(last), true), Walk::After(last));
        assert_eq!(Walk::after_page(Some(last), false), Walk::Ended);
        assert_eq!(Walk::after_page(None, false), Walk::Ended);
        assert_eq!(Walk::Start.columns(), (None, None));
        assert_eq!(Walk::After(last).columns(), (Some(7), Some(Uuid::nil())));
    }

    #[test]
    fn a_step_goes_on_after_rows_that_cannot_be_deleted_and_not_without_connections() {
        let mut step = WalkStep::from(Walk::Start);
        let unreadable = StoreError::Unreadable("erasure");
        assert!(step.fail(RetentionLimit::IdleDays, unreadable));
        assert_eq!(
            (step.failures.len(), step.interruption.is_none()),
            (1, true)
        );
        assert!(!step.fail(RetentionLimit::IdleDays, StoreError::Busy));
        assert_eq!(
            (step.failures.len(), step.interruption.is_some()),
            (1, true)
        );
    }
}
