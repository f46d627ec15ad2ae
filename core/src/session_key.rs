//! Which conversation belongs to a chat: from what a channel says of it to one name, the session key.
//!
//! `agent:{agent}:{channel}:{account}:` and then what decides, the first that is there: `thread:{group}:{thread}`,
//! `group:{group}` or `direct:{sender}`. A thread without a group lies in the direct chat of its sender,
//! `direct:{sender}:thread:{thread}`: channels number threads within a chat, so two people's may bear one id. Parts are
//! escaped, and so no two scopes share a key.

use std::fmt::Write as _;

use crate::limits::ID_BYTES;

/// Kinds of chats that channels have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatType {
    /// Not named, or by a name that is not known.
    Unknown,
    /// One person and the agent.
    Direct,
    /// Many people in one stream.
    Group,
    /// A thread or topic.
    Thread,
}

/// What channels call their chats, in lower case and without `-`, `_` and blanks.
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
    /// What a channel's name for it means; case, `-`, `_` and blanks do not matter.
    pub fn of(name: &str) -> Self {
        let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_') && !letter.is_whitespace());
        let plain: String = letters.flat_map(char::to_lowercase).collect();
        ALIASES.iter().find(|(alias, _)| *alias == plain).map_or(Self::Unknown, |(_, kind)| *kind)
    }
}

/// Who talks where, as a channel says it; '' for what it does not say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// The agent that is talked to.
    pub agent: String,
    /// The channel; upper and lower case are the same.
    pub channel: String,
    /// The agent's account in the channel.
    pub account: String,
    /// What the channel calls the chat.
    pub chat_type: String,
    /// The thread or topic.
    pub thread: String,
    /// The group, room or channel that it happens in.
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
    /// The field holds NUL, which no id does.
    #[error("{0} holds NUL")]
    Nul(&'static str),
    /// There is no agent.
    #[error("there is no agent")]
    NoAgent,
    /// There is neither a group nor a sender.
    #[error("there is neither a group nor a sender")]
    Nowhere,
    /// The chat type says that many people talk there, and nothing says where.
    #[error("there is no group")]
    NoGroup,
}

/// The name of a scope: two scopes have the same one only where they mean the same chat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(String);

/// The place that a scope comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub key: SessionKey,
    /// What its chat type means.
    pub chat_type: ChatType,
    /// The person whose direct chat it is; '' where it is a group's.
    pub person: String,
}

impl SessionKey {
    /// The key as it is stored and shown: at most 2,000 bytes, which fits an index.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same as a text of its own.
    pub fn into_string(self) -> String {
        self.0
    }

    /// This key and these parts.
    fn with(mut self, parts: &[&str]) -> Self {
        for part in parts {
            self.0.push(':');
            escape(part, &mut self.0);
        }
        self
    }
}

impl Scope {
    /// The place that it comes to.
    pub fn place(&self) -> Result<Place, ScopeError> {
        self.check()?;
        let chat_type = ChatType::of(&self.chat_type);
        let channel = self.channel.to_lowercase();
        let base = SessionKey("agent".to_owned()).with(&[&self.agent, &channel, &self.account]);
        let is_shared = matches!(chat_type, ChatType::Group | ChatType::Thread);
        if is_shared && self.group.is_empty() && self.thread.is_empty() {
            // A group whose id was left out: what is said there belongs into nobody's direct chat.
            return Err(ScopeError::NoGroup);
        }
        let in_group = !self.group.is_empty() && chat_type != ChatType::Direct;
        if !in_group && self.sender.is_empty() {
            return Err(ScopeError::Nowhere);
        }
        let key = match (in_group, self.thread.as_str()) {
            (true, "") => base.with(&["group", &self.group]),
            (true, thread) => base.with(&["thread", &self.group, thread]),
            (false, "") => base.with(&["direct", &self.sender]),
            (false, thread) => base.with(&["direct", &self.sender, "thread", thread]),
        };
        let person = if in_group { String::new() } else { self.sender.clone() };
        Ok(Place { key, chat_type, person })
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
        if self.agent.is_empty() { Err(ScopeError::NoAgent) } else { Ok(()) }
    }
}

/// Writes a part so that it holds no `:` and no control characters, and no other part is written the same.
fn escape(part: &str, key: &mut String) {
    for letter in part.chars() {
        if letter == '%' || letter == ':' || letter.is_control() {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                let _ = write!(key, "%{byte:02X}");
            }
        } else {
            key.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope { agent: "main".into(), channel: "Telegram".into(), account: "bot".into(), ..Scope::default() }
    }

    fn key(scope: &Scope) -> String {
        scope.place().expect("a place").key.as_str().to_owned()
    }

    #[test]
    fn what_decides_is_thread_before_group_before_sender() {
        let sender = Scope { sender: "u1".into(), ..scope() };
        let group = Scope { group: "-100:7".into(), ..sender.clone() };
        let thread = Scope { thread: "5%".into(), ..group.clone() };
        assert_eq!(key(&sender), "agent:main:telegram:bot:direct:u1");
        assert_eq!(key(&group), "agent:main:telegram:bot:group:-100%3A7");
        assert_eq!(key(&thread), "agent:main:telegram:bot:thread:-100%3A7:5%25");
        let private = Scope { chat_type: "DM".into(), ..thread.clone() };
        assert_eq!(key(&private), "agent:main:telegram:bot:direct:u1:thread:5%25", "the group of a direct chat");
        let plain = Scope { thread: String::new(), ..private };
        assert_eq!(key(&plain), key(&sender));
    }

    #[test]
    fn a_thread_without_a_group_is_its_senders_own() {
        let thread = |sender: &str| Scope { thread: "1".into(), sender: sender.into(), ..scope() };
        assert_ne!(key(&thread("anna")), key(&thread("bert")));
        assert_eq!(thread("").place(), Err(ScopeError::Nowhere));
    }

    #[test]
    fn what_makes_no_place_is_refused() {
        assert_eq!(scope().place(), Err(ScopeError::Nowhere));
        let nobody = Scope { agent: String::new(), sender: "u".into(), ..scope() };
        assert_eq!(nobody.place(), Err(ScopeError::NoAgent));
        let direct = Scope { chat_type: "private".into(), group: "g".into(), ..scope() };
        assert_eq!(direct.place(), Err(ScopeError::Nowhere), "with a direct chat the group does not count");
        let long = Scope { sender: "a".repeat(ID_BYTES + 1), ..scope() };
        assert_eq!(long.place(), Err(ScopeError::TooLong("sender_id")));
        let nul = Scope { sender: "u".into(), account: "a\0".into(), ..scope() };
        assert_eq!(nul.place(), Err(ScopeError::Nul("account_id")));
    }

    #[test]
    fn a_group_or_thread_without_its_id_is_nobodys_direct_chat() {
        for (alias, kind) in ALIASES {
            let named = Scope { chat_type: alias.into(), sender: "u".into(), ..scope() };
            let wanted = if kind == ChatType::Direct { Ok(()) } else { Err(ScopeError::NoGroup) };
            assert_eq!(named.place().map(drop), wanted, "{alias}");
            for known in [Scope { group: "g".into(), ..named.clone() }, Scope { thread: "t".into(), ..named }] {
                assert!(known.place().is_ok(), "{known:?}");
            }
        }
        let unknown = Scope { chat_type: "telepathy".into(), sender: "u".into(), ..scope() };
        assert_eq!(key(&unknown), "agent:main:telegram:bot:direct:u", "what is not known says nothing");
    }

    #[test]
    fn every_alias_is_found_however_it_is_written_and_nothing_else_is() {
        for (index, (alias, kind)) in ALIASES.into_iter().enumerate() {
            assert_eq!(ChatType::of(alias), kind, "{alias}");
            assert_eq!(ChatType::of(&format!(" {}-", alias.to_uppercase())), kind, "{alias}");
            assert!(!ALIASES[..index].iter().any(|(earlier, _)| *earlier == alias), "{alias} stands twice");
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
        for part in [":".repeat(ID_BYTES), "\u{85}".repeat(ID_BYTES / 2), "İ".repeat(ID_BYTES / 2)] {
            let all = Scope {
                agent: part.clone(),
                channel: part.clone(),
                account: part.clone(),
                thread: part.clone(),
                group: part.clone(),
                sender: part.clone(),
                chat_type: String::new(),
            };
            let direct = Scope { group: String::new(), ..all.clone() };
            for scope in [all, direct] {
                assert!(key(&scope).len() <= 2_000, "{} bytes", key(&scope).len());
            }
        }
    }
}
