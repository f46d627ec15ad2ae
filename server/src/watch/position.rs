//! Where a watch stands. On the wire: opaque, bound to one conversation, and strictly checked, for it comes back from outside.

use std::collections::BTreeMap;

use anneal_core::{
    caller::{Caller, ConversationId},
    digest,
    message::MessageId,
};
use anneal_store::{Head, Micros};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::status::Failure;

/// What this code writes and reads.
const VERSION: u8 = 1;
/// Bytes of the seal before the payload.
const SEAL: usize = 8;
/// Bytes of a payload without dead jobs: the version and five numbers.
const FIXED: usize = 1 + 5 * 8;
/// Bytes of one dead job: its kind and when it died.
const DEAD: usize = 1 + 8;
/// Kinds of jobs in one position, so that it stays within 128 characters.
const KINDS: usize = 5;

/// What positions are bound to: a conversation, and that very one where another is made under the same id.
pub(crate) struct Scope(Vec<u8>);

impl Scope {
    pub(crate) fn of(caller: Caller, id: ConversationId, head: &Head) -> Self {
        let created = head.created.0.to_be_bytes();
        Self([&b"watch"[..], caller.tenant().0.as_bytes(), id.0.as_bytes(), &created].concat())
    }

    /// What stands before a payload that is bound to it.
    pub(crate) fn seal(&self, payload: &[u8]) -> [u8; SEAL] {
        let digest = digest::of_fields([self.0.as_slice(), payload]);
        digest[..SEAL].try_into().expect("a digest is longer")
    }
}

/// Everything up to here was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last message.
    pub(super) last: MessageId,
    /// Counting, up to this message.
    pub(super) counted: MessageId,
    /// The last change.
    pub(super) change: i64,
    /// Changes up to this one are told only of messages after `beyond`: they lie before the start of the watch.
    pub(super) replayed: i64,
    /// See `replayed`.
    pub(super) beyond: MessageId,
    /// The last death, by kind of job.
    pub(super) dead: BTreeMap<i16, Micros>,
}

impl Position {
    /// Everything that has happened was told.
    pub(crate) fn now(head: &Head) -> Self {
        Self {
            last: head.last,
            counted: head.counted,
            change: head.change,
            replayed: 0,
            beyond: MessageId::NONE,
            dead: head.dead.clone(),
        }
    }

    /// What has happened to messages after this one is still to be told.
    pub(super) fn after(head: &Head, message: MessageId) -> Result<Self, Failure> {
        if message > head.last {
            return Err(Failure::invalid("after_message_id", format!("the newest message is {}", head.last)));
        }
        Ok(Self {
            last: message,
            counted: head.counted.min(message),
            change: 0,
            replayed: head.change,
            beyond: message,
            dead: BTreeMap::new(),
        })
    }

    /// Reads a position of this conversation, which stands here.
    pub(crate) fn parse(text: &str, scope: &Scope, head: &Head) -> Result<Self, Failure> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| broken())?;
        let (seal, payload) = bytes.split_at_checked(SEAL).ok_or_else(broken)?;
        if scope.seal(payload) != seal {
            return Err(broken());
        }
        let position = Self::read(payload).ok_or_else(broken)?;
        let is_reached =
            position.last <= head.last && position.counted <= head.counted && position.change <= head.change;
        if is_reached { Ok(position) } else { Err(broken()) }
    }

    fn read(payload: &[u8]) -> Option<Self> {
        let (fixed, dead) = payload.split_at_checked(FIXED)?;
        let (version, numbers) = fixed.split_first()?;
        let (dead, rest) = dead.as_chunks::<DEAD>();
        if *version != VERSION || !rest.is_empty() || dead.len() > KINDS {
            return None;
        }
        let mut numbers = numbers.as_chunks::<8>().0.iter().map(|bytes| i64::from_be_bytes(*bytes));
        let mut number = || numbers.next().filter(|number| *number >= 0);
        let position = Self {
            last: MessageId(number()?),
            counted: MessageId(number()?),
            change: number()?,
            replayed: number()?,
            beyond: MessageId(number()?),
            dead: dead.iter().map(death).collect(),
        };
        (position.counted <= position.last && position.beyond <= position.last).then_some(position)
    }

    /// The position on the wire.
    pub(crate) fn text(&self, scope: &Scope) -> String {
        let mut payload = vec![VERSION];
        let replaying = self.change < self.replayed;
        let (replayed, beyond) = if replaying { (self.replayed, self.beyond) } else { (0, MessageId::NONE) };
        for number in [self.last.0, self.counted.0, self.change, replayed, beyond.0] {
            payload.extend(number.to_be_bytes());
        }
        for (kind, died) in self.dead.iter().take(KINDS) {
            payload.extend(kind.to_be_bytes().last());
            payload.extend(died.0.to_be_bytes());
        }
        URL_SAFE_NO_PAD.encode([scope.seal(&payload).as_slice(), &payload].concat())
    }
}

fn death(bytes: &[u8; DEAD]) -> (i16, Micros) {
    let [kind, died @ ..] = *bytes;
    (i16::from(kind), Micros(i64::from_be_bytes(died)))
}

fn broken() -> Failure {
    Failure::invalid("position", "is not a position of a watch of this conversation")
}

#[cfg(test)]
mod tests {
    use anneal_core::{caller::TenantId, job::JobKind, tokens::Tokens};
    use uuid::Uuid;

    use super::*;

    fn head() -> Head {
        let dead = JobKind::ALL.map(|kind| (kind.code(), Micros(i64::MAX)));
        Head {
            created: Micros(7),
            last: MessageId(i64::MAX),
            counted: MessageId(i64::MAX),
            token_total: Tokens::ZERO,
            change: i64::MAX,
            dead: dead.into(),
        }
    }

    fn scope(id: u128, head: &Head) -> Scope {
        Scope::of(Caller::of(TenantId::DEFAULT), ConversationId(Uuid::from_u128(id)), head)
    }

    #[test]
    fn a_position_comes_back_as_it_was_and_is_short() {
        let head = head();
        let scope = scope(1, &head);
        let replaying =
            Position { change: 3, dead: head.dead.clone(), ..Position::after(&head, MessageId(9)).expect("there") };
        for position in [Position::now(&head), replaying] {
            let text = position.text(&scope);
            assert!(text.len() <= 128, "{} characters", text.len());
            assert_eq!(Position::parse(&text, &scope, &head).expect("ours"), position);
        }
    }

    #[test]
    fn a_position_is_good_only_for_its_own_conversation() {
        let head = head();
        let text = Position::now(&head).text(&scope(1, &head));
        assert!(Position::parse(&text, &scope(2, &head), &head).is_err(), "another conversation");
        let anew = Head { created: Micros(8), ..head.clone() };
        assert!(Position::parse(&text, &scope(1, &anew), &anew).is_err(), "one made anew under the same id");
        let behind = Head { last: MessageId(1), ..head.clone() };
        assert!(Position::parse(&text, &scope(1, &head), &behind).is_err(), "it has not come so far");
    }

    #[test]
    fn no_changed_position_is_read() {
        let head = head();
        let scope = scope(1, &head);
        let text = Position::now(&head).text(&scope);
        let bytes = URL_SAFE_NO_PAD.decode(&text).expect("ours");
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert!(Position::parse(&URL_SAFE_NO_PAD.encode(changed), &scope, &head).is_err(), "byte {place}");
            assert!(
                Position::parse(&URL_SAFE_NO_PAD.encode(&bytes[..place]), &scope, &head).is_err(),
                "cut at {place}"
            );
        }
        for broken in ["", "x", "////", &format!("{text}A"), &format!("{text}=")] {
            assert!(Position::parse(broken, &scope, &head).is_err(), "{broken}");
        }
    }
}
