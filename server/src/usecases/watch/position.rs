//! The position of a watch: which events it has sent. Clients get it as an opaque text and send it
//! back to resume. The text is valid only for its conversation, and is strictly checked.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest,
    message::MessageId,
};
use anneal_store::{ConversationHead, Micros};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::failure::Failure;

/// The version of the format.
const VERSION: u8 = 1;
/// Bytes of the seal, which stands before the payload.
const SEAL_BYTES: usize = 8;
/// Bytes of a payload without dead jobs: the version and five numbers.
const FIXED_BYTES: usize = 1 + 5 * 8;
/// Bytes of one dead job: its kind and the time of its death.
const DEAD_JOB_BYTES: usize = 1 + 8;
/// Most kinds of jobs in a position. It keeps the text within 128 characters.
const MAX_KINDS: usize = 5;

/// The scope in which a position is valid: one conversation of one tenant. It includes the time of
/// creation, because a conversation id may be used again.
pub(crate) struct PositionScope(Vec<u8>);

impl PositionScope {
    pub(crate) fn of(caller: Caller, id: ConversationId, head: &ConversationHead) -> Self {
        let created = head.created.0.to_be_bytes();
        Self(
            [
                &b"watch"[..],
                caller.tenant().0.as_bytes(),
                id.0.as_bytes(),
                &created,
            ]
            .concat(),
        )
    }

    /// The seal of a payload: a digest of the scope and the payload. It shows that a text is
    /// damaged or of another conversation. It has no key, so it does not prevent forgery.
    pub(crate) fn seal(&self, payload: &[u8]) -> [u8; SEAL_BYTES] {
        let digest = digest::of_fields([self.0.as_slice(), payload]);
        digest[..SEAL_BYTES].try_into().expect("a digest is longer")
    }
}

/// The position of a watch: everything up to here has been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last message that was sent.
    pub(super) last: MessageId,
    /// The last message whose token count was sent.
    pub(super) counted: MessageId,
    /// The last change that was sent.
    pub(super) change: i64,
    /// The newest change when the watch began. Summaries and checkpoints up to this one are sent
    /// only for messages after `start_message`. 0: there are no earlier changes to send.
    pub(super) start_change: i64,
    /// The message after which the watch began. [`MessageId::NONE`] (0): it began before the first
    /// message, or `start_change` is 0.
    pub(super) start_message: MessageId,
    /// By kind of job: when the dead job that was sent last was given up.
    pub(super) dead: BTreeMap<i16, Micros>,
}

impl Position {
    /// The position at the head: everything has been sent.
    pub(crate) fn now(head: &ConversationHead) -> Self {
        Self {
            last: head.last,
            counted: head.counted,
            change: head.change,
            start_change: 0,
            start_message: MessageId::NONE,
            dead: head.dead.clone(),
        }
    }

    /// The position after a message: the earlier events of later messages are still to be sent.
    pub(super) fn after(head: &ConversationHead, message: MessageId) -> Result<Self, Failure> {
        if message > head.last {
            return Err(Failure::invalid(
                "after_message_id",
                format!("the newest message is {}", head.last),
            ));
        }
        Ok(Self {
            last: message,
            counted: head.counted.min(message),
            change: 0,
            start_change: head.change,
            start_message: message,
            dead: BTreeMap::new(),
        })
    }

    /// Parses a position of this conversation. Refuses one that lies beyond its head.
    pub(crate) fn parse(
        text: &str,
        scope: &PositionScope,
        head: &ConversationHead,
    ) -> Result<Self, Failure> {
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| invalid_position())?;
        let (seal, payload) = bytes
            .split_at_checked(SEAL_BYTES)
            .ok_or_else(invalid_position)?;
        if scope.seal(payload) != seal {
            return Err(invalid_position());
        }
        let position = Self::decode(payload).ok_or_else(invalid_position)?;
        let is_reached = position.last <= head.last
            && position.counted <= head.counted
            && position.change <= head.change;
        if is_reached {
            Ok(position)
        } else {
            Err(invalid_position())
        }
    }

    /// Decodes a payload. None: it does not have the form of one.
    fn decode(payload: &[u8]) -> Option<Self> {
        let (fixed, dead) = payload.split_at_checked(FIXED_BYTES)?;
        let (version, numbers) = fixed.split_first()?;
        let (dead, rest) = dead.as_chunks::<DEAD_JOB_BYTES>();
        if *version != VERSION || !rest.is_empty() || dead.len() > MAX_KINDS {
            return None;
        }
        let mut numbers = numbers
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| i64::from_be_bytes(*bytes));
        let mut number = || numbers.next().filter(|number| *number >= 0);
        let position = Self {
            last: MessageId(number()?),
            counted: MessageId(number()?),
            change: number()?,
            start_change: number()?,
            start_message: MessageId(number()?),
            dead: dead.iter().map(parse_dead_job).collect(),
        };
        (position.counted <= position.last && position.start_message <= position.last)
            .then_some(position)
    }

    /// The position as text.
    pub(crate) fn text(&self, scope: &PositionScope) -> String {
        let mut payload = vec![VERSION];
        let replaying = self.change < self.start_change;
        let (start_change, start_message) = if replaying {
            (self.start_change, self.start_message)
        } else {
            (0, MessageId::NONE)
        };
        for number in [
            self.last.0,
            self.counted.0,
            self.change,
            start_change,
            start_message.0,
        ] {
            payload.extend(number.to_be_bytes());
        }
        for (kind, died) in self.dead.iter().take(MAX_KINDS) {
            // The low byte: the codes of job kinds are below 256.
            payload.extend(kind.to_be_bytes().last());
            payload.extend(died.0.to_be_bytes());
        }
        URL_SAFE_NO_PAD.encode([scope.seal(&payload).as_slice(), &payload].concat())
    }
}

fn parse_dead_job(bytes: &[u8; DEAD_JOB_BYTES]) -> (i16, Micros) {
    let [kind, died @ ..] = *bytes;
    (i16::from(kind), Micros(i64::from_be_bytes(died)))
}

fn invalid_position() -> Failure {
    Failure::invalid(
        "position",
        "is not a position of a watch of this conversation",
    )
}

#[cfg(test)]
mod tests {
    use anneal_core::{caller::TenantId, job::JobKind, tokens::Tokens};
    use uuid::Uuid;

    use super::*;

    fn head() -> ConversationHead {
        let dead = JobKind::ALL.map(|kind| (kind.code(), Micros(i64::MAX)));
        ConversationHead {
            created: Micros(7),
            last: MessageId(i64::MAX),
            counted: MessageId(i64::MAX),
            token_total: Tokens::ZERO,
            change: i64::MAX,
            dead: dead.into(),
        }
    }

    fn scope(id: u128, head: &ConversationHead) -> PositionScope {
        PositionScope::of(
            Caller::of(TenantId::DEFAULT),
            ConversationId(Uuid::from_u128(id)),
            head,
        )
    }

    #[test]
    fn a_position_is_the_same_after_it_was_encoded_and_its_text_is_short() {
        let head = head();
        let scope = scope(1, &head);
        let replaying = Position {
            change: 3,
            dead: head.dead.clone(),
            ..Position::after(&head, MessageId(9)).expect("the message exists")
        };
        for position in [Position::now(&head), replaying] {
            let text = position.text(&scope);
            assert!(text.len() <= 128, "{} characters", text.len());
            assert_eq!(
                Position::parse(&text, &scope, &head).expect("is a position"),
                position
            );
        }
    }

    #[test]
    fn a_position_is_valid_only_for_its_own_conversation() {
        let head = head();
        let text = Position::now(&head).text(&scope(1, &head));
        assert!(
            Position::parse(&text, &scope(2, &head), &head).is_err(),
            "another conversation"
        );
        let created_later = ConversationHead {
            created: Micros(8),
            ..head.clone()
        };
        assert!(
            Position::parse(&text, &scope(1, &created_later), &created_later).is_err(),
            "a later conversation with the same id"
        );
        let behind = ConversationHead {
            last: MessageId(1),
            ..head.clone()
        };
        assert!(
            Position::parse(&text, &scope(1, &head), &behind).is_err(),
            "the conversation's newest message is before the position"
        );
    }

    #[test]
    fn a_changed_position_is_refused() {
        let head = head();
        let scope = scope(1, &head);
        let text = Position::now(&head).text(&scope);
        let bytes = URL_SAFE_NO_PAD.decode(&text).expect("is base64");
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert!(
                Position::parse(&URL_SAFE_NO_PAD.encode(changed), &scope, &head).is_err(),
                "byte {index}"
            );
            assert!(
                Position::parse(&URL_SAFE_NO_PAD.encode(&bytes[..index]), &scope, &head).is_err(),
                "cut at {index}"
            );
        }
        for broken in ["", "x", "////", &format!("{text}A"), &format!("{text}=")] {
            assert!(Position::parse(broken, &scope, &head).is_err(), "{broken}");
        }
    }
}
