//! A resume point says how much of a turn a reader has received. It is encoded as the id of an
//! event. This file only encodes and decodes ids: `http/chat.rs` takes the id that a client sends,
//! `reader.rs` continues there, and `prefix_match.rs` decides how much is skipped.

use anneal_core::limits::ID_BYTES;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// Most of one kind (bytes of text, bytes of reasoning, number of tool calls) that an event id may
/// say was delivered. 2^40 is far more than any answer has, so an id with more is forged. It is
/// also far from overflow when more is added.
const MAX_DELIVERED: u64 = 1 << 40;

/// The delivered prefix of one kind of content: its amount and its hash. Event ids hold both as a
/// JSON list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct HashedPrefix(u64, u64);

impl Default for HashedPrefix {
    /// Nothing delivered: the hash is the offset basis of FNV-1a.
    fn default() -> Self {
        Self(0, 0xcbf2_9ce4_8422_2325)
    }
}

impl HashedPrefix {
    /// Bytes of text or of reasoning, or number of tool calls.
    pub(super) const fn amount(self) -> u64 {
        self.0
    }

    /// Adds bytes. The hash (FNV-1a) does not depend on how they are split over calls.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
        self.1 = fnv1a(self.1, bytes);
    }

    /// Adds a tool call with these fields. The byte 0xff, which UTF-8 does not use, separates them.
    pub(super) fn push_call(&mut self, fields: [&str; 3]) {
        self.0 += 1;
        for field in fields {
            self.1 = fnv1a(fnv1a(self.1, field.as_bytes()), &[0xff]);
        }
    }
}

/// Continues a 64-bit FNV-1a hash with these bytes.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The prefix of an answer that was delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct DeliveredPrefix {
    /// Text. The amount is in bytes.
    pub(super) text: HashedPrefix,
    /// Readable reasoning. The amount is in bytes.
    pub(super) reasoning: HashedPrefix,
    /// Tool calls. The amount is their number.
    pub(super) calls: HashedPrefix,
}

/// The position of a reader, after an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http) struct ResumePoint {
    /// Id of the session.
    pub(in crate::http) session: String,
    /// Id of the request.
    pub(in crate::http) request: String,
    /// Id of the user's message.
    pub(in crate::http) message: i64,
    /// The log that the reader followed.
    pub(super) log_id: u64,
    /// Number of the attempt in that log.
    pub(super) attempt: i32,
    pub(super) delivered: DeliveredPrefix,
    /// Whether the reader has received the last event.
    pub(in crate::http) is_end: bool,
}

impl ResumePoint {
    /// Encodes the position as the id of an event.
    pub(in crate::http) fn event_id(&self) -> String {
        let fields = (
            &self.session,
            &self.request,
            self.message,
            self.log_id,
            self.attempt,
            self.delivered,
            self.is_end,
        );
        URL_SAFE_NO_PAD
            .encode(serde_json::to_vec(&fields).expect("numbers and strings can be written"))
    }

    /// Whether an event can have this position. A client may send an id that it made up.
    fn is_possible(&self) -> bool {
        let DeliveredPrefix {
            text,
            reasoning,
            calls,
        } = self.delivered;
        let has_possible_counts = [text, reasoning, calls]
            .iter()
            .all(|prefix| prefix.amount() <= MAX_DELIVERED);
        let has_request_id = (1..=ID_BYTES).contains(&self.request.len());
        has_request_id && self.message > 0 && self.attempt >= 0 && has_possible_counts
    }

    /// Decodes the id of an event. None: no event of a turn can have this id.
    pub(in crate::http) fn parse(id: &[u8]) -> Option<Self> {
        let json = URL_SAFE_NO_PAD.decode(id).ok()?;
        let (session, request, message, log_id, attempt, delivered, is_end) =
            serde_json::from_slice(&json).ok()?;
        let resume_point = Self {
            session,
            request,
            message,
            log_id,
            attempt,
            delivered,
            is_end,
        };
        resume_point.is_possible().then_some(resume_point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_does_not_depend_on_how_text_is_split_but_on_the_fields_of_a_call() {
        let (mut whole, mut pieces) = (HashedPrefix::default(), HashedPrefix::default());
        whole.push_bytes("one two".as_bytes());
        for piece in ["on", "", "e two"] {
            pieces.push_bytes(piece.as_bytes());
        }
        assert_eq!(whole, pieces);
        let (mut one, mut other) = (HashedPrefix::default(), HashedPrefix::default());
        one.push_call(["a", "bc", ""]);
        other.push_call(["ab", "c", ""]);
        assert_ne!(one, other);
    }

    #[test]
    fn event_ids_round_trip_and_forged_ones_are_refused() {
        let resume_point = ResumePoint {
            session: "s".into(),
            request: "r".into(),
            message: 1,
            log_id: u64::MAX,
            attempt: 2,
            delivered: DeliveredPrefix::default(),
            is_end: false,
        };
        assert_eq!(
            ResumePoint::parse(resume_point.event_id().as_bytes()),
            Some(resume_point.clone())
        );
        // "W10" is `[]` in base64, and "bnVsbA" is `null`.
        for forged in ["", "1", "W10", "bnVsbA", &resume_point.event_id()[1..]] {
            assert_eq!(ResumePoint::parse(forged.as_bytes()), None, "{forged}");
        }
        let endless = DeliveredPrefix {
            reasoning: HashedPrefix(u64::MAX, 0),
            ..DeliveredPrefix::default()
        };
        for impossible in [
            ResumePoint {
                attempt: -1,
                ..resume_point.clone()
            },
            ResumePoint {
                message: 0,
                ..resume_point.clone()
            },
            ResumePoint {
                request: "r".repeat(ID_BYTES + 1),
                ..resume_point.clone()
            },
            ResumePoint {
                delivered: endless,
                ..resume_point.clone()
            },
        ] {
            assert_eq!(
                ResumePoint::parse(impossible.event_id().as_bytes()),
                None,
                "{impossible:?}"
            );
        }
    }
}
