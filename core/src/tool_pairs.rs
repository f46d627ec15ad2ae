//! Which tool result answers which tool call. Messages that go together because of it are withdrawn
//! and restored together.

use std::collections::{BTreeSet, HashMap};

use crate::message::{MessageId, ToolMark};

/// The selected messages, and all messages that are connected with them by calls and results: the
/// calls of selected results, the results of selected calls, the other results of these calls'
/// messages, and so on.
///
/// `marks`: the calls and results of the messages in question, in the order of the ids. Messages
/// without any may be missing. Results without a call and calls without a result connect nothing.
pub fn closure(
    marks: &[(MessageId, Vec<ToolMark>)],
    selected: &BTreeSet<MessageId>,
) -> BTreeSet<MessageId> {
    let mut partners: HashMap<MessageId, Vec<MessageId>> = HashMap::new();
    for (calling, answering) in pairs(marks) {
        partners.entry(calling).or_default().push(answering);
        partners.entry(answering).or_default().push(calling);
    }
    let mut connected = selected.clone();
    let mut unvisited: Vec<MessageId> = selected.iter().copied().collect();
    while let Some(message) = unvisited.pop() {
        for partner in partners.remove(&message).into_iter().flatten() {
            if connected.insert(partner) {
                unvisited.push(partner);
            }
        }
    }
    connected
}

/// Whether each result of the last of these messages answers a call of an earlier one. `marks`: as
/// in [`closure`].
pub fn last_has_its_calls(marks: &[(MessageId, Vec<ToolMark>)]) -> bool {
    let Some((last, outline)) = marks.last() else {
        return true;
    };
    let is_result = |mark: &&ToolMark| matches!(mark, ToolMark::Result { .. });
    let results = outline.iter().filter(is_result).count();
    let answering = pairs(marks).into_iter().map(|(_, answering)| answering);
    answering.filter(|message| message == last).count() == results
}

/// Whether a call of these messages has no result among them. `marks`: as in [`closure`].
pub fn has_open_call(marks: &[(MessageId, Vec<ToolMark>)]) -> bool {
    let outlines = marks.iter().flat_map(|(_, outline)| outline);
    let calls = outlines.filter(|mark| matches!(mark, ToolMark::Call { .. }));
    pairs(marks).len() < calls.count()
}

/// For each result that answers a call: the message with the call, and the message with the result.
fn pairs(marks: &[(MessageId, Vec<ToolMark>)]) -> Vec<(MessageId, MessageId)> {
    let mut open_calls = OpenCalls::default();
    let mut pairs = Vec::new();
    for (index, (message, outline)) in marks.iter().enumerate() {
        for mark in outline {
            match mark {
                ToolMark::Call { id, .. } => open_calls.open(id, index),
                ToolMark::Result { id, .. } => {
                    if let Some(call) = open_calls.answer(id) {
                        pairs.push((marks[call.message].0, *message));
                    }
                }
            }
        }
    }
    pairs
}

/// The calls that have no result yet, while the messages of a conversation are passed in order.
#[derive(Default)]
pub(crate) struct OpenCalls<'a> {
    /// Number of calls that were opened.
    count: usize,
    /// By the call's id, in order.
    by_id: HashMap<&'a str, Vec<OpenCall>>,
}

/// A call without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenCall {
    /// Index of its message.
    pub(crate) message: usize,
    /// How many calls came before it.
    pub(crate) number: usize,
}

impl<'a> OpenCalls<'a> {
    /// Adds a call of the message with this index.
    pub(crate) fn open(&mut self, id: &'a str, message: usize) {
        let number = self.count;
        self.count += 1;
        self.by_id
            .entry(id)
            .or_default()
            .push(OpenCall { message, number });
    }

    /// Removes and returns the call that a result with this id answers: if several calls with the
    /// id have no result yet, the first of them in the newest message.
    pub(crate) fn answer(&mut self, id: &str) -> Option<OpenCall> {
        let calls = self.by_id.get_mut(id)?;
        let newest = calls.last()?.message;
        let first = calls
            .iter()
            .rposition(|call| call.message != newest)
            .map_or(0, |older| older + 1);
        Some(calls.remove(first))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(id: &str) -> ToolMark {
        ToolMark::Call {
            id: id.into(),
            name: "look".into(),
        }
    }

    fn result(id: &str) -> ToolMark {
        ToolMark::Result {
            id: id.into(),
            is_error: false,
        }
    }

    /// Messages with these outlines, numbered from 1.
    fn numbered(outlines: Vec<Vec<ToolMark>>) -> Vec<(MessageId, Vec<ToolMark>)> {
        (1..).map(MessageId).zip(outlines).collect()
    }

    fn closure_of(marks: &[(MessageId, Vec<ToolMark>)], selected: &[i64]) -> Vec<i64> {
        let selected = selected.iter().copied().map(MessageId).collect();
        closure(marks, &selected).iter().map(|id| id.0).collect()
    }

    #[test]
    fn a_call_goes_with_its_results_and_a_result_with_its_call() {
        let marks = numbered(vec![
            vec![],
            vec![call("a"), call("b")],
            vec![result("a")],
            vec![],
            vec![result("b")],
            vec![call("c")],
            vec![result("c")],
        ]);
        assert_eq!(closure_of(&marks, &[2]), [2, 3, 5]);
        assert_eq!(
            closure_of(&marks, &[5]),
            [2, 3, 5],
            "the other result of the same message goes too"
        );
        assert_eq!(closure_of(&marks, &[1, 4]), [1, 4]);
        assert_eq!(closure_of(&marks, &[1, 7]), [1, 6, 7]);
    }

    #[test]
    fn the_results_of_one_message_connect_all_messages_that_they_answer() {
        let marks = numbered(vec![
            vec![call("a")],
            vec![call("b")],
            vec![result("a"), result("b")],
            vec![call("c")],
        ]);
        assert_eq!(closure_of(&marks, &[1]), [1, 2, 3]);
    }

    #[test]
    fn a_result_answers_the_first_open_call_of_the_newest_message_with_its_id() {
        let marks = numbered(vec![
            vec![call("a")],
            vec![call("a")],
            vec![result("a")],
            vec![result("a")],
            vec![result("a")],
        ]);
        assert_eq!(closure_of(&marks, &[2]), [2, 3]);
        assert_eq!(closure_of(&marks, &[1]), [1, 4]);
        assert_eq!(
            closure_of(&marks, &[5]),
            [5],
            "the third result answers no call"
        );
    }

    #[test]
    fn unanswered_calls_foreign_results_and_unknown_messages_connect_nothing() {
        let marks = numbered(vec![vec![result("a")], vec![call("a")], vec![result("b")]]);
        assert_eq!(closure_of(&marks, &[1]), [1]);
        assert_eq!(closure_of(&marks, &[2]), [2]);
        assert_eq!(closure_of(&marks, &[3, 99]), [3, 99]);
    }

    #[test]
    fn a_call_is_open_until_each_call_of_its_id_has_a_result() {
        let has_open_call = |outlines| has_open_call(&numbered(outlines));
        let calls = || vec![call("a"), call("b")];
        assert!(!has_open_call(vec![]));
        assert!(!has_open_call(vec![vec![result("a")]]));
        assert!(has_open_call(vec![calls(), vec![result("b")]]));
        assert!(!has_open_call(vec![
            calls(),
            vec![result("b")],
            vec![result("a")]
        ]));
        assert!(has_open_call(vec![
            vec![call("a")],
            vec![result("a")],
            vec![call("a")]
        ]));
    }

    #[test]
    fn the_last_message_has_its_calls_if_each_of_its_results_answers_one() {
        let has_its_calls = |outlines| last_has_its_calls(&numbered(outlines));
        let calls = || vec![call("a"), call("b")];
        assert!(has_its_calls(vec![]));
        assert!(has_its_calls(vec![calls()]));
        assert!(has_its_calls(vec![
            calls(),
            vec![result("b")],
            vec![result("a")]
        ]));
        assert!(has_its_calls(vec![calls(), vec![result("a"), result("b")]]));
        assert!(!has_its_calls(vec![vec![result("a")]]));
        assert!(!has_its_calls(vec![
            calls(),
            vec![result("a"), result("c")]
        ]));
        assert!(
            !has_its_calls(vec![calls(), vec![result("a")], vec![result("a")]]),
            "the call has its result already"
        );
    }

    #[test]
    fn a_long_chain_is_followed_to_its_end() {
        let outline = |n: usize| vec![result(&format!("c{n}")), call(&format!("c{}", n + 1))];
        let marks = numbered((0..10_000).map(outline).collect());
        assert_eq!(closure_of(&marks, &[5_000]).len(), 10_000);
    }

    fn outlines() -> impl Strategy<Value = Vec<(MessageId, Vec<ToolMark>)>> {
        let mark = (any::<bool>(), 0..4_u8).prop_map(|(is_call, id)| {
            let id = format!("c{id}");
            if is_call { call(&id) } else { result(&id) }
        });
        prop::collection::vec(prop::collection::vec(mark, 0..3), 0..30).prop_map(numbered)
    }

    proptest! {
        #[test]
        fn the_closure_is_closed_and_the_other_messages_stay_paired_as_they_were(
            marks in outlines(),
            selected in prop::collection::btree_set((1..35_i64).prop_map(MessageId), 0..5),
        ) {
            let closed = closure(&marks, &selected);
            prop_assert!(closed.is_superset(&selected));
            prop_assert_eq!(&closure(&marks, &closed), &closed);
            for id in &selected {
                prop_assert!(closure(&marks, &BTreeSet::from([*id])).is_subset(&closed));
            }
            let all = pairs(&marks);
            for (calling, answering) in &all {
                prop_assert_eq!(closed.contains(calling), closed.contains(answering));
            }
            let others: Vec<_> = marks.iter().filter(|(id, _)| !closed.contains(id)).cloned().collect();
            let kept: Vec<_> = all.into_iter().filter(|(calling, _)| !closed.contains(calling)).collect();
            prop_assert_eq!(pairs(&others), kept);
        }
    }
}
