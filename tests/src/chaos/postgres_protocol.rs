//! The part of PostgreSQL's protocol that the proxy needs: where a message ends, and which message
//! commits.

use std::{collections::HashMap, io};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Request codes of encryption negotiation, which the server answers with one byte.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];

/// A message: its type, its length, its body.
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// Reads the next message. An error means that the connection has ended.
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        let length = from.read_u32().await?;
        let mut bytes = vec![0; 1 + length.max(4) as usize];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&length.to_be_bytes());
        from.read_exact(&mut bytes[5..]).await?;
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it binds parameters to a statement.
    pub(crate) fn binds(&self) -> bool {
        self.kind() == b'B'
    }

    fn kind(&self) -> u8 {
        self.0[0]
    }

    /// The strings at the start of its body.
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

/// Reads the first message of a connection, which has no type. The flag says that the server
/// answers with one byte and another startup message follows.
pub(crate) async fn read_startup_message(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<(Vec<u8>, bool)> {
    let length = from.read_u32().await?;
    let code = from.read_u32().await?;
    let mut bytes = vec![0; length.max(8) as usize];
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes[4..8].copy_from_slice(&code.to_be_bytes());
    from.read_exact(&mut bytes[8..]).await?;
    Ok((bytes, ENCRYPTION.contains(&code)))
}

/// What a client has sent in a session, as far as it tells which message commits a write.
#[derive(Default)]
pub(super) struct Session {
    /// Whether each prepared statement writes, by name.
    writing: HashMap<String, bool>,
    /// Whether a writing statement was bound since the last Sync.
    bound: bool,
}

impl Session {
    /// Whether this message makes the server commit a write. `idle`: no transaction is open.
    pub(super) fn commits(&mut self, frame: &Frame, idle: bool) -> bool {
        let mut strings = frame.strings();
        match frame.kind() {
            b'Q' => strings
                .next()
                .is_some_and(|text| text.eq_ignore_ascii_case("commit") || (idle && writes(&text))),
            b'P' => {
                if let (Some(name), Some(text)) = (strings.next(), strings.next()) {
                    self.writing.insert(name, writes(&text));
                }
                false
            }
            b'B' => {
                let statement = strings.nth(1).unwrap_or_default();
                self.bound |= self.writing.get(&statement).copied().unwrap_or_default();
                false
            }
            b'S' => std::mem::take(&mut self.bound) && idle,
            _ => false,
        }
    }
}

/// The project's statements are written in lower case.
fn writes(text: &str) -> bool {
    ["insert into ", "update ", "delete from "]
        .iter()
        .any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Frame {
        let mut bytes = vec![kind];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        Frame(bytes)
    }

    #[test]
    fn a_statement_that_writes_by_itself_commits_with_the_end_of_its_messages() {
        let mut session = Session::default();
        for (kind, body) in [
            (b'P', &b"one\0insert into t values ($1)\0\0\0"[..]),
            (b'B', b"\0one\0"),
            (b'E', b"\0"),
        ] {
            assert!(!session.commits(&frame(kind, body), true));
        }
        assert!(session.commits(&frame(b'S', b""), true));
        assert!(
            !session.commits(&frame(b'S', b""), true),
            "nothing was bound since"
        );
    }

    #[test]
    fn a_statement_within_a_transaction_commits_nothing_and_its_end_does() {
        let mut session = Session::default();
        let _ = session.commits(&frame(b'P', b"one\0update t set a = 1\0\0\0"), false);
        let _ = session.commits(&frame(b'B', b"\0one\0"), false);
        assert!(!session.commits(&frame(b'S', b""), false));
        assert!(session.commits(&frame(b'Q', b"COMMIT\0"), false));
    }

    #[test]
    fn a_read_only_statement_commits_nothing() {
        let mut session = Session::default();
        let _ = session.commits(&frame(b'P', b"one\0select 1\0\0\0"), true);
        let _ = session.commits(&frame(b'B', b"\0one\0"), true);
        assert!(!session.commits(&frame(b'S', b""), true));
        assert!(!session.commits(&frame(b'Q', b"begin\0"), true));
    }
}
