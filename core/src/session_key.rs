//! Session keys: which conversation belongs to a chat, decided from the ids and names that the
//! chat's channel (Telegram, Slack …) gives.
//!
//! A key is `agent:{agent}:{channel}:{account}:`, followed by the first of these that the scope
//! has: `thread:{group}:{thread}`, `group:{group}` or `direct:{sender}`. The group of a chat whose
//! kind is direct is ignored. A thread without a group belongs to the direct chat of its sender:
//! `direct:{sender}:thread:{thread}`. Channels number threads within a chat, so threads of two
//! people may have the same id. The parts of a key are escaped, so that different chats never get
//! the same key.

use std::fmt::Write as _;

use crate::limits::ID_BYTES;

/// The kind of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatType {
    /// The channel gave no kind of chat, or an unknown name for it.
    Unknown,
    /// One person and the agent.
    Direct,
    /// Many people in one chat.
    Group,
    /// A thread or topic.
    Thread,
}

/// Channels' names for the kinds of chats, in lower case and without `-`, `_` and blanks.
pub const ALIASES: [(&str, ChatType); 46] = [
    ("direct", ChatType::Direct),
    ("directmessage", ChatType::Direct),
    ("dm", ChatType::Direct),
    ("pm", ChatType::Direct),
    ("im", ChatType::Direct),
    ("private", ChatType::Direct),
    ("privatechat", ChatType::Direct),
    ("personal", ChatType::Direct),
    ("p2p", ChatType::Direct),
    ("1:1", ChatType::Direct),
    ("oneonone", ChatType::Direct),
    ("single", ChatType::Direct),
    ("individual", ChatType::Direct),
    ("user", ChatType::Direct),
    ("c2c", ChatType::Direct),
    ("group", ChatType::Group),
    ("groupchat", ChatType::Group),
    ("groupdm", ChatType::Group),
    ("supergroup", ChatType::Group),
    ("gigagroup", ChatType::Group),
    ("channel", ChatType::Group),
    ("publicchannel", ChatType::Group),
    ("privatechannel", ChatType::Group),
    ("broadcast", ChatType::Group),
    ("room", ChatType::Group),
    ("space", ChatType::Group),
    ("guild", ChatType::Group),
    ("guildtext", ChatType::Group),
    ("server", ChatType::Group),
    ("team", ChatType::Group),
    ("community", ChatType::Group),
    ("meeting", ChatType::Group),
    ("mpim", ChatType::Group),
    ("mpdm", ChatType::Group),
    ("muc", ChatType::Group),
    ("thread", ChatType::Thread),
    ("publicthread", ChatType::Thread),
    ("privatethread", ChatType::Thread),
    ("announcementthread", ChatType::Thread),
    ("topic", ChatType::Thread),
    ("topicgroup", ChatType::Thread),
    ("forum", ChatType::Thread),
    ("forumtopic", ChatType::Thread),
    ("forumpost", ChatType::Thread),
    ("guildforum", ChatType::Thread),
    ("post", ChatType::Thread),
];

impl ChatType {
    /// The kind of chat with this name. Case, `-`, `_` and blanks are ignored.
    pub fn of(name: &str) -> Self {
        let kept = name
            .chars()
            .filter(|character| !matches!(character, '-' | '_') && !character.is_whitespace());
        let plain: String = kept.flat_map(char::to_lowercase).collect();
        ALIASES
            .iter()
            .find(|(alias, _)| *alias == plain)
            .map_or(Self::Unknown, |(_, kind)| *kind)
    }
}

/// The ids and names by which a channel describes a chat. A field is empty if the channel does not
/// give it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionScope {
    /// The agent that takes part.
    pub agent: String,
    /// The channel. Case is ignored.
    pub channel: String,
    /// The agent's account in the channel.
    pub account: String,
    /// The channel's name for the kind of chat.
    pub chat_type: String,
    /// The thread or topic.
    pub thread: String,
    /// The group, room or channel that the chat takes place in.
    pub group: String,
    /// The person who writes.
    pub sender: String,
}

/// Why a scope has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// The field is longer than an id may be.
    #[error("{0} has more than {ID_BYTES} bytes")]
    TooLong(&'static str),
    /// The field contains NUL.
    #[error("{0} contains NUL")]
    Nul(&'static str),
    /// The scope names no agent.
    #[error("there is no agent")]
    NoAgent,
    /// The scope names no sender and no group. The group of a direct chat does not count.
    #[error("there is neither a group nor a sender")]
    NoGroupOrSender,
    /// The chat is a group or thread, and the scope names neither its group nor its thread.
    #[error("there is no group")]
    NoGroup,
}

/// The key of a scope. Two scopes have the same key only if they mean the same chat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(String);

/// The session that a scope resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedScope {
    /// The session's key.
    pub key: SessionKey,
    /// The kind of chat.
    pub chat_type: ChatType,
    /// The person whose direct chat it is; empty for a group's chat.
    pub person: String,
}

impl SessionKey {
    /// The key as stored and shown. It has at most 2,000 bytes. An entry of an index in PostgreSQL
    /// may have 2,704.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as an owned string.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Appends these parts, escaped.
    fn with(mut self, parts: &[&str]) -> Self {
        for part in parts {
            self.0.push(':');
            escape(part, &mut self.0);
        }
        self
    }
}

impl SessionScope {
    /// Resolves the scope to a session.
    pub fn resolve(&self) -> Result<ResolvedScope, ScopeError> {
        self.check()?;
        let chat_type = ChatType::of(&self.chat_type);
        let channel = self.channel.to_lowercase();
        let base = SessionKey("agent".to_owned()).with(&[&self.agent, &channel, &self.account]);
        let is_shared = matches!(chat_type, ChatType::Group | ChatType::Thread);
        if is_shared && self.group.is_empty() && self.thread.is_empty() {
            // A group without its id: its messages belong to no direct chat.
            return Err(ScopeError::NoGroup);
        }
        let in_group = !self.group.is_empty() && chat_type != ChatType::Direct;
        if !in_group && self.sender.is_empty() {
            return Err(ScopeError::NoGroupOrSender);
        }
        let key = match (in_group, self.thread.as_str()) {
            (true, "") => base.with(&["group", &self.group]),
            (true, thread) => base.with(&["thread", &self.group, thread]),
            (false, "") => base.with(&["direct", &self.sender]),
            (false, thread) => base.with(&["direct", &self.sender, "thread", thread]),
        };
        let person = if in_group {
            String::new()
        } else {
            self.sender.clone()
        };
        Ok(ResolvedScope {
            key,
            chat_type,
            person,
        })
    }

    fn check(&self) -> Result<(), ScopeError> {
        let fields = [
            ("agent_id", &self.agent),
            ("channel", &self.channel),
            ("account_id", &self.account),
            ("chat_type", &self.chat_type),
            ("thread_id", &self.thread),
            ("group_id", &self.group),
            ("sender_id", &self.sender),
        ];
        for (name, text) in fields {
            if text.len() > ID_BYTES {
                return Err(ScopeError::TooLong(name));
            }
            if text.contains('\0') {
                return Err(ScopeError::Nul(name));
            }
        }
        if self.agent.is_empty() {
            Err(ScopeError::NoAgent)
        } else {
            Ok(())
        }
    }
}

/// Appends a part with `%`, `:` and control characters escaped. No two parts are escaped to the
/// same text.
fn escape(part: &str, key: &mut String) {
    for character in part.chars() {
        if character == '%' || character == ':' || character.is_control() {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                let _ = write!(key, "%{byte:02X}");
            }
        } else {
            key.push(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> SessionScope {
        SessionScope {
            agent: "main".into(),
            channel: "Telegram".into(),
            account: "bot".into(),
            ..SessionScope::default()
        }
    }

    fn key(scope: &SessionScope) -> String {
        scope
            .resolve()
            .expect("the scope resolves")
            .key
            .as_str()
            .to_owned()
    }

    #[test]
    fn a_thread_takes_precedence_over_a_group_and_a_group_over_a_sender() {
        let sender = SessionScope {
            sender: "u1".into(),
            ..scope()
        };
        let group = SessionScope {
            group: "-100:7".into(),
            ..sender.clone()
        };
        let thread = SessionScope {
            thread: "5%".into(),
            ..group.clone()
        };
        assert_eq!(key(&sender), "agent:main:telegram:bot:direct:u1");
        assert_eq!(key(&group), "agent:main:telegram:bot:group:-100%3A7");
        assert_eq!(key(&thread), "agent:main:telegram:bot:thread:-100%3A7:5%25");
        let private = SessionScope {
            chat_type: "DM".into(),
            ..thread.clone()
        };
        assert_eq!(
            key(&private),
            "agent:main:telegram:bot:direct:u1:thread:5%25",
            "the group of a direct chat is ignored"
        );
        let without_thread = SessionScope {
            thread: String::new(),
            ..private
        };
        assert_eq!(key(&without_thread), key(&sender));
    }

    #[test]
    fn a_thread_without_a_group_belongs_to_its_sender() {
        let thread = |sender: &str| SessionScope {
            thread: "1".into(),
            sender: sender.into(),
            ..scope()
        };
        assert_ne!(key(&thread("anna")), key(&thread("bert")));
        assert_eq!(thread("").resolve(), Err(ScopeError::NoGroupOrSender));
    }

    #[test]
    fn an_incomplete_or_invalid_scope_is_refused() {
        assert_eq!(scope().resolve(), Err(ScopeError::NoGroupOrSender));
        let without_agent = SessionScope {
            agent: String::new(),
            sender: "u".into(),
            ..scope()
        };
        assert_eq!(without_agent.resolve(), Err(ScopeError::NoAgent));
        let direct = SessionScope {
            chat_type: "private".into(),
            group: "g".into(),
            ..scope()
        };
        assert_eq!(
            direct.resolve(),
            Err(ScopeError::NoGroupOrSender),
            "the group of a direct chat is ignored"
        );
        let long = SessionScope {
            sender: "a".repeat(ID_BYTES + 1),
            ..scope()
        };
        assert_eq!(long.resolve(), Err(ScopeError::TooLong("sender_id")));
        let nul = SessionScope {
            sender: "u".into(),
            account: "a\0".into(),
            ..scope()
        };
        assert_eq!(nul.resolve(), Err(ScopeError::Nul("account_id")));
    }

    #[test]
    fn a_group_or_thread_without_its_id_is_not_a_direct_chat() {
        for (alias, kind) in ALIASES {
            let named = SessionScope {
                chat_type: alias.into(),
                sender: "u".into(),
                ..scope()
            };
            let wanted = if kind == ChatType::Direct {
                Ok(())
            } else {
                Err(ScopeError::NoGroup)
            };
            assert_eq!(named.resolve().map(drop), wanted, "{alias}");
            for known in [
                SessionScope {
                    group: "g".into(),
                    ..named.clone()
                },
                SessionScope {
                    thread: "t".into(),
                    ..named
                },
            ] {
                assert!(known.resolve().is_ok(), "{known:?}");
            }
        }
        let unknown = SessionScope {
            chat_type: "telepathy".into(),
            sender: "u".into(),
            ..scope()
        };
        assert_eq!(
            key(&unknown),
            "agent:main:telegram:bot:direct:u",
            "an unknown chat type is ignored"
        );
    }

    #[test]
    fn every_alias_is_found_in_any_case_and_with_separators_and_no_other_name_is() {
        for (index, (alias, kind)) in ALIASES.into_iter().enumerate() {
            assert_eq!(ChatType::of(alias), kind, "{alias}");
            assert_eq!(
                ChatType::of(&format!(" {}-", alias.to_uppercase())),
                kind,
                "{alias}"
            );
            assert!(
                !ALIASES[..index]
                    .iter()
                    .any(|(earlier, _)| *earlier == alias),
                "{alias} is listed twice"
            );
        }
        for (written, kind) in [
            ("super_group", ChatType::Group),
            ("Direct Message", ChatType::Direct),
            ("oneOnOne", ChatType::Direct),
            ("PUBLIC-THREAD", ChatType::Thread),
        ] {
            assert_eq!(ChatType::of(written), kind, "{written}");
        }
        for unknown in ["", "dms", "telepathy", "d:m", "группа"] {
            assert_eq!(ChatType::of(unknown), ChatType::Unknown, "{unknown}");
        }
    }

    #[test]
    fn the_longest_key_fits_an_index() {
        for part in [
            ":".repeat(ID_BYTES),
            "\u{85}".repeat(ID_BYTES / 2),
            "İ".repeat(ID_BYTES / 2),
        ] {
            let all = SessionScope {
                agent: part.clone(),
                channel: part.clone(),
                account: part.clone(),
                thread: part.clone(),
                group: part.clone(),
                sender: part.clone(),
                chat_type: String::new(),
            };
            let direct = SessionScope {
                group: String::new(),
                ..all.clone()
            };
            for scope in [all, direct] {
                assert!(key(&scope).len() <= 2_000, "{} bytes", key(&scope).len());
            }
        }
    }
}
