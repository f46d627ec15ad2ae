//! Identities (tenant, conversation), the permissions of a credential, what a credential is bound to,
//! and the caller of a request.

use std::fmt::Write as _;

use uuid::Uuid;

use crate::limits::ID_BYTES;

/// A tenant: the owner of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(pub Uuid);

impl TenantId {
    /// The tenant of every caller when the server listens on loopback without authentication.
    pub const DEFAULT: Self = Self(Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0001));
}

impl std::fmt::Display for TenantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A conversation's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationId(pub Uuid);

impl std::fmt::Display for ConversationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A permission that a credential grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Read conversations, messages, contexts and usage.
    Read,
    /// Write conversations, messages, separators, checkpoints and turns.
    Append,
    /// Delete and verify conversations, requeue and discard jobs.
    Admin,
    /// Read the figures of the whole installation: queues and models over all tenants.
    Operator,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 4] = [Self::Read, Self::Append, Self::Admin, Self::Operator];

    /// The name in credentials.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Append => "append",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }

    /// The verb with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }
}

/// A set of verbs, one bit for each. No verb implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Verbs(u8);

impl Verbs {
    /// Every verb.
    pub const ALL: Self = Self(0b1111);

    /// Whether the set contains this verb.
    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & 1 << verb as u8 != 0
    }

    /// The set without this verb.
    #[must_use]
    pub const fn without(self, verb: Verb) -> Self {
        Self(self.0 & !(1 << verb as u8))
    }

    /// The set as stored: one bit for each verb, in the order of the enum.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of these bits. Bits of verbs that only a newer version has are dropped.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(
            verbs
                .into_iter()
                .fold(0, |bits, verb| bits | 1 << verb as u8),
        )
    }
}

impl std::fmt::Display for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = Verb::ALL
            .into_iter()
            .filter(|verb| self.contains(*verb))
            .map(Verb::name)
            .collect();
        f.write_str(&names.join(","))
    }
}

/// An id of a user or an agent, of at most [`ID_BYTES`] bytes, without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoundId {
    length: u8,
    /// The id, then zeros.
    bytes: [u8; ID_BYTES],
}

impl BoundId {
    /// The id of this text. None: the text is empty, too long, or has the character NUL, which
    /// PostgreSQL does not store.
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() || text.contains('\0') {
            return None;
        }
        let mut bytes = [0; ID_BYTES];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self {
            length: u8::try_from(text.len()).ok()?,
            bytes,
        })
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)])
            .expect("the bytes were copied from a text")
    }
}

impl std::fmt::Debug for BoundId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The user, agent or conversation that a credential is bound to. Its holder sees the conversations
/// of that user or agent, or that conversation, and no others of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The conversations of this user.
    User(BoundId),
    /// The conversations of this agent.
    Agent(BoundId),
    /// This conversation.
    Conversation(ConversationId),
}

impl Bound {
    /// The binding as policies of the database and digests of keys have it: `user:` or `agent:` with
    /// the id in hexadecimal digits, or `conversation:` with its id. It contains nothing that needs
    /// quoting.
    pub fn setting(&self) -> String {
        let (kind, id) = match self {
            Self::User(id) => ("user:", id),
            Self::Agent(id) => ("agent:", id),
            Self::Conversation(id) => return format!("conversation:{id}"),
        };
        let mut text = kind.to_owned();
        for byte in id.as_str().bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// The authenticated caller of a request: the tenant whose data it may read and write, its
/// permissions, and what it is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    tenant: TenantId,
    verbs: Verbs,
    bound: Option<Bound>,
}

impl Caller {
    /// A caller with every permission on `tenant`'s data. Used where no credential exists: for a
    /// job or an audit of the tenant, for the import of older tables, and on a server that listens
    /// on loopback without authentication.
    pub const fn of(tenant: TenantId) -> Self {
        Self::with(tenant, Verbs::ALL)
    }

    /// A caller that acts for `tenant` with these verbs. Only authentication makes one.
    pub const fn with(tenant: TenantId, verbs: Verbs) -> Self {
        Self {
            tenant,
            verbs,
            bound: None,
        }
    }

    /// The caller, bound to a user, an agent or a conversation. It may not read the figures of the
    /// whole installation.
    #[must_use]
    pub const fn bound_to(self, bound: Bound) -> Self {
        Self {
            tenant: self.tenant,
            verbs: self.verbs.without(Verb::Operator),
            bound: Some(bound),
        }
    }

    /// The tenant whose data the caller may read and write.
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }

    /// The user, agent or conversation that the caller is bound to. None: it sees all data of its
    /// tenant.
    pub const fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// Whether the caller has this permission.
    pub const fn may(self, verb: Verb) -> bool {
        self.verbs.contains(verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_verbs_contains_exactly_its_verbs() {
        for bits in 0..16_u8 {
            let verbs: Verbs = Verb::ALL
                .into_iter()
                .filter(|verb| bits & 1 << *verb as u8 != 0)
                .collect();
            assert_eq!(verbs.bits(), bits);
            assert_eq!(verbs, Verbs::from_bits(bits | 0b1111_0000));
            for verb in Verb::ALL {
                assert_eq!(verbs.contains(verb), bits & 1 << verb as u8 != 0);
                assert_eq!(Verb::from_name(verb.name()), Some(verb));
            }
        }
        assert_eq!(Verb::from_name("root"), None);
        assert_eq!(
            [Verb::Read, Verb::Admin]
                .into_iter()
                .collect::<Verbs>()
                .to_string(),
            "read,admin"
        );
    }

    #[test]
    fn a_bound_id_holds_each_id_of_the_limit_and_nothing_else() {
        for text in ["a", "anna", "Zoë", &"x".repeat(ID_BYTES)] {
            assert_eq!(BoundId::new(text).expect("an id").as_str(), text);
        }
        for text in ["", "a\0", &"x".repeat(ID_BYTES + 1)] {
            assert_eq!(BoundId::new(text), None, "{text:?}");
        }
    }

    #[test]
    fn settings_of_bindings_need_no_quoting() {
        let id = BoundId::new("a'b").expect("an id");
        assert_eq!(Bound::User(id).setting(), "user:612762");
        assert_eq!(Bound::Agent(id).setting(), "agent:612762");
        assert_eq!(
            Bound::Conversation(ConversationId(Uuid::nil())).setting(),
            "conversation:00000000-0000-0000-0000-000000000000"
        );
    }

    #[test]
    fn a_bound_caller_keeps_its_verbs_but_operator() {
        let caller = Caller::of(TenantId::DEFAULT);
        assert_eq!(caller.bound(), None);
        let bound = Bound::User(BoundId::new("anna").expect("an id"));
        let caller = caller.bound_to(bound);
        assert_eq!(caller.bound(), Some(&bound));
        for verb in Verb::ALL {
            assert_eq!(caller.may(verb), verb != Verb::Operator);
        }
        // `Caller` is passed by value everywhere.
        assert!(size_of::<Caller>() < 256);
    }
}
