//! The request ids of all calls that one try of a response makes. They are derived from the request
//! id of its turn, so that whoever reads the response's row can repeat or find what was done.

use anneal_core::message::MessageId;
use uuid::Uuid;

use crate::http::openai::ids::response_id;

/// One of several attempts to begin a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt<'a> {
    /// The request id of the turn.
    pub(super) turn: &'a str,
    /// How often the conversation has gone on before.
    pub(super) index: usize,
}

impl Attempt<'_> {
    /// The request id of the fork in which the response begins.
    pub(super) fn fork(self) -> String {
        format!("{}/fork/{}", self.turn, self.index)
    }

    /// The request id of the append of a part of the input before the turn.
    pub(super) fn input(self, part: usize) -> String {
        format!("{}{}/{part}", input_prefix(self.turn), self.index)
    }
}

/// The request id of the turn of a response. With a key it is another one for each try: a try after
/// a failure must not find what the one before has stored.
pub(super) fn new_turn(id: Uuid, key: Option<&str>) -> String {
    let id = response_id(id);
    match key {
        Some(_) => format!("{id}/{}", Uuid::new_v4().as_simple()),
        None => id,
    }
}

/// The request id of the withdrawal of these messages. It names them: what was withdrawn once is not
/// withdrawn again, and a part that became known later is another request.
pub(super) fn withdrawal(turn: &str, first: MessageId, last: MessageId) -> String {
    format!("{turn}/withdrawal/{first}-{last}")
}

/// The beginning of the request ids of all appends before the turn.
pub(super) fn input_prefix(turn: &str) -> String {
    format!("{turn}/input/")
}

#[cfg(test)]
mod tests {
    use anneal_core::limits::ID_BYTES;

    use super::*;

    #[test]
    fn each_try_with_a_key_has_a_request_id_of_its_own() {
        let id = Uuid::from_u128(1);
        assert_ne!(new_turn(id, Some("k")), new_turn(id, Some("k")));
        assert!(new_turn(id, Some("k")).starts_with(&response_id(id)));
        assert_eq!(new_turn(id, None), response_id(id));
    }

    #[test]
    fn all_request_ids_are_short_enough() {
        let turn = new_turn(Uuid::max(), Some("k"));
        let (attempt, last) = (
            Attempt {
                turn: &turn,
                index: 9,
            },
            MessageId(i64::MAX),
        );
        let longest = withdrawal(&turn, last, last);
        for id in [attempt.fork(), attempt.input(99), longest] {
            assert!(id.len() <= ID_BYTES, "{id}");
        }
        assert!(attempt.input(0).starts_with(&input_prefix(&turn)));
    }
}
