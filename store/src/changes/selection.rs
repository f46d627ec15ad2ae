//! The messages that a call names, and sets of messages as runs of consecutive ids.

use anneal_core::message::MessageId;

use crate::error::StoreError;

/// Messages from one id to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The first message.
    pub first: MessageId,
    /// The last message.
    pub last: MessageId,
}

/// The messages that a call names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// These messages, in any order. One may be named several times.
    Ids(Vec<MessageId>),
    /// All messages of a range.
    Range(IdRange),
    /// All messages after this one; [`MessageId::NONE`]: every message.
    After(MessageId),
}

impl Selection {
    /// The name of the form and the ids in it. Ids are sorted, without duplicates: the same
    /// messages have the same fields.
    pub(super) fn digest_fields(&self) -> (&'static [u8], Vec<u8>) {
        let (form, ids): (&[u8], Vec<MessageId>) = match self {
            Self::Ids(ids) => (b"ids", sorted(ids)),
            Self::Range(range) => (b"range", vec![range.first, range.last]),
            Self::After(id) => (b"after", vec![*id]),
        };
        (form, ids.iter().flat_map(|id| id.0.to_be_bytes()).collect())
    }

    /// The selected messages as runs, in order. `last` is the newest message. Fails if the
    /// conversation lacks one of the named messages.
    pub(super) fn runs(&self, last: MessageId) -> Result<Vec<IdRange>, StoreError> {
        let check = |id: MessageId, least: MessageId| {
            if id < least || id > last {
                return Err(StoreError::UnknownMessage(id));
            }
            Ok(())
        };
        let first = MessageId::NONE.next();
        match self {
            Self::Ids(ids) => {
                let ids = sorted(ids);
                ids.iter().try_for_each(|id| check(*id, first))?;
                Ok(runs_of(ids))
            }
            Self::Range(range) => {
                check(range.first, first)?;
                check(range.last, first)?;
                Ok(vec![*range])
            }
            Self::After(id) => {
                check(*id, MessageId::NONE)?;
                Ok(vec![IdRange {
                    first: id.next(),
                    last,
                }])
            }
        }
    }
}

fn sorted(ids: &[MessageId]) -> Vec<MessageId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The runs of consecutive ids among `ids`, which are in order.
pub(crate) fn runs_of(ids: impl IntoIterator<Item = MessageId>) -> Vec<IdRange> {
    let mut runs: Vec<IdRange> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some(run) if run.last.next() == id => run.last = id,
            _ => runs.push(IdRange {
                first: id,
                last: id,
            }),
        }
    }
    runs
}

/// The first and the last id of each run, as two columns.
pub(super) fn columns(runs: &[IdRange]) -> (Vec<i64>, Vec<i64>) {
    runs.iter().map(|run| (run.first.0, run.last.0)).unzip()
}

/// The runs of which these are the columns.
pub(crate) fn from_columns(firsts: &[i64], lasts: &[i64]) -> Vec<IdRange> {
    let runs = firsts.iter().zip(lasts).map(|(first, last)| IdRange {
        first: MessageId(*first),
        last: MessageId(*last),
    });
    runs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: i64, last: i64) -> IdRange {
        IdRange {
            first: MessageId(first),
            last: MessageId(last),
        }
    }

    fn ids(ids: &[i64]) -> Selection {
        Selection::Ids(ids.iter().copied().map(MessageId).collect())
    }

    #[test]
    fn ids_in_any_order_become_runs_in_order() {
        let runs = ids(&[7, 2, 3, 9, 3, 8]).runs(MessageId(9)).expect("known");
        assert_eq!(runs, [run(2, 3), run(7, 9)]);
        assert_eq!(columns(&runs), (vec![2, 7], vec![3, 9]));
        assert_eq!(from_columns(&[2, 7], &[3, 9]), runs);
    }

    #[test]
    fn all_messages_after_one_are_a_run_which_is_empty_after_the_newest() {
        let after = |id| Selection::After(MessageId(id)).runs(MessageId(9));
        assert_eq!(after(0).expect("known"), [run(1, 9)]);
        assert_eq!(after(7).expect("known"), [run(8, 9)]);
        assert_eq!(after(9).expect("known"), [run(10, 9)]);
    }

    #[test]
    fn a_message_that_the_conversation_lacks_is_named() {
        let unknown = [
            (ids(&[3, 0]), 0),
            (ids(&[3, 10, 11]), 10),
            (ids(&[-1]), -1),
            (ids(&[i64::MAX]), i64::MAX),
            (Selection::Range(run(0, 3)), 0),
            (Selection::Range(run(3, 10)), 10),
            (Selection::After(MessageId(10)), 10),
            (Selection::After(MessageId(-1)), -1),
        ];
        for (selection, expected) in unknown {
            let refused = selection.runs(MessageId(9));
            assert!(
                matches!(refused, Err(StoreError::UnknownMessage(id)) if id.0 == expected),
                "{selection:?}: {refused:?}"
            );
        }
    }
}
