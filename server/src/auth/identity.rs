//! Who makes a call, as logs say it: beside the caller, whose tenant and verbs decide.

use std::{fmt, sync::Arc};

use uuid::Uuid;

/// Bytes of a name that somebody else has chosen.
const NAME_BYTES: usize = 128;

/// What a call was let in with. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The open mode: nobody was asked.
    Anyone,
    /// An API key, by the part of it that may be shown.
    Key(Uuid),
    /// A token, by its subject (`sub`); empty: it names none.
    Token(Arc<str>),
    /// A client certificate, by the name under which it is known here.
    Certificate(Arc<str>),
}

impl Identity {
    /// The holder of a token with this subject.
    pub(super) fn of_token(subject: &str) -> Self {
        Self::Token(bounded(subject))
    }

    /// The holder of a certificate that is known by this name.
    pub(super) fn of_certificate(name: &str) -> Self {
        Self::Certificate(bounded(name))
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

/// The beginning of a name, with `?` for characters that would not show as themselves in a log.
fn bounded(name: &str) -> Arc<str> {
    let shown = name.chars().map(|c| if c.is_control() || is_direction(c) { '?' } else { c });
    let mut bounded = String::new();
    for character in shown {
        if bounded.len() + character.len_utf8() > NAME_BYTES {
            break;
        }
        bounded.push(character);
    }
    bounded.into()
}

/// Whether it turns the direction of writing around.
const fn is_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_hold_nothing_that_a_log_would_not_show() {
        let said = |subject: &str| Identity::of_token(subject).to_string();
        assert_eq!(said("user-7@idp.example"), "token:user-7@idp.example");
        assert_eq!(said("a\nlevel=ERROR\u{1b}[2J\u{202e}\u{9b}"), "token:a?level=ERROR?[2J??");
        assert_eq!(said(&"é".repeat(1_000)), format!("token:{}", "é".repeat(64)));
        assert_eq!(Identity::Key(Uuid::nil()).to_string(), "key:00000000-0000-0000-0000-000000000000");
    }
}
