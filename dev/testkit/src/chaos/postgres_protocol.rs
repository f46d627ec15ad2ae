//! The part of PostgreSQL's protocol that the proxies need: where a message ends, which message
//! commits, and the text of a statement.

use std::{collections::HashMap, io};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The codes of SSLRequest and GSSENCRequest, which ask for encryption and which the server answers
/// with one byte.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];

/// A message as bytes: its type (one byte), its length (four), its body.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// Reads the next message. An error means that the connection has ended.
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        let length = from.read_u32().await?;
        // The length counts its own four bytes. `max` keeps the slices below in range if a
        // malformed message says less.
        let mut bytes = vec![0; 1 + length.max(4) as usize];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&length.to_be_bytes());
        from.read_exact(&mut bytes[5..]).await?;
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is Bind, which binds parameters to a statement.
    pub(crate) fn binds(&self) -> bool {
        self.kind() == b'B'
    }

    /// Flush: the server sends the answers so far and, unlike after Sync, does not commit.
    pub(super) fn flush() -> Self {
        Self::of(b'H', b"")
    }

    /// ReadyForQuery without an open transaction.
    pub(super) fn ready_and_idle() -> Self {
        Self::of(b'Z', b"I")
    }

    /// Whether this is CommandComplete.
    pub(super) fn completes(&self) -> bool {
        self.kind() == b'C'
    }

    /// The text of the statement that this message prepares. None if this is not Parse.
    pub(super) fn statement(&self) -> Option<String> {
        self.strings().nth(1).filter(|_| self.kind() == b'P')
    }

    /// This Parse message with another statement. Name and types of parameters stay.
    pub(super) fn with_statement(&self, text: &str) -> Self {
        let mut parts = self.0[5..].splitn(3, |byte| *byte == 0);
        let (name, _, types) = (parts.next(), parts.next(), parts.next());
        let (name, types) = (name.unwrap_or_default(), types.unwrap_or_default());
        Self::of(b'P', &[name, b"\0", text.as_bytes(), b"\0", types].concat())
    }

    fn of(kind: u8, body: &[u8]) -> Self {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        Self(bytes)
    }

    fn kind(&self) -> u8 {
        self.0[0]
    }

    /// The strings in the body, each ended by a zero byte. After the last one the items are
    /// meaningless.
    fn strings(&self) -> impl Iterator<Item = String> {
        self.0[5..]
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// For ReadyForQuery: whether no transaction is open. None for any other message.
    pub(super) fn ready(&self) -> Option<bool> {
        (self.kind() == b'Z').then(|| self.0.get(5) == Some(&b'I'))
    }
}

/// Reads the first message of a connection, which has no type. The flag says whether the message
/// asks for encryption: the server answers with one byte, and another startup message follows.
pub(crate) async fn read_startup_message(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<(Vec<u8>, bool)> {
    let length = from.read_u32().await?;
    let code = from.read_u32().await?;
    // The length counts itself and the code, eight bytes.
    let mut bytes = vec![0; length.max(8) as usize];
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes[4..8].copy_from_slice(&code.to_be_bytes());
    from.read_exact(&mut bytes[8..]).await?;
    Ok((bytes, ENCRYPTION.contains(&code)))
}

/// The effect of a statement on the database; appends rank highest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    #[default]
    None,
    Write,
    Append,
}

/// The statements that a client's session has prepared and bound so far. They decide which later
/// message commits a write.
#[derive(Default)]
pub(super) struct Session {
    /// The effect of each prepared statement, by name.
    effects: HashMap<String, Effect>,
    /// The highest effect among the statements that were bound since the last Sync.
    bound: Effect,
}

impl Session {
    /// Records the client's next message. Returns the effect that the server commits because of it.
    /// `idle`: no transaction is open. The statement `commit` counts as a write, whatever its
    /// transaction has done.
    pub(super) fn observe(&mut self, frame: &Frame, idle: bool) -> Effect {
        let mut strings = frame.strings();
        match frame.kind() {
            b'Q' => match strings.next() {
                Some(text) if text.eq_ignore_ascii_case("commit") => Effect::Write,
                Some(text) if idle => effect(&text),
                _ => Effect::None,
            },
            b'P' => {
                if let (Some(name), Some(text)) = (strings.next(), strings.next()) {
                    self.effects.insert(name, effect(&text));
                }
                Effect::None
            }
            b'B' => {
                let statement = strings.nth(1).unwrap_or_default();
                let effect = self.effects.get(&statement).copied().unwrap_or_default();
                self.bound = self.bound.max(effect);
                Effect::None
            }
            b'S' => {
                let bound = std::mem::take(&mut self.bound);
                if idle { bound } else { Effect::None }
            }
            _ => Effect::None,
        }
    }
}

/// The effect of a statement, recognized by the statement's words, which anneal writes in lower
/// case.
fn effect(text: &str) -> Effect {
    // The blank keeps out tables whose names only begin with `ai_message`.
    if text.contains("insert into ai_message ") {
        Effect::Append
    } else if ["insert into ", "update ", "delete from "]
        .iter()
        .any(|word| text.contains(word))
    {
        Effect::Write
    } else {
        Effect::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::Effect::{Append, None, Write};

    /// The effects that a session commits with each of these messages.
    fn committed(idle: bool, messages: &[(u8, &[u8])]) -> Vec<Effect> {
        let mut session = Session::default();
        messages
            .iter()
            .map(|(kind, body)| session.observe(&Frame::of(*kind, body), idle))
            .collect()
    }

    #[test]
    fn a_write_outside_a_transaction_commits_at_the_sync() {
        let messages: [(u8, &[u8]); 5] = [
            (b'P', b"one\0insert into t values ($1)\0\0\0"),
            (b'B', b"\0one\0"),
            (b'E', b"\0"),
            (b'S', b""),
            // Nothing was bound since.
            (b'S', b""),
        ];
        assert_eq!(committed(true, &messages), [None, None, None, Write, None]);
    }

    #[test]
    fn a_write_within_a_transaction_commits_at_the_commit_statement() {
        let messages: [(u8, &[u8]); 4] = [
            (b'P', b"one\0update t set a = 1\0\0\0"),
            (b'B', b"\0one\0"),
            (b'S', b""),
            (b'Q', b"COMMIT\0"),
        ];
        assert_eq!(committed(false, &messages), [None, None, None, Write]);
    }

    #[test]
    fn a_read_only_statement_commits_nothing() {
        let messages: [(u8, &[u8]); 4] = [
            (b'P', b"one\0select 1\0\0\0"),
            (b'B', b"\0one\0"),
            (b'S', b""),
            (b'Q', b"begin\0"),
        ];
        assert_eq!(committed(true, &messages), [None; 4]);
    }

    #[test]
    fn the_statement_of_an_append_is_recognized() {
        let messages: [(u8, &[u8]); 3] = [
            (
                b'P',
                b"one\0with a as (insert into ai_message (b) select 1) select 2\0\0\0",
            ),
            (b'B', b"\0one\0"),
            (b'S', b""),
        ];
        assert_eq!(committed(true, &messages), [None, None, Append]);
    }

    #[test]
    fn another_statement_keeps_the_name_and_the_types_of_the_parameters() {
        let types = b"\0\x01\0\0\0\x14";
        let parse = Frame::of(b'P', &[b"one\0select $1\0".as_slice(), types].concat());
        assert_eq!(parse.statement().as_deref(), Some("select $1"));
        let other = parse.with_statement("select 1 where $1 > 0");
        let expected = [b"one\0select 1 where $1 > 0\0".as_slice(), types].concat();
        assert_eq!(other.bytes(), Frame::of(b'P', &expected).bytes());
        assert_eq!(Frame::flush().statement(), Option::None);
    }
}
