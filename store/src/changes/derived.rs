//! Updates what was made from changed messages: sets checkpoints aside that no longer hold, and
//! marks the recorded beginning of the conversation's contexts.

use anneal_core::{
    boundary::Boundary,
    caller::{Caller, ConversationId},
    context::BreakReason,
    message::MessageId,
};

use super::{
    MessageChangeKind,
    selection::{IdRange, columns},
};
use crate::{
    connection::BoundedConnection,
    context::{PrefixMark, find_last_unsent, mark_prefix},
    error::StoreError,
    triggers::tail_stats,
};

/// Where contexts of a conversation start, before a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextStart {
    /// No context has a message up to this one, neither the next one nor the one that was recorded
    /// last.
    sent_after: MessageId,
    pub(super) boundary: Boundary,
}

impl ContextStart {
    /// Reads where contexts start.
    pub(super) async fn read(
        db: &mut BoundedConnection,
        caller: Caller,
        id: ConversationId,
    ) -> Result<Self, StoreError> {
        let row = sqlx::query_file!("sql/boundary.sql", caller.tenant().0, id.0)
            .fetch_one(&mut *db)
            .await?;
        let separator = row.separator.map(MessageId);
        Ok(Self {
            sent_after: find_last_unsent(db, caller, id, separator.unwrap_or_default()).await?,
            boundary: Boundary::newest(separator, row.checkpoint_last.map(MessageId)),
        })
    }

    /// The first message from which the next context differs, after these messages were changed and
    /// the boundary became `after`. [`MessageId::NONE`]: it differs from the start. None: it does
    /// not differ, because no context has one of these messages.
    fn first_difference(self, runs: &[IdRange], after: Boundary) -> Option<MessageId> {
        let in_contexts = runs.iter().find(|run| run.last > self.sent_after)?;
        Some(if after == self.boundary {
            in_contexts.first.max(self.sent_after.next())
        } else {
            MessageId::NONE
        })
    }
}

/// Sets those checkpoints aside whose range holds one of these messages. Returns their ranges, in
/// order.
pub(super) async fn void_checkpoints(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    runs: &[IdRange],
    change_id: i64,
) -> Result<Vec<IdRange>, StoreError> {
    let (firsts, lasts) = columns(runs);
    let rows = sqlx::query_file!(
        "sql/void_checkpoints.sql",
        caller.tenant().0,
        id.0,
        &firsts,
        &lasts,
        change_id,
    )
    .fetch_all(db)
    .await?;
    let mut ranges: Vec<IdRange> = rows
        .into_iter()
        .map(|row| IdRange {
            first: MessageId(row.first_message_id),
            last: MessageId(row.last_message_id),
        })
        .collect();
    ranges.sort_unstable_by_key(|range| (range.first, range.last));
    Ok(ranges)
}

/// Marks that the next context differs from the recorded version, and why. `start` is where
/// contexts started before the change. Returns where they start now.
pub(super) async fn mark_contexts(
    db: &mut BoundedConnection,
    caller: Caller,
    id: ConversationId,
    (start, last): (ContextStart, MessageId),
    (kind, runs): (MessageChangeKind, &[IdRange]),
) -> Result<Boundary, StoreError> {
    let boundary = tail_stats::read_boundary(&mut *db, caller, id).await?;
    if let Some(first) = start.first_difference(runs, boundary) {
        let mark = PrefixMark {
            reason: break_reason(kind),
            broken_at: first,
            last_message_id: last,
        };
        mark_prefix(db, caller, id, &mark).await?;
    }
    Ok(boundary)
}

/// Why contexts differ after a change. A restored message is withdrawn content that stands again.
const fn break_reason(kind: MessageChangeKind) -> BreakReason {
    match kind {
        MessageChangeKind::Withdrawn | MessageChangeKind::Restored => BreakReason::Withdrawal,
        MessageChangeKind::Edited => BreakReason::Edit,
        MessageChangeKind::Erased => BreakReason::Erasure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs<const N: usize>(runs: [(i64, i64); N]) -> Vec<IdRange> {
        runs.map(|(first, last)| IdRange {
            first: MessageId(first),
            last: MessageId(last),
        })
        .to_vec()
    }

    #[test]
    fn a_context_differs_from_the_first_changed_message_that_a_context_has() {
        let boundary = Boundary::Separator(MessageId(5));
        let start = ContextStart {
            sent_after: MessageId(5),
            boundary,
        };
        let difference = |changed: &[IdRange]| {
            start
                .first_difference(changed, boundary)
                .map(|first| first.0)
        };
        assert_eq!(difference(&runs([(1, 2), (5, 5)])), None);
        assert_eq!(difference(&runs([(1, 2), (8, 9)])), Some(8));
        assert_eq!(difference(&runs([(4, 7)])), Some(6));
    }

    #[test]
    fn a_context_differs_from_the_start_if_a_checkpoint_no_longer_holds() {
        let start = ContextStart {
            sent_after: MessageId::NONE,
            boundary: Boundary::Checkpoint(MessageId(8)),
        };
        assert_eq!(
            start.first_difference(&runs([(3, 3)]), Boundary::Start),
            Some(MessageId::NONE)
        );
    }
}
