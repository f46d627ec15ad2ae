//! A resume point says how much of a turn a reader has received. It is encoded as the id of an
//! event. This file only encodes and decodes ids: `http/chat.rs` takes the id that a client sends
//! and finds its turn, `reader.rs` continues there, and `prefix_match.rs` decides how much is
//! skipped.
//!
//! The id `0i989na4iik1traY413` holds the session (`0i989na4iik`, always 11 characters), the first
//! message of the prompt (1), and 13 bytes of text (`t`) with the check `raY4`. Of a turn that
//! answers a question anew it holds the number of that change (`g7`). Tags are `a` (the number of
//! the attempt), `t` (text), `r` (reasoning), `c` (tool calls) and `e` (the end), in this order.
//! Zeros are left out. With the amounts, any server finds the rest in a running turn or in a
//! stored answer. The checks, of four characters each, show whether that is the same answer. The
//! request id is stored with the message, or with the change.

use anneal_core::{caller::ConversationId, message::MessageId};
use anneal_store::{ShortConversationId, TurnKey};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Most of one kind (bytes of text, bytes of reasoning, number of tool calls) that an event id may
/// say was delivered. 2^40 is far more than any answer has, so an id with more is forged. It is
/// also far from overflow when more is added.
const MAX_DELIVERED: u64 = 1 << 40;
/// Characters of a session: 8 bytes in base64.
const SESSION_CHARACTERS: usize = 11;
/// Characters of a check: 24 bits in base64.
const CHECK_CHARACTERS: usize = 4;
/// The bits of a check.
const CHECK_MASK: u64 = 0xff_ffff;

/// The delivered prefix of one kind of content: its amount and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct HashedPrefix {
    amount: u64,
    /// The FNV-1a hash of the prefix. For a prefix from an event id only the check, which is all
    /// that the id holds: no bytes can be added to it.
    hash: u64,
}

impl Default for HashedPrefix {
    /// Nothing delivered: the hash is the offset basis of FNV-1a.
    fn default() -> Self {
        Self {
            amount: 0,
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }
}

impl HashedPrefix {
    /// Bytes of text or of reasoning, or number of tool calls.
    pub(super) const fn amount(self) -> u64 {
        self.amount
    }

    /// The hash, folded to the 24 bits that event ids hold. The check of a check is itself.
    const fn check(self) -> u64 {
        (self.hash ^ (self.hash >> 24) ^ (self.hash >> 48)) & CHECK_MASK
    }

    /// Whether both prefixes have the same amount and check. One of them may come from an event id.
    pub(super) const fn matches(self, other: Self) -> bool {
        self.amount == other.amount && (self.amount == 0 || self.check() == other.check())
    }

    /// Adds bytes. The hash (FNV-1a) does not depend on how they are split over calls.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.amount += bytes.len() as u64;
        self.hash = fnv1a(self.hash, bytes);
    }

    /// Adds a tool call with these fields. The byte 0xff, which UTF-8 does not use, separates them.
    pub(super) fn push_call(&mut self, fields: [&str; 3]) {
        self.amount += 1;
        for field in fields {
            self.hash = fnv1a(fnv1a(self.hash, field.as_bytes()), &[0xff]);
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::http) struct DeliveredPrefix {
    /// Text. The amount is in bytes.
    pub(super) text: HashedPrefix,
    /// Readable reasoning. The amount is in bytes.
    pub(super) reasoning: HashedPrefix,
    /// Tool calls. The amount is their number.
    pub(super) calls: HashedPrefix,
}

/// The position of a reader, after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct ResumePoint {
    /// The session.
    pub(in crate::http) session: ShortConversationId,
    /// The turn in the session.
    pub(in crate::http) turn: TurnKey,
    /// Number of the attempt.
    pub(super) attempt: i32,
    pub(super) delivered: DeliveredPrefix,
    /// Whether the reader has received the last event.
    pub(in crate::http) is_end: bool,
}

impl ResumePoint {
    /// The position after the last event of a turn.
    pub(super) fn at_end(session: ConversationId, turn: TurnKey) -> Self {
        Self {
            session: session.into(),
            turn,
            attempt: 0,
            delivered: DeliveredPrefix::default(),
            is_end: true,
        }
    }

    /// Encodes the position as the id of an event.
    pub(in crate::http) fn event_id(&self) -> String {
        let mut id = URL_SAFE_NO_PAD.encode(self.session.0);
        let number = match self.turn {
            TurnKey::Message(message) => message.0,
            TurnKey::Anew(change) => {
                id.push('g');
                change
            }
        };
        id.push_str(&number.to_string());
        if self.attempt > 0 {
            id.push('a');
            id.push_str(&self.attempt.to_string());
        }
        let DeliveredPrefix {
            text,
            reasoning,
            calls,
        } = self.delivered;
        for (tag, prefix) in [('t', text), ('r', reasoning), ('c', calls)] {
            if prefix.amount > 0 {
                let [.., high, middle, low] = prefix.check().to_be_bytes();
                id.push(tag);
                URL_SAFE_NO_PAD.encode_string([high, middle, low], &mut id);
                id.push_str(&prefix.amount.to_string());
            }
        }
        if self.is_end {
            id.push('e');
        }
        id
    }

    /// Decodes the id of an event. None: no event of a turn can have this id.
    pub(in crate::http) fn parse(id: &[u8]) -> Option<Self> {
        let id = std::str::from_utf8(id).ok()?;
        let (session, mut rest) = id.split_at_checked(SESSION_CHARACTERS)?;
        let session: [u8; 8] = URL_SAFE_NO_PAD.decode(session).ok()?.try_into().ok()?;
        let is_anew = take_tag(&mut rest, 'g');
        let number = i64::try_from(take_number(&mut rest)?).ok()?;
        let attempt = if take_tag(&mut rest, 'a') {
            i32::try_from(take_number(&mut rest)?).ok()?
        } else {
            0
        };
        let delivered = DeliveredPrefix {
            text: take_prefix(&mut rest, 't')?,
            reasoning: take_prefix(&mut rest, 'r')?,
            calls: take_prefix(&mut rest, 'c')?,
        };
        let is_end = take_tag(&mut rest, 'e');
        rest.is_empty().then_some(Self {
            session: ShortConversationId(session),
            turn: if is_anew {
                TurnKey::Anew(number)
            } else {
                TurnKey::Message(MessageId(number))
            },
            attempt,
            delivered,
            is_end,
        })
    }
}

/// Takes a positive decimal number without leading zeros from the beginning of the text.
fn take_number(rest: &mut &str) -> Option<u64> {
    let end = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    if digits.starts_with('0') {
        return None;
    }
    digits.parse().ok()
}

/// Takes a tag from the beginning of the text, if it is there.
fn take_tag(rest: &mut &str, tag: char) -> bool {
    let Some(after) = rest.strip_prefix(tag) else {
        return false;
    };
    *rest = after;
    true
}

/// Takes the delivered prefix with this tag from the beginning of the text. Without the tag nothing
/// was delivered. None: it is malformed.
fn take_prefix(rest: &mut &str, tag: char) -> Option<HashedPrefix> {
    if !take_tag(rest, tag) {
        return Some(HashedPrefix::default());
    }
    let (check, after) = rest.split_at_checked(CHECK_CHARACTERS)?;
    let check: [u8; 3] = URL_SAFE_NO_PAD.decode(check).ok()?.try_into().ok()?;
    *rest = after;
    let amount = take_number(rest)?;
    (amount <= MAX_DELIVERED).then_some(HashedPrefix {
        amount,
        hash: check
            .iter()
            .fold(0, |hash, byte| (hash << 8) | u64::from(*byte)),
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const SESSION: ConversationId =
        ConversationId(Uuid::from_u128(0xd22f_7cf6_76b8_4863_8219_d37f_d889_8a29));

    fn prefix_of(text: &str) -> HashedPrefix {
        let mut prefix = HashedPrefix::default();
        prefix.push_bytes(text.as_bytes());
        prefix
    }

    fn point(text: &str, reasoning: &str) -> ResumePoint {
        ResumePoint {
            session: SESSION.into(),
            turn: TurnKey::Message(MessageId(1)),
            attempt: 0,
            delivered: DeliveredPrefix {
                text: prefix_of(text),
                reasoning: prefix_of(reasoning),
                calls: HashedPrefix::default(),
            },
            is_end: false,
        }
    }

    fn parse(id: &str) -> Option<ResumePoint> {
        ResumePoint::parse(id.as_bytes())
    }

    #[test]
    fn the_hash_does_not_depend_on_how_text_is_split_but_on_the_fields_of_a_call() {
        let (whole, mut pieces) = (prefix_of("one two"), HashedPrefix::default());
        for piece in ["on", "", "e two"] {
            pieces.push_bytes(piece.as_bytes());
        }
        assert_eq!(whole, pieces);
        let (mut one, mut other) = (HashedPrefix::default(), HashedPrefix::default());
        one.push_call(["a", "bc", ""]);
        other.push_call(["ab", "c", ""]);
        assert_ne!(one, other);
        assert!(!one.matches(other));
    }

    #[test]
    fn an_id_has_20_bytes_after_some_hundred_bytes_of_text_and_few_more_with_reasoning() {
        let text = "word ".repeat(77);
        assert_eq!(point(&text, "").event_id().len(), 20, "385 bytes of text");
        assert_eq!(point("", "").event_id(), "0i989na4iik1");
        let with_reasoning = point(&text, &text).event_id();
        assert_eq!(with_reasoning.len(), 28, "{with_reasoning}");
        let anew = ResumePoint::at_end(SESSION, TurnKey::Anew(7));
        assert_eq!(anew.event_id(), "0i989na4iikg7e");
        assert_eq!(parse(&anew.event_id()), Some(anew));
        let end = ResumePoint::at_end(SESSION, TurnKey::Message(MessageId(1)));
        assert_eq!(end.event_id(), "0i989na4iik1e");
        assert_eq!(parse(&end.event_id()), Some(end));
    }

    #[test]
    fn a_parsed_id_matches_what_was_delivered_and_nothing_else() {
        let mut sent = point("one two", "hm");
        sent.delivered.calls.push_call(["1", "look", "{}"]);
        sent.attempt = 2;
        let parsed = parse(&sent.event_id()).expect("the server has issued it");
        assert_eq!(parsed.event_id(), sent.event_id());
        assert_eq!(
            (parsed.attempt, parsed.turn),
            (2, TurnKey::Message(MessageId(1)))
        );
        let DeliveredPrefix {
            text,
            reasoning,
            calls,
        } = parsed.delivered;
        assert!(text.matches(prefix_of("one two")) && reasoning.matches(prefix_of("hm")));
        assert!(calls.matches(sent.delivered.calls));
        for other in ["one twa", "one tw", "one two ", ""] {
            assert!(!text.matches(prefix_of(other)), "{other}");
        }
    }

    #[test]
    fn forged_ids_are_refused() {
        let session = "0i989na4iik";
        for valid in [
            "1",
            "1a2",
            "g1",
            "g1a2",
            "1tAAAA1099511627776",
            "1rAAAA3cAAAA1",
            "1e",
        ] {
            let id = format!("{session}{valid}");
            let parsed = parse(&id).unwrap_or_else(|| panic!("{id} is valid"));
            assert_eq!(parsed.event_id(), id);
        }
        for forged in [
            "",
            "0",
            "01",
            "-1",
            "+1",
            "1 ",
            "9223372036854775808",
            "1a",
            "1a0",
            "1a-1",
            "1a2147483648",
            "1tAAAA",
            "1tAAA5",
            "1tAAAA0",
            "1tAAAA05",
            "1tAAAA1099511627777",
            "1tAAAA18446744073709551616",
            "1rAAAA1tAAAA1",
            "1tAAAA1tAAAA1",
            "1tÄÄ1",
            "1ee",
            "1x",
            "g",
            "g0",
            "gg1",
            "1g1",
        ] {
            let id = format!("{session}{forged}");
            assert_eq!(parse(&id), None, "{id}");
        }
        // The last is an id of the format before this one: JSON in base64.
        for forged in [
            "",
            "1",
            "0i989na4ii",
            "0i989na4iil1",
            "WyJzIiwiciIsMSwyLDAsZmFsc2Vd",
        ] {
            assert_eq!(parse(forged), None, "{forged}");
        }
        assert_eq!(ResumePoint::parse(b"\xff\xfe"), None);
    }
}
