//! How much of a turn a reader has: what the id of an event says.

use anneal_core::limits::ID_BYTES;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// Most that can have been told of one kind in one attempt, in bytes: an answer has 64 MiB at most, thoughts may have more.
const TOLD_MOST: u64 = 1 << 40;

/// What was delivered of one kind: how much, and a hash of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Delivered(pub(super) u64, u64);

impl Default for Delivered {
    /// Nothing.
    fn default() -> Self {
        Self(0, 0xcbf2_9ce4_8422_2325)
    }
}

impl Delivered {
    /// With these bytes more (FNV-1a): told in other pieces, the same comes of it.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
        self.1 = hashed(self.1, bytes);
    }

    /// With one more call of these fields.
    pub(super) fn call(&mut self, fields: [&str; 3]) {
        self.0 += 1;
        for field in fields {
            self.1 = hashed(hashed(self.1, field.as_bytes()), &[0xff]);
        }
    }
}

fn hashed(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, byte| (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What was delivered of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Trail {
    /// Bytes of text.
    pub(super) text: Delivered,
    /// Bytes of readable thoughts.
    pub(super) reasoning: Delivered,
    /// Calls of tools.
    pub(super) calls: Delivered,
}

/// Where a reader stands: after an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct Place {
    pub(in crate::http) session: String,
    pub(in crate::http) request: String,
    /// The user's message.
    pub(in crate::http) message: i64,
    /// Which telling of the turn.
    pub(super) run: u64,
    /// Which attempt of it.
    pub(super) attempt: i32,
    pub(super) trail: Trail,
    /// After the last event: nothing is missing.
    pub(in crate::http) is_end: bool,
}

impl Place {
    /// As an event's id.
    pub(in crate::http) fn id(&self) -> String {
        let fields = (&self.session, &self.request, self.message, self.run, self.attempt, self.trail, self.is_end);
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&fields).expect("numbers and strings can be written"))
    }

    /// Whether an event of some turn can have it: places come from outside.
    fn is_possible(&self) -> bool {
        let Trail { text, reasoning, calls } = self.trail;
        let is_told = [text, reasoning, calls].iter().all(|delivered| delivered.0 <= TOLD_MOST);
        let is_request = (1..=ID_BYTES).contains(&self.request.len());
        is_request && self.message > 0 && self.attempt >= 0 && is_told
    }

    /// From an event's id; None: this server has given no such id.
    pub(in crate::http) fn parse(id: &[u8]) -> Option<Self> {
        let text = URL_SAFE_NO_PAD.decode(id).ok()?;
        let (session, request, message, run, attempt, trail, is_end) = serde_json::from_slice(&text).ok()?;
        let place = Self { session, request, message, run, attempt, trail, is_end };
        place.is_possible().then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_in_other_pieces_leaves_the_same_trail() {
        let (mut whole, mut pieces) = (Delivered::default(), Delivered::default());
        whole.bytes("one two".as_bytes());
        for piece in ["on", "", "e two"] {
            pieces.bytes(piece.as_bytes());
        }
        assert_eq!(whole, pieces);
        let (mut one, mut other) = (Delivered::default(), Delivered::default());
        one.call(["a", "bc", ""]);
        other.call(["ab", "c", ""]);
        assert_ne!(one, other);
    }

    #[test]
    fn ids_are_read_back_and_others_refused() {
        let place = Place {
            session: "s".into(),
            request: "r".into(),
            message: 1,
            run: u64::MAX,
            attempt: 2,
            trail: Trail::default(),
            is_end: false,
        };
        assert_eq!(Place::parse(place.id().as_bytes()), Some(place.clone()));
        for forged in ["", "1", "W10", "bnVsbA", &place.id()[1..]] {
            assert_eq!(Place::parse(forged.as_bytes()), None, "{forged}");
        }
        let endless = Trail { reasoning: Delivered(u64::MAX, 0), ..Trail::default() };
        for impossible in [
            Place { attempt: -1, ..place.clone() },
            Place { message: 0, ..place.clone() },
            Place { request: "r".repeat(ID_BYTES + 1), ..place.clone() },
            Place { trail: endless, ..place.clone() },
        ] {
            assert_eq!(Place::parse(impossible.id().as_bytes()), None, "{impossible:?}");
        }
    }
}
