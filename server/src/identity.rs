//! The name of a caller in logs. It grants nothing: [`Caller`](anneal_core::caller::Caller) holds
//! tenant and verbs.

use std::{fmt, sync::Arc};

use uuid::Uuid;

/// Most bytes of a token's subject or a certificate's name in a log line.
const NAME_BYTES: usize = 128;

/// The credential that a call was authenticated with. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Callers need no credential.
    Anyone,
    /// An API key, by its id.
    Key(Uuid),
    /// A token, by its subject (`sub`); empty: it has none.
    Token(Arc<str>),
    /// A client certificate, by the configured name that it matched.
    Certificate(Arc<str>),
}

impl Identity {
    /// The holder of a token with this subject.
    pub(crate) fn of_token(subject: &str) -> Self {
        Self::Token(log_safe(subject))
    }

    /// The holder of a certificate with this name.
    pub(crate) fn of_certificate(name: &str) -> Self {
        Self::Certificate(log_safe(name))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Token(subject) => write!(f, "token:{subject}"),
            Self::Certificate(name) => write!(f, "certificate:{name}"),
        }
    }
}

/// At most the first [`NAME_BYTES`] of a name. Control characters, and characters that change the
/// writing direction or break the line, become `?`.
fn log_safe(name: &str) -> Arc<str> {
    let shown = name.chars().map(|c| {
        if c.is_control() || changes_layout(c) {
            '?'
        } else {
            c
        }
    });
    let mut log_safe = String::new();
    for character in shown {
        if log_safe.len() + character.len_utf8() > NAME_BYTES {
            break;
        }
        log_safe.push(character);
    }
    log_safe.into()
}

/// Whether the character changes the writing direction or breaks the line.
const fn changes_layout(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_truncated_and_control_characters_replaced() {
        let shown = |subject: &str| Identity::of_token(subject).to_string();
        assert_eq!(shown("user-7@idp.example"), "token:user-7@idp.example");
        assert_eq!(
            shown("a\nlevel=ERROR\u{1b}[2J\u{202e}\u{9b}"),
            "token:a?level=ERROR?[2J??"
        );
        assert_eq!(
            shown(&"é".repeat(1_000)),
            format!("token:{}", "é".repeat(NAME_BYTES / "é".len()))
        );
        assert_eq!(
            Identity::Key(Uuid::nil()).to_string(),
            "key:00000000-0000-0000-0000-000000000000"
        );
    }
}
